"""Maximum and generalised mean."""

from __future__ import annotations

import pytest
import torch

from secondsight.errors import ConfigError
from secondsight.functional.pooling.generalised_mean import generalised_mean
from secondsight.pooling.channelwise import SMALLEST_P, GeM, Max


@pytest.mark.parametrize("p", [1.0, 3.0, 7.5])
def test_gem_is_the_generalised_mean(p):
    x = torch.rand(2, 9, 4, dtype=torch.float64) - 0.2
    expected = x.clamp_min(1e-6).pow(p).mean(1).pow(1 / p)
    torch.testing.assert_close(GeM(4, p=p).double()(x), expected)


def test_gem_with_p_one_is_the_average_and_with_large_p_the_maximum():
    x = torch.rand(2, 9, 4) + 0.01
    torch.testing.assert_close(GeM(4, p=1.0)(x), x.mean(1))
    torch.testing.assert_close(GeM(4, p=1e4)(x), Max(4)(x), rtol=1e-3, atol=0)


def test_gem_grows_with_p():
    x = torch.rand(1, 9, 4)
    values = torch.cat([GeM(4, p=p)(x) for p in (0.5, 1.0, 2.0, 4.0, 100.0)])
    assert (values.diff(dim=0) >= 0).all()


@pytest.mark.parametrize("p", [0.01, 1.0, 3.0, 1e3, 1e6])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_no_p_and_no_scale_over_or_underflows(p, scale):
    x, exponent = (scale * torch.rand(2, 9, 4)).requires_grad_(), torch.tensor([p], requires_grad=True)
    z = generalised_mean(x, exponent)
    z.sum().backward()
    assert z.isfinite().all()
    assert x.grad is not None
    assert exponent.grad is not None
    assert x.grad.isfinite().all()
    assert exponent.grad.isfinite().all()


def test_p_is_learned_and_cannot_reach_zero():
    pooling, x = GeM(4), torch.rand(2, 9, 4)
    pooling(x).sum().backward()
    assert pooling.p.grad is not None
    assert pooling.p.grad.abs() > 0
    with torch.no_grad():
        pooling.p.fill_(-5)
    torch.testing.assert_close(pooling(x), GeM(4, p=SMALLEST_P)(x))
    assert not list(GeM(4, learn_p=False).parameters())


def test_the_maximum_of_negative_features_is_negative_under_a_mask():
    x = -torch.rand(2, 5, 3) - 1
    mask = torch.tensor([[True] * 5, [True, False, False, False, True]])
    torch.testing.assert_close(Max(3)(x, mask)[0], x[0].amax(0))
    torch.testing.assert_close(Max(3)(x, mask)[1], x[1, [0, 4]].amax(0))


def test_names_and_options():
    assert GeM.from_name("gem-4", in_dim=8).p.item() == 4
    assert GeM.from_name("gem", in_dim=8, per_channel=True).p.shape == (8,)
    assert Max.from_name("max", in_dim=8).out_dim == 8
    for bad in (lambda: GeM(4, p=0.0), lambda: GeM(4, eps=0.0), lambda: Max.from_name("max-2", in_dim=8)):
        with pytest.raises(ConfigError, match=r"must be|max-2"):
            bad()
