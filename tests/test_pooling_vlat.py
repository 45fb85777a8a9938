"""VLAT against its definition, and the routing that it is computed with."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from secondsight.functional.pooling.codeword_tensors import route, routed_linear, run_grams
from secondsight.functional.pooling.residuals import nearest_codeword
from secondsight.functional.pooling.triangle import upper_triangle
from secondsight.pooling.principal import cluster_axes
from secondsight.pooling.vlat import VLAT

D, N, P = 5, 3, 2


def data(images: int = 40, locations: int = 9) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    mix = torch.randn(3, D, D, generator=generator, dtype=torch.float64)
    which = torch.randint(0, 3, (images, locations), generator=generator)
    noise = torch.randn(images, locations, 1, D, generator=generator, dtype=torch.float64)
    return (noise @ mix[which])[..., 0, :] + 5 * which[..., None]


def fitted(**options) -> VLAT:
    pooling = VLAT(D, codewords=N, **{"dim": P, **options}).double()
    pooling.fit(data())
    return pooling


def naive_vlat(x: torch.Tensor, pooling: VLAT) -> torch.Tensor:
    """The tensors (b, n, p, p), as loops."""
    p = pooling.axes.shape[2]
    out = torch.zeros(len(x), N, p, p, dtype=x.dtype)
    for image, locations in enumerate(x):
        for feature in locations:
            k = int((feature - pooling.centres).square().sum(1).argmin())
            y = pooling.axes[k].T @ (feature - pooling.centres[k])
            out[image, k] += torch.outer(y, y) - pooling.mean_tensors[k]
    return out


def flat(tensors: torch.Tensor) -> torch.Tensor:
    p = tensors.shape[-1]
    pairs = [(i, j) for i in range(p) for j in range(i, p)]
    return torch.stack([tensors[..., i, j] * (1 if i == j else math.sqrt(2)) for i, j in pairs], dim=-1)


def test_vlat_is_its_definition():
    pooling, x = fitted(normalise="none"), data(4)
    torch.testing.assert_close(pooling(x), flat(naive_vlat(x, pooling)).flatten(1))


def test_power_and_length_are_normalised():
    pooling, x = fitted(), data(4)
    v = flat(naive_vlat(x, pooling)).flatten(1)
    rooted = v.sign() * v.abs().sqrt()
    torch.testing.assert_close(pooling(x), rooted / rooted.norm(dim=1, keepdim=True), atol=1e-6, rtol=1e-6)


def test_axes_are_orthonormal_and_diagonalise_the_clusters_tensor():
    pooling = fitted()
    eye = torch.eye(P, dtype=torch.float64).expand(N, P, P)
    torch.testing.assert_close(pooling.axes.transpose(1, 2) @ pooling.axes, eye)
    off = pooling.mean_tensors - torch.diag_embed(pooling.mean_tensors.diagonal(dim1=1, dim2=2))
    assert off.abs().max() < 1e-4 * pooling.mean_tensors.abs().max()
    spectrum = pooling.mean_tensors.diagonal(dim1=1, dim2=2)
    assert (spectrum[:, 0] >= spectrum[:, 1]).all()


def test_the_vlat_of_the_features_it_was_fitted_to_is_zero_in_sum():
    pooling = fitted(normalise="none")
    total = pooling(data()).sum(0)
    assert total.abs().max() < 1e-9 * pooling(data()).abs().sum(0).max()


def test_all_axes_keep_the_inner_products_of_the_full_tensors():
    pooling, x = fitted(normalise="none", dim=D), data(4)
    z = pooling(x)
    words = nearest_codeword(x, pooling.centres)
    full = torch.zeros(4, N, D, D, dtype=torch.float64)
    for k in range(N):
        r = (x - pooling.centres[k]) * (words == k)[..., None]
        mean = pooling.axes[k] @ pooling.mean_tensors[k] @ pooling.axes[k].T
        full[:, k] = r.transpose(1, 2) @ r - (words == k).sum(1)[:, None, None] * mean
    torch.testing.assert_close(z @ z.T, full.flatten(1) @ full.flatten(1).T)


def test_a_cluster_with_fewer_points_than_axes_borrows_the_others():
    points = torch.cat([torch.randn(200, D, dtype=torch.float64), torch.full((1, D), 50.0, dtype=torch.float64)])
    centres = torch.stack([torch.zeros(D, dtype=torch.float64), torch.full((D,), 50.0, dtype=torch.float64)])
    axes, tensors = cluster_axes(points, centres, P)
    torch.testing.assert_close(axes[0].abs(), axes[1].abs())
    assert (tensors[1] == 0).all()


def test_more_axes_than_dimensions_are_all_of_them():
    assert VLAT(D, codewords=N, dim=100).out_dim == N * D * (D + 1) // 2


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(0, 40), st.integers(1, 5), st.integers(1, 3), st.integers(0, 2**16))
def test_run_grams_are_the_grams_of_each_codewords_locations(b, length, n, p, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(b, length, p, generator=generator, dtype=torch.float64)
    words = torch.randint(0, n, (b, length), generator=generator)
    mask = torch.rand(b, length, generator=generator) > 0.2
    routes = route(words, n, mask)
    eye = torch.eye(p, dtype=torch.float64).expand(n, p, p)
    chosen = (words[..., None] == torch.arange(n)) & mask[..., None]
    h = chosen.double()
    x.requires_grad_()
    y = routed_linear(x, routes, eye, torch.zeros(n, p, dtype=torch.float64))
    ours, plain = run_grams(y, routes.runs), upper_triangle(torch.einsum("bln,blp,blq->bnpq", h, x, x), isometric=True)
    torch.testing.assert_close(ours, plain)
    weight = torch.randn(plain.shape, generator=generator, dtype=torch.float64)
    back, expected = (torch.autograd.grad((z * weight).sum(), x)[0] for z in (ours, plain))
    torch.testing.assert_close(back, expected)
    assert sum(routes.sizes) == int(mask.sum()) == len(y)


def test_routed_linear_uses_each_locations_own_matrix_both_ways():
    x = torch.randn(2, 6, D, dtype=torch.float64, requires_grad=True)
    words = torch.tensor([[0, 1, 2, 2, 0, 1], [1, 1, 1, 0, 2, 0]])
    weight, bias = torch.randn(N, D, P, dtype=torch.float64), torch.randn(N, P, dtype=torch.float64)
    routes = route(words, N)
    y = routed_linear(x, routes, weight, bias)
    expected = torch.einsum("bld,bldp->blp", x, weight[words]) + bias[words]
    torch.testing.assert_close(y, expected.flatten(0, 1)[routes.order])
    assert torch.autograd.gradcheck(lambda x: routed_linear(x, routes, weight, bias), (x,))
