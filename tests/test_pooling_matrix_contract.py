"""The pooling contract, kept by every bilinear and matrix pooling, whole or behind a projection."""

from __future__ import annotations

import copy

import pytest
import torch

from secondsight.errors import ConfigError, ShapeError
from secondsight.pooling.channelwise import GeM, Max
from secondsight.pooling.compact_bilinear import RandomMaclaurin, TensorSketch
from secondsight.pooling.covariance import ISqrtCov, MPNCov
from secondsight.pooling.factorized import FactorizedBilinear
from secondsight.pooling.grassmann import Grassmann, GrassmannFull
from secondsight.pooling.hadamard import Hadamard
from secondsight.pooling.lowrank import LowRankBilinear
from secondsight.pooling.mlb import MLB
from secondsight.pooling.projection import Projected

D = 6

MAKE = {
    "cbp-ts": lambda: TensorSketch(D, 24),
    "cbp-ts additive": lambda: TensorSketch(D, 24, normalise="none"),
    "cbp-rm": lambda: RandomMaclaurin(D, 24),
    "cbp-rm additive": lambda: RandomMaclaurin(D, 24, normalise="none"),
    "lrbp": lambda: LowRankBilinear(D, 7, rank=4, channels=5),
    "lrbp mean": lambda: LowRankBilinear(D, 7, rank=4, channels=5, reduce="mean"),
    "fbn": lambda: FactorizedBilinear(D, 7, factors=3),
    "fbn mean": lambda: FactorizedBilinear(D, 7, factors=3, reduce="mean"),
    "hadamard": lambda: Hadamard(D, 7, rank=5, attention_rank=4),
    "mlb": lambda: MLB(D, 7, rank=5),
    "grassmann": lambda: Grassmann(D, 7, rank=2),
    "grassmann reduced": lambda: Grassmann(D, 7, rank=2, channels=4),
    "grassmann-full": lambda: GrassmannFull(D, rank=2),
    "mpn-cov": lambda: MPNCov(D),
    "isqrt-cov": lambda: ISqrtCov(D),
    "max": lambda: Max(D),
    "gem": lambda: GeM(D),
    "gem per channel": lambda: GeM(D, per_channel=True),
    "isqrt-cov projected": lambda: Projected(ISqrtCov(D), out_dim=7),
    "cbp-ts projected": lambda: Projected(TensorSketch(D, 24, normalise="none"), out_dim=7),
}


@pytest.fixture(params=MAKE)
def pooling(request):
    module = MAKE[request.param]().eval()
    with torch.no_grad():  # biases that start at zero would hide a masked location's
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()
    return module


@pytest.mark.parametrize("length", [1, 2, 5, 40])
def test_any_number_of_locations_gives_one_vector(pooling, length):
    z = pooling(torch.randn(3, length, D))
    assert z.shape == (3, pooling.out_dim)
    assert z.isfinite().all()


def test_no_image_and_no_location_are_allowed(pooling):
    assert pooling(torch.randn(0, 5, D)).shape == (0, pooling.out_dim)
    x = torch.randn(2, 0, D, requires_grad=True)
    z = pooling(x)
    assert torch.equal(z, torch.zeros(2, pooling.out_dim))
    z.sum().backward()


def test_the_order_of_locations_does_not_matter(pooling):
    x = torch.randn(2, 9, D, dtype=torch.float64)
    pooling = pooling.double()
    torch.testing.assert_close(pooling(x[:, torch.randperm(9)]), pooling(x))


def test_a_masked_location_contributes_nothing_whatever_it_holds(pooling):
    pooling = pooling.double()
    x, mask = torch.randn(2, 9, D, dtype=torch.float64), torch.ones(2, 9, dtype=torch.bool)
    mask[0, 5:], mask[1, ::3] = False, False
    x[~mask] = float("nan")
    x.requires_grad_()
    z = pooling(x, mask)
    for i in range(2):
        torch.testing.assert_close(z[i], pooling(x[i : i + 1, mask[i]])[0])
    z.square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert (x.grad[~mask] == 0).all()


def test_an_empty_mask_gives_zeros_and_finite_gradients(pooling):
    x = torch.randn(2, 4, D, requires_grad=True)
    mask = torch.tensor([[False] * 4, [True] * 4])
    z = pooling(x, mask)
    assert torch.equal(z[0], torch.zeros(pooling.out_dim))
    assert z[1].any()
    z.sum().backward()
    assert _finite_gradients(pooling, x)


@pytest.mark.parametrize("kind", ["constant", "one location", "fewer than channels", "zeros", "huge", "tiny", "twins"])
def test_ill_conditioned_input_has_finite_values_and_gradients_close_to_float64(pooling, kind):
    x = _ill_conditioned(kind).requires_grad_()
    z = pooling(x)
    z.sum().backward()
    assert z.isfinite().all()
    assert _finite_gradients(pooling, x)
    exact = copy.deepcopy(pooling).double()(x.detach().double())
    scale = exact.abs().max().clamp_min(1e-4).item()
    tolerance = 2e-2 if kind in ("tiny", "twins") else 2e-3  # a root of what rounding left over is what it is
    torch.testing.assert_close(z.double(), exact, rtol=1e-3, atol=tolerance * scale)


def _ill_conditioned(kind: str) -> torch.Tensor:
    x = torch.randn(2, 7, D)
    match kind:
        case "constant":
            return torch.full_like(x, 0.37)
        case "one location":
            return x[:, :1]
        case "fewer than channels":
            return x[:, :3]
        case "zeros":
            return x * 0
        case "huge":
            return x * 1e4
        case "tiny":
            return x * 1e-4
        case _:
            return x[:, :1] + 1e-2 * x


def _finite_gradients(pooling, x) -> bool:
    return bool(x.grad.isfinite().all()) and all(
        p.grad.isfinite().all() for p in pooling.parameters() if p.grad is not None
    )


def test_gradients_are_those_of_the_definition(pooling):
    pooling = pooling.double()
    x = torch.randn(2, 4, D, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True] * 4, [True, False, True, True]])
    names = [name for name, _ in pooling.named_parameters()]

    def call(x, *parameters):
        return torch.func.functional_call(pooling, dict(zip(names, parameters, strict=True)), (x, mask))

    torch.autograd.gradcheck(call, (x, *pooling.parameters()), fast_mode=True)


def test_local_contributions_sum_to_the_whole_where_the_pooling_is_additive(pooling):
    x, mask = torch.randn(2, 9, D), torch.rand(2, 9) > 0.3
    if not pooling.additive:
        with pytest.raises(ConfigError, match="not a sum over locations"):
            pooling.local(x)
        return
    torch.testing.assert_close(pooling.local(x, mask).sum(1), pooling(x, mask), rtol=1e-4, atol=1e-4)
    assert (pooling.local(x, mask)[~mask] == 0).all()


def test_a_state_dict_restores_it(pooling, request):
    other = MAKE[request.node.callspec.params["pooling"]]()
    for tensor in other.state_dict().values():
        if tensor.is_floating_point():
            tensor.zero_()
    other.load_state_dict(pooling.state_dict())
    x = torch.randn(2, 9, D)
    torch.testing.assert_close(other.eval()(x), pooling(x))


def test_half_precision_input_and_autocast_work(pooling):
    x = torch.randn(2, 9, D)
    exact = pooling(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        automatic = pooling(x)
    half = pooling.bfloat16()(x.bfloat16())
    for z in (automatic, half):
        torch.testing.assert_close(z.float(), exact, rtol=0.1, atol=0.1 * exact.abs().max().item())


def test_flops_are_counted_and_grow_with_locations(pooling):
    assert 0 < pooling.flops(7) < pooling.flops(700)


def test_a_wrong_number_of_channels_is_named(pooling):
    with pytest.raises(ShapeError, match=rf"\(batch, locations, {D}\), got \(2, 9, 5\)"):
        pooling(torch.randn(2, 9, 5))
