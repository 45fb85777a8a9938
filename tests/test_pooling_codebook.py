"""What every codebook pooling promises, whatever it computes."""

from __future__ import annotations

import copy
import functools

import pytest
import torch

from secondsight.errors import ConfigError, DataError, RunError, SecondsightError, ShapeError, UnknownName
from secondsight.functional.pooling import blocks
from secondsight.functional.pooling.normalise import l2, signed_power
from secondsight.pooling.codebook_pooling import CodebookPooling
from secondsight.pooling.fisher import FisherNet, FisherVector
from secondsight.pooling.mfa import MFAFV, MFAFVNet
from secondsight.pooling.sta import ISTA, STA
from secondsight.pooling.vlad import VLAD, NetVLAD
from secondsight.pooling.vlat import VLAT

D, GRID = 6, (4, 3)
L = GRID[0] * GRID[1]

NAMES = {
    "vlad-4": VLAD,
    "netvlad-4": NetVLAD,
    "fisher-3": FisherVector,
    "fishernet-3": FisherNet,
    "mfa-fv-3-2": MFAFV,
    "mfafvnet-3-2": MFAFVNet,
    "vlat-4-3": VLAT,
    "sta-3-2": STA,
    "ista-3-2": ISTA,
}
FITTED = [name for name, cls in NAMES.items() if not cls.learned]


def features(images: int = 64, dtype: torch.dtype = torch.float64, seed: int = 0) -> torch.Tensor:
    """Local features around a few centres, as a feature map has them."""
    generator = torch.Generator().manual_seed(seed)
    centres = 2 * torch.randn(5, D, generator=generator, dtype=torch.float64)
    which = torch.randint(5, (images, L), generator=generator)
    noise = torch.randn(images, L, D, generator=generator, dtype=torch.float64)
    return (centres[which] + noise * torch.linspace(0.3, 1.5, D)).to(dtype)


@functools.cache
def _fitted_state(name: str) -> dict[str, torch.Tensor]:
    pooling = NAMES[name].from_name(name, in_dim=D).double()
    pooling.fit(features(), grid=GRID)
    return pooling.state_dict()


def fitted(name: str, dtype: torch.dtype = torch.float64, **options) -> CodebookPooling:
    pooling = NAMES[name].from_name(name, in_dim=D, **options).to(dtype)
    pooling.load_state_dict(_fitted_state(name))
    return pooling


@pytest.fixture(params=list(NAMES))
def name(request) -> str:
    return request.param


@pytest.mark.parametrize("power", [0.1, 0.5, 1.0])
def test_the_power_normalisation_is_its_two_steps_both_ways(power, monkeypatch):
    monkeypatch.setattr(blocks, "NUMBERS", 16)  # two vectors at a time
    z = torch.randn(5, 8, dtype=torch.float64)
    z[1], z[2, :4] = 0, 0
    torch.testing.assert_close(blocks.power_l2(z, power), l2(signed_power(z, power)))
    g = torch.randn_like(z)
    ours, plain = z.clone().requires_grad_(), z.clone().requires_grad_()
    blocks.power_l2(ours, power).backward(g)
    l2(signed_power(plain, power)).backward(g)
    assert ours.grad is not None
    assert plain.grad is not None
    torch.testing.assert_close(ours.grad, plain.grad)
    away_from_zero = torch.randn(3, 4, dtype=torch.float64).exp().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: blocks.power_l2(z, power), (away_from_zero,))
    assert torch.autograd.gradgradcheck(lambda z: blocks.power_l2(z, power), (away_from_zero,))


@pytest.mark.parametrize("normalise", ["none", "l2", "sqrt-l2", "power-l2", "intra-l2"])
def test_output_has_out_dim_and_the_length_its_normalisation_says(name, normalise):
    pooling = fitted(name, normalise=normalise)
    z = pooling(features(3), grid=GRID)
    assert z.shape == (3, pooling.out_dim)
    lengths = z.norm(dim=1)
    assert torch.allclose(lengths, torch.ones(3, dtype=z.dtype)) == (normalise != "none")
    assert pooling.additive == (normalise == "none")


def test_local_contributions_sum_to_the_output(name):
    pooling = fitted(name, normalise="none")
    x, mask = features(3), torch.rand(3, L) > 0.3
    local = pooling.local(x, mask, grid=GRID)
    assert local.shape == (3, L, pooling.out_dim)
    torch.testing.assert_close(local.sum(1), pooling(x, mask, grid=GRID))
    if not pooling.uses_grid:
        assert (local[~mask] == 0).all()


def test_local_contributions_of_a_normalised_output_are_refused_with_the_cure(name):
    with pytest.raises(ConfigError, match="normalise='none'"):
        fitted(name).local(features(1), grid=GRID)


def test_masked_locations_add_nothing_even_when_they_hold_nan(name):
    pooling = fitted(name, normalise="none")
    x, mask = features(3), torch.rand(3, L) > 0.4
    spoilt = x.masked_fill(~mask[..., None], torch.nan).requires_grad_()
    z = pooling(spoilt, mask, grid=GRID)
    torch.testing.assert_close(z, pooling(x, mask, grid=GRID))
    z.square().sum().backward()
    assert torch.isfinite(spoilt.grad[mask]).all()
    assert (spoilt.grad[~mask] == 0).all()
    if not pooling.uses_grid:
        alone = torch.cat([pooling(x[i : i + 1, mask[i]]) for i in range(3)])
        torch.testing.assert_close(z, alone)


def test_an_image_without_locations_gives_zeros(name):
    for normalise in ("none", "sqrt-l2", "intra-l2"):
        pooling = fitted(name, normalise=normalise)
        mask = torch.ones(2, L, dtype=torch.bool)
        mask[1] = False
        x = features(2).requires_grad_()
        z = pooling(x, mask, grid=GRID)
        assert (z[1] == 0).all()
        assert (z[0] != 0).any()
        z.sum().backward()
        assert torch.isfinite(x.grad).all()
        assert pooling(x[:, :0], grid=(0, 3)).eq(0).all()


def test_the_order_of_locations_does_not_matter_unless_the_grid_does(name):
    pooling = fitted(name, normalise="none")
    x = features(3)
    same = torch.allclose(pooling(x, grid=GRID), pooling(x[:, torch.randperm(L)], grid=GRID))
    assert same != pooling.uses_grid


def test_gradients_match_finite_differences(name):
    # a power of 0.1 is too steep at the zeros of unused pairs for finite differences
    pooling = fitted(name, **({"normalise": "intra-l2"} if "sta" in name else {}))
    x = features(2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: pooling(x, grid=GRID), (x,), eps=1e-7, atol=1e-4, fast_mode=True)


@pytest.mark.parametrize("name", ["netvlad-4", "fishernet-3", "mfafvnet-3-2"])
def test_gradients_of_parameters_match_finite_differences(name):
    pooling = fitted(name)
    x = features(2)
    values = {key: value.detach().clone().requires_grad_() for key, value in pooling.named_parameters()}

    def run(*tensors):
        return torch.func.functional_call(pooling, dict(zip(values, tensors, strict=True)), (x,))

    assert torch.autograd.gradcheck(run, tuple(values.values()), eps=1e-7, atol=1e-4, fast_mode=True)


ILL = {
    "constant": torch.full((2, L, D), 0.7),
    "zeros": torch.zeros(2, L, D),
    "one location": features(2, torch.float32)[:, :1],
    "fewer locations than dimensions": features(2, torch.float32)[:, :3],
    "huge": features(2, torch.float32) * 1e4,
    "tiny": features(2, torch.float32) * 1e-6,
    "far away": features(2, torch.float32) + 1e3,
    "on a line": torch.linspace(-1, 1, L)[None, :, None].expand(2, L, D).contiguous(),
}


@pytest.mark.parametrize("kind", list(ILL))
def test_values_and_gradients_are_finite_in_single_precision_on_degenerate_input(name, kind):
    x = ILL[kind].clone().requires_grad_()
    grid = GRID if x.shape[1] == L else (1, x.shape[1])
    pooling = fitted(name, torch.float32)
    z = pooling(x, grid=grid)
    (z * torch.arange(z.shape[1])).sum().backward()
    assert torch.isfinite(z).all()
    assert torch.isfinite(x.grad).all()
    assert all(torch.isfinite(p.grad).all() for p in pooling.parameters())


@pytest.mark.parametrize("kind", list(ILL))
def test_fitting_to_degenerate_features_leaves_a_usable_pooling(name, kind):
    pooling = NAMES[name].from_name(name, in_dim=D)
    data = ILL[kind].expand(2, -1, -1).repeat(10, 12 if ILL[kind].shape[1] == 1 else 4, 1)
    grid = (1, data.shape[1])
    pooling.fit(data, grid=grid)
    x = data[:2].clone().requires_grad_()
    z = pooling(x, grid=grid)
    z.sum().backward()
    assert torch.isfinite(z).all()
    assert torch.isfinite(x.grad).all()


def test_single_precision_is_close_to_double(name):
    wide = fitted(name, normalise="none")
    narrow = copy.deepcopy(wide).float()
    x = features(4)
    z, reference = narrow(x.float(), grid=GRID).double(), wide(x, grid=GRID)
    assert (z - reference).norm() < 1e-4 * reference.norm()


def test_half_precision_input_is_computed_in_single_precision(name):
    pooling = fitted(name, torch.float32)
    x = features(2, torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        z = pooling(x, grid=GRID)
    assert z.dtype == torch.float32
    torch.testing.assert_close(z, pooling(x.float(), grid=GRID))


def test_a_fitted_state_survives_the_round_trip(name):
    pooling, fresh = fitted(name), NAMES[name].from_name(name, in_dim=D).double()
    fresh.load_state_dict(pooling.state_dict())
    x = features(3)
    torch.testing.assert_close(fresh(x, grid=GRID), pooling(x, grid=GRID))
    assert all(isinstance(value, torch.Tensor) for value in pooling.state_dict().values())


@pytest.mark.parametrize("name", FITTED)
def test_an_unfitted_classical_pooling_says_that_it_must_be_fitted(name):
    pooling = NAMES[name].from_name(name, in_dim=D)
    with pytest.raises(RunError, match=r"fit\(features\)"):
        pooling(torch.randn(1, L, D), grid=GRID)
    pooling.load_state_dict(pooling.state_dict())
    with pytest.raises(RunError, match=r"fit\(features\)"):
        pooling(torch.randn(1, L, D), grid=GRID)
    assert not list(pooling.parameters())


def test_an_exported_pooling_gives_the_same_for_any_number_of_images(name):
    class OnGrid(torch.nn.Module):
        def __init__(self, pooling):
            super().__init__()
            self.pooling = pooling

        def forward(self, x):
            return self.pooling(x, grid=GRID)

    pooling = fitted(name, torch.float32, normalise="l2")
    shapes = ({0: torch.export.Dim("images")},)
    exported = torch.export.export(OnGrid(pooling), (features(2, torch.float32),), dynamic_shapes=shapes)
    x = features(5, torch.float32)
    torch.testing.assert_close(exported.module()(x), pooling(x, grid=GRID), atol=1e-5, rtol=1e-4)


def test_fitting_is_reproducible_and_depends_on_the_seed_alone(name):
    torch.manual_seed(2)
    again = NAMES[name].from_name(name, in_dim=D).double()
    again.fit(features(), grid=GRID)
    for key, value in _fitted_state(name).items():
        assert torch.equal(again.state_dict()[key], value)


def test_fitting_from_a_stream_equals_fitting_from_its_concatenation(name):
    whole, parts = (NAMES[name].from_name(name, in_dim=D).double() for _ in range(2))
    data = features()
    whole.fit(data, grid=GRID)
    parts.fit(list(data.split(10)), grid=GRID)
    for key, value in whole.state_dict().items():
        torch.testing.assert_close(parts.state_dict()[key], value)


def test_fitting_looks_at_no_more_than_fit_points_features(name):
    pooling = NAMES[name].from_name(name, in_dim=D, fit_points=100).double()
    pooling.fit(features(), grid=GRID)
    assert pooling.points(features(), 0).shape == (100, D)
    assert torch.isfinite(pooling(features(2), grid=GRID)).all()


def test_fit_refuses_features_it_cannot_use(name):
    pooling = NAMES[name].from_name(name, in_dim=D)
    with pytest.raises(ShapeError, match=str(D)):
        pooling.fit(torch.randn(8, L, D + 1), grid=GRID)
    with pytest.raises(DataError, match="at least"):
        pooling.fit(torch.randn(1, 1, D), grid=(1, 1))
    with pytest.raises(DataError, match="NaN"):
        pooling.fit(torch.full((8, L, D), torch.nan), grid=GRID)
    with pytest.raises(DataError, match="empty"):
        pooling.fit([], grid=GRID)


def test_shapes_that_do_not_fit_are_named(name):
    pooling = fitted(name)
    with pytest.raises(SecondsightError, match=r"\(2, 12, 5\)"):
        pooling(torch.randn(2, L, D - 1), grid=GRID)


@pytest.mark.parametrize("bad", ["-x", "-0", "-4-2-9-9", "--4", "-4.5", "-"])
def test_names_that_make_no_sense_are_refused(name, bad):
    family = NAMES[name].family
    with pytest.raises(ConfigError, match=family):
        NAMES[name].from_name(family + bad, in_dim=D)


def test_a_plain_family_name_gives_the_defaults(name):
    cls = NAMES[name]
    assert cls.from_name(cls.family, in_dim=32).out_dim == cls(32).out_dim


def test_options_that_make_no_sense_are_refused(name):
    cls = NAMES[name]
    with pytest.raises(ConfigError, match="codewords"):
        cls(32, codewords=0)
    with pytest.raises(UnknownName, match="sqrt-l2"):
        cls(32, normalise="sqrt")
    with pytest.raises(ConfigError, match="fit_points"):
        cls(32, fit_points=-1)
    with pytest.raises(ConfigError, match="262,144"):
        cls(1024, codewords=4096)


def test_flops_grow_linearly_with_the_locations(name):
    pooling = NAMES[name].from_name(name, in_dim=D)
    one, ten, nineteen = (pooling.flops(n) for n in (1, 10, 19))
    assert 0 < one < ten
    assert nineteen - ten == ten - one
