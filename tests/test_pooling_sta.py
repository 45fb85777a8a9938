"""STA and ISTA against their definitions as loops over pairs of locations."""

from __future__ import annotations

import pytest
import torch

from secondsight.errors import ConfigError, DataError, ShapeError
from secondsight.functional.pooling.shifts import half_plane, own_pair_tensors, pair_tensors, shift_sum, spread
from secondsight.functional.pooling.triangle import upper_triangle
from secondsight.pooling.sta import ISTA, STA
from secondsight.pooling.vlat import VLAT

D, N, P, GRID = 5, 3, 2, (4, 3)
L = GRID[0] * GRID[1]


def data(images: int = 40) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    which = torch.randint(0, 3, (images, L), generator=generator)
    return torch.randn(images, L, D, generator=generator, dtype=torch.float64) + 3 * which[..., None]


def fitted(cls, **options):
    pooling = cls(D, codewords=N, dim=P, **{"normalise": "none", **options}).double()
    pooling.fit(data(), grid=GRID)
    return pooling


def naive(x: torch.Tensor, pooling, mask: torch.Tensor | None = None) -> torch.Tensor:
    """T (b, n, n, p, p) by looping over locations and shifts."""
    mask = torch.ones(x.shape[:2], dtype=torch.bool) if mask is None else mask
    words, y = describe(x, pooling)
    out = torch.zeros(len(x), N, N, P, P, dtype=x.dtype)
    mean = getattr(pooling, "mean_tensors", torch.zeros(N, N, P, P, dtype=x.dtype))
    for image in range(len(x)):
        for row in range(GRID[0]):
            for column in range(GRID[1]):
                for down, right in pooling.shifts:
                    if not (0 <= row + down < GRID[0] and 0 <= column + right < GRID[1]):
                        continue
                    s, t = row * GRID[1] + column, (row + down) * GRID[1] + column + right
                    if mask[image, s] and mask[image, t]:
                        i, j = words[image, s], words[image, t]
                        out[image, i, j] += torch.outer(y[image, s], y[image, t]) - mean[i, j]
    return out


def describe(x: torch.Tensor, pooling) -> tuple[torch.Tensor, torch.Tensor]:
    """Codeword and features of every location, from the fitted numbers alone."""
    words, y = torch.zeros(x.shape[:2], dtype=torch.long), torch.zeros(*x.shape[:2], P, dtype=x.dtype)
    for image in range(len(x)):
        for location in range(L):
            feature = x[image, location]
            if isinstance(pooling, STA):
                feature = pooling.axes.T @ (feature - pooling.centre)
                feature = feature / feature.norm()
            k = int((feature - pooling.centres).square().sum(1).argmin())
            residual = feature - pooling.centres[k]
            words[image, location] = k
            y[image, location] = (
                residual / residual.norm() if isinstance(pooling, STA) else pooling.axes[k].T @ residual
            )
    return words, y


@pytest.mark.parametrize("cls", [STA, ISTA])
@pytest.mark.parametrize("shifts", [None, ((0, 0),), ((0, 1), (2, -1), (1, 0)), ((9, 0),)])
def test_tensors_are_sums_over_pairs_of_neighbours(cls, shifts):
    pooling, x = fitted(cls, shifts=shifts), data(3)
    torch.testing.assert_close(pooling(x, grid=GRID), naive(x, pooling).flatten(1), atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("cls", [STA, ISTA])
def test_a_pair_with_a_masked_location_does_not_count(cls):
    pooling, x, mask = fitted(cls), data(3), torch.rand(3, L) > 0.4
    expected = naive(x, pooling, mask).flatten(1)
    torch.testing.assert_close(pooling(x, mask, grid=GRID), expected, atol=1e-9, rtol=1e-7)


def test_the_power_of_a_tenth_then_length_one():
    pooling, x = fitted(STA, normalise="power-l2"), data(3)
    t = naive(x, pooling).flatten(1)
    powered = t.sign() * t.abs().pow(0.1)
    torch.testing.assert_close(pooling(x, grid=GRID), powered / powered.norm(dim=1, keepdim=True), atol=1e-4, rtol=1e-4)


def test_ista_with_the_zero_shift_alone_is_vlat():
    ista, x = fitted(ISTA, shifts=((0, 0),)), data(3)
    vlat = VLAT(D, codewords=N, dim=P, normalise="none").double()
    vlat.fit(data())
    t = ista(x, grid=GRID).view(3, N, N, P, P)
    torch.testing.assert_close(
        upper_triangle(t.diagonal(dim1=1, dim2=2).permute(0, 3, 1, 2), isometric=True).flatten(1), vlat(x)
    )
    assert (t[:, ~torch.eye(N, dtype=torch.bool)] == 0).all()


def test_ista_of_the_images_it_was_fitted_to_is_zero_in_sum():
    pooling = fitted(ISTA)
    z = pooling(data(), grid=GRID)
    assert z.sum(0).abs().max() < 1e-9 * z.abs().sum(0).max()


def test_opposite_shifts_transpose_the_tensors():
    x = data(2)
    one, other = (fitted(STA, shifts=shifts)(x, grid=GRID).view(2, N, N, P, P) for shifts in (((1, 2),), ((-1, -2),)))
    torch.testing.assert_close(one, other.transpose(1, 2).transpose(3, 4))


def test_tensors_of_several_shifts_add_up():
    x, shifts = data(2), ((0, 1), (1, 0), (1, 1))
    together = fitted(STA, shifts=shifts)(x, grid=GRID)
    torch.testing.assert_close(together, sum(fitted(STA, shifts=(shift,))(x, grid=GRID) for shift in shifts))


def test_positions_matter_through_neighbours_alone():
    pooling, x = fitted(STA), data(2)
    moved = torch.zeros(2, *GRID, D, dtype=x.dtype)
    # a pattern and the same pattern one column further: masked surroundings, so nothing but the place differs
    moved[:, :, 1:] = x.view(2, *GRID, D)[:, :, :2]
    here, there = torch.zeros(2, 2, *GRID, dtype=torch.bool)
    here[..., :2], there[..., 1:] = True, True
    a = pooling(x, here.flatten(1), grid=GRID)
    torch.testing.assert_close(a, pooling(moved.flatten(1, 2), there.flatten(1), grid=GRID))


def test_a_half_plane_holds_one_of_each_pair_of_opposite_shifts():
    for radius in (0, 1, 2):
        shifts = half_plane(radius)
        both = {shift for row, column in shifts for shift in ((row, column), (-row, -column))}
        assert len(both) == (2 * radius + 1) ** 2 == 2 * len(shifts) - 1
        assert (0, 0) in shifts


def test_shift_sum_adds_neighbours_and_transposes_to_the_opposite():
    z = torch.randn(1, 3, 4, 2, dtype=torch.float64, requires_grad=True)
    out = shift_sum(z, ((1, -1), (0, 0)))
    torch.testing.assert_close(out[0, 0, 1], z[0, 0, 1] + z[0, 1, 0])
    torch.testing.assert_close(out[0, 2, 0], z[0, 2, 0])
    assert torch.autograd.gradcheck(lambda z: shift_sum(z, ((1, -1), (0, 2))), (z,))
    assert torch.autograd.gradgradcheck(lambda z: shift_sum(z, ((1, -1), (0, 2))), (z,))


@pytest.mark.parametrize("shifts", [((0, 0),), ((0, 0), (0, 1), (1, -1)), ((2, 0), (0, 0), (0, 0), (9, 9))])
@pytest.mark.parametrize("n", [1, 5, 20])
def test_pairs_of_own_codewords_are_those_of_the_spread_maps_both_ways(n, shifts):
    y = torch.randn(3, 12, 2, dtype=torch.float64, requires_grad=True)
    words, mask = torch.randint(0, n, (3, 12)), torch.rand(3, 12) > 0.2
    plain = pair_tensors(spread(y, words, n, mask), (4, 3), shifts, n)
    ours = own_pair_tensors(y, words, n, mask, (4, 3), shifts)
    torch.testing.assert_close(ours, plain)
    with torch.no_grad():
        torch.testing.assert_close(own_pair_tensors(y, words, n, mask, (4, 3), shifts), plain)
    weight = torch.randn_like(plain)
    back, expected = (torch.autograd.grad((t * weight).sum(), y)[0] for t in (ours, plain))
    torch.testing.assert_close(back, expected)
    if n < 20:
        assert torch.autograd.gradgradcheck(lambda y: own_pair_tensors(y, words, n, mask, (4, 3), shifts), (y,))


@pytest.mark.parametrize("cls", [STA, ISTA])
def test_a_missing_or_wrong_grid_is_named_with_the_cure(cls):
    pooling = fitted(cls)
    with pytest.raises(ShapeError, match=r"pass grid=\(height, width\) with height · width = 12"):
        pooling(data(1))
    with pytest.raises(ShapeError, match="5×5 does not fit 12 locations"):
        pooling(data(1), grid=(5, 5))


def test_ista_says_what_fitting_needs():
    pooling = ISTA(D, codewords=N, dim=P)
    with pytest.raises(ConfigError, match="grid"):
        pooling.fit(data())
    with pytest.raises(DataError, match="twice"):
        pooling.fit((x for x in data().split(8)), grid=GRID)
    with pytest.raises(ShapeError, match="5×5"):
        pooling.fit(data(), grid=(5, 5))


def test_sta_fits_without_a_grid():
    pooling = STA(D, codewords=N, dim=P).double()
    pooling.fit(data())
    assert torch.isfinite(pooling(data(1), grid=GRID)).all()


@pytest.mark.parametrize("options", [{"radius": -1}, {"shifts": ()}, {"shifts": ((1,),)}, {"power": 0.0}, {"dim": 0}])
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        STA(D, **options)


def test_an_output_of_the_papers_size_is_allowed_and_a_larger_one_is_refused():
    assert STA(256, codewords=8, dim=56).out_dim == 200_704
    with pytest.raises(ConfigError, match="262,144"):
        STA(256, codewords=8, dim=128)


def test_the_authors_form_is_an_option():
    """What follows the tensors in the author's code: two matrices, a power, columns of length 1, all of it stacked."""
    shifts = [(0, 0), (1, 0), (2, 0)]  # down the rows
    pooling, x = fitted(STA, shifts=shifts, normalise="power-across", power=0.1), data(3)
    z = pooling(x, grid=GRID)
    for image, t in enumerate(naive(x, pooling)):
        same = torch.stack([t[i, i].flatten() for i in range(N)])
        other = torch.stack([t[i, j].flatten() for i in range(N) for j in range(N) if i != j])
        parts = []
        for rows in (same, other):
            rows = rows.sign() * rows.abs() ** 0.1
            lengths = rows.square().sum(0).sqrt()
            parts.append(rows / lengths.where(lengths > 0, 1))
        expected = torch.zeros(N, N, P * P, dtype=x.dtype)
        for i in range(N):
            expected[i, i] = parts[0][i]
        for (i, j), row in zip(((i, j) for i in range(N) for j in range(N) if i != j), parts[1], strict=True):
            expected[i, j] = row
        torch.testing.assert_close(z[image], (expected / expected.norm()).flatten(), atol=1e-6, rtol=1e-5)


def test_the_authors_norm_has_finite_gradients_where_a_codeword_is_absent():
    pooling, x = fitted(STA, normalise="power-across"), data(1)[:, :1].expand(1, L, D).clone().requires_grad_()
    pooling(x, grid=GRID).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
