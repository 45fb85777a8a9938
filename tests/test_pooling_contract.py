"""Every pooling in the registry keeps the contract of ``pooling/contract.py``."""

from __future__ import annotations

import copy

import pytest
import torch

from secondsight.errors import ConfigError, ShapeError
from secondsight.pooling import POOLINGS, Pooling, build, family

D, OUT, GRID = 8, 6, (3, 4)
NAMES = ["-".join([cls.family, *"42"[: len(cls.name_options)]]) for cls in POOLINGS.values()]
"""Every family with small numbers: jcf-4-2, vlad-4, average."""

_fitted: dict[str, Pooling] = {}


def fitted(name: str) -> Pooling:
    """A small pooling, fitted once; tests that change it take a copy."""
    if name not in _fitted:
        torch.manual_seed(3)
        pool = build(name, in_dim=D, out_dim=OUT)
        pool.fit([torch.randn(30, 12, D) for _ in range(2)], grid=GRID, seed=1)
        _fitted[name] = pool.eval()
    return _fitted[name]


def features(b: int = 3, length: int = 12) -> torch.Tensor:
    return torch.randn(b, length, D)


@pytest.fixture(params=NAMES)
def pool(request) -> Pooling:
    return fitted(request.param)


def test_one_vector_an_image_of_the_asked_size(pool):
    z = pool(features(), grid=GRID)
    assert z.shape == (3, OUT)
    assert pool.out_dim == OUT
    assert torch.isfinite(z).all()


def test_any_number_of_locations_works(pool):
    for grid in ((1, 1), (1, 7), (20, 10)):
        z = pool(features(2, grid[0] * grid[1]), grid=grid)
        assert z.shape == (2, OUT)
        assert torch.isfinite(z).all()


def test_images_do_not_see_each_other(pool):
    x = features()
    torch.testing.assert_close(pool(x, grid=GRID)[1:2], pool(x[1:2], grid=GRID), rtol=1e-3, atol=1e-4)


def test_the_order_of_locations_does_not_matter_unless_positions_do(pool):
    x = features()
    turned = pool(x[:, torch.randperm(12)], grid=GRID)
    if pool.uses_grid:
        assert not torch.allclose(turned, pool(x, grid=GRID), rtol=1e-2, atol=1e-2)
    else:
        torch.testing.assert_close(turned, pool(x, grid=GRID), rtol=1e-3, atol=1e-4)


def test_how_features_lie_in_memory_does_not_matter(pool):
    pool, x = copy.deepcopy(pool).requires_grad_(), features().requires_grad_()  # channels last, and channel by channel
    turned = x.detach().mT.contiguous().mT.requires_grad_()
    for one in (x, turned):
        pool(one, grid=GRID).square().sum().backward()
    torch.testing.assert_close(pool(turned, grid=GRID), pool(x, grid=GRID), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(turned.grad, x.grad, rtol=1e-2, atol=1e-2)


def test_what_is_masked_out_does_not_exist(pool):
    x = features()
    mask = torch.ones(3, 12, dtype=torch.bool)
    mask[:, 8:] = False
    poisoned = x.clone()
    poisoned[~mask] = float("nan")
    z = pool(poisoned, mask, grid=GRID)
    # The first 8 locations are the first two rows of the grid, so cropping keeps every neighbour that is real.
    torch.testing.assert_close(z, pool(x[:, :8], grid=(2, 4)), rtol=1e-3, atol=1e-4)


def test_an_image_with_no_location_gives_zeros(pool):
    mask = torch.ones(3, 12, dtype=torch.bool)
    mask[1] = False
    z = pool(features(), mask, grid=GRID)
    assert (z[1] == 0).all()
    assert (z[0] != 0).any()


def test_local_contributions_add_up_or_are_refused(pool):
    x = features()
    mask = torch.rand(3, 12) > 0.3
    if not pool.additive:
        with pytest.raises(ConfigError, match="sum over locations"):
            pool.local(x, grid=GRID)
        return
    local = pool.local(x, mask, grid=GRID)
    assert local.shape == (3, 12, OUT)
    assert (local[~mask] == 0).all()
    torch.testing.assert_close(local.sum(1), pool(x, mask, grid=GRID), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", ["constant", "zero", "one location", "huge", "tiny"])
def test_degenerate_features_give_finite_values_and_gradients(pool, kind):
    x = {
        "constant": torch.ones(2, 12, D) * 0.7,
        "zero": torch.zeros(2, 12, D),
        "one location": torch.randn(2, 1, D),
        "huge": torch.randn(2, 12, D) * 1e3,
        "tiny": torch.randn(2, 12, D) * 1e-6,
    }[kind].requires_grad_()
    z = pool(x, grid=(1, 1) if kind == "one location" else GRID)
    assert torch.isfinite(z).all()
    if z.requires_grad:
        (gradient,) = torch.autograd.grad(z.sum(), x, allow_unused=True)
        assert gradient is None or torch.isfinite(gradient).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_in_half_precision_point_the_same_way(pool, dtype):
    x = features()
    half = copy.deepcopy(pool).to(dtype)
    z, whole = half(x.to(dtype), grid=GRID).float(), pool(x.to(dtype).float(), grid=GRID)
    assert torch.isfinite(z).all()
    assert torch.nn.functional.cosine_similarity(z, whole).min() > 0.97
    if pool.additive:
        local = half.local(x.to(dtype), grid=GRID).float()
        torch.testing.assert_close(local.sum(1), z, rtol=0.05, atol=0.05 * z.abs().max().item())


def test_a_state_dict_restores_the_pooling(pool, request):
    name = request.node.callspec.params["pool"]
    fresh = build(name, in_dim=D, out_dim=OUT).eval()
    fresh.load_state_dict(pool.state_dict())
    x = features()
    assert torch.equal(fresh(x, grid=GRID), pool(x, grid=GRID))


def test_wrong_channels_are_refused_with_both_sizes(pool, unchecked):
    with pytest.raises(ShapeError, match=rf"{D}.*\(2, 12, {D + 1}\)"):
        pool(torch.randn(2, 12, D + 1), grid=GRID)


def test_costs_are_stated_and_grow_with_the_locations(pool):
    assert 0 < pool.flops(10) < pool.flops(1000)


def test_positions_are_asked_for_by_name():
    for name in NAMES:
        if POOLINGS[family(name)].uses_grid:
            with pytest.raises((ShapeError, ConfigError), match="grid"):
                fitted(name)(features())


def test_wide_poolings_can_be_left_wide():
    assert build("vlad-3", in_dim=D, out_dim=None).out_dim == 3 * D
    with pytest.raises(ConfigError, match="give out_dim"):
        build("jcf-3", in_dim=D, out_dim=None)
