"""The part of JCF that says what its projectors begin as."""

from __future__ import annotations

import pytest
import torch

from secondsight.errors import ConfigError
from secondsight.pooling.starts import (
    random_scale,
    root_mean_square,
    saliency,
    second_factor,
    shared_projector,
    strongest,
)


@pytest.mark.parametrize(("n", "sharp"), [(1, False), (8, False), (8, True)])
def test_random_projectors_give_products_of_variance_one_however_sharp_the_assignment(n, sharp):
    logits = torch.randn(4000, n) * (20 if sharp else 0.1)
    p = logits.softmax(-1)
    x = torch.nn.functional.normalize(torch.randn(4000, 16), dim=1)
    u, v = torch.randn(2, n, 16, 8) * random_scale(p, p)
    z = torch.einsum("mn,md,ndk->mk", p, x, u) * torch.einsum("mn,md,ndk->mk", p, x, v)
    assert z.var().item() == pytest.approx(1, rel=0.35)


@pytest.mark.parametrize("k", [3, 5, 8])
def test_a_shared_projector_keeps_as_many_angles_as_it_can(k):
    u = shared_projector(5, k)
    small = u.T @ u if k <= 5 else u @ u.T
    torch.testing.assert_close(small, torch.eye(min(5, k)), rtol=0, atol=1e-5)
    if k == 5:
        assert torch.equal(u, torch.eye(5))


def test_the_strongest_channels_are_those_of_most_energy_in_their_own_order():
    channels = torch.eye(4)[:, [2, 0, 3, 1]]
    points = torch.randn(500, 4) * torch.tensor([1.0, 9, 3, 6])
    assert torch.equal(strongest(channels, points, 2), channels[:, [2, 3]])


def test_the_second_factor_is_u_or_the_mean_feature_or_an_offset():
    u, points = torch.randn(6, 3), torch.rand(200, 6)
    assert second_factor("square", u, None) is u
    assert second_factor("average", u, points) is None
    assert second_factor("saliency", u, None) is None  # not known before there are features
    s = second_factor("saliency", u, points)
    assert s is not None
    assert s.shape == (6, 1)
    assert (points @ s).mean().item() == pytest.approx(1, rel=1e-4)


def test_saliency_needs_a_mean_direction():
    points = torch.randn(100, 6)
    with pytest.raises(ConfigError, match="mean direction"):
        saliency(points - points.mean(0))


def test_a_factor_divided_by_its_root_mean_square_has_mean_square_one():
    w, p, x = torch.randn(3, 6, 4), torch.rand(50, 3), torch.randn(50, 6)
    factor = torch.einsum("mn,md,ndk->mk", p, x, w)
    torch.testing.assert_close(root_mean_square(w, p, x), factor.square().mean().sqrt())
    assert root_mean_square(torch.zeros(1, 6, 4), p[:, :1], x) > 0
