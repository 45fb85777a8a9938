"""Grassmann pooling: a function of the subspace alone, with gradients that survive equal singular values."""

from __future__ import annotations

import math

import pytest
import torch

from secondsight.errors import ConfigError
from secondsight.functional.pooling.subspace import bilinear_readout, subspace_similarity, top_subspace
from secondsight.pooling.grassmann import Grassmann, GrassmannFull


@pytest.mark.parametrize("length", [4, 30])  # the L×L and the d×d Gram matrix
def test_it_is_the_projector_on_the_top_singular_vectors(length):
    x = torch.randn(3, length, 9, dtype=torch.float64)
    u = top_subspace(x, 3)
    for image, basis in zip(x, u, strict=True):
        right = torch.linalg.svd(image).Vh[:3]
        torch.testing.assert_close(basis @ basis.T, right.T @ right)
        torch.testing.assert_close(basis.T @ basis, torch.eye(3, dtype=torch.float64))


def test_a_rotation_of_the_basis_changes_nothing():
    """Any invertible mixing of the locations spans the same subspace, whatever basis the decomposition returns."""
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    rotation = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q
    u = top_subspace(x, 3)
    a, c = torch.randn(2, 5, 8, dtype=torch.float64)
    torch.testing.assert_close(bilinear_readout(u @ rotation, a, c), bilinear_readout(u, a, c))
    for pooling in (Grassmann(8, 5, rank=3).double(), GrassmannFull(8, rank=3)):
        torch.testing.assert_close(pooling(rotation @ x), pooling(x))
        torch.testing.assert_close(pooling(torch.randn(3, 3, dtype=torch.float64) @ x), pooling(x))


def test_a_burst_does_not_count_more_than_once():
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    burst = torch.cat([x, x[:, :1].expand(-1, 50, -1)], dim=1)
    torch.testing.assert_close(GrassmannFull(8, rank=5)(burst), GrassmannFull(8, rank=5)(x))


def test_the_inner_product_of_full_features_is_the_similarity_of_the_subspaces():
    x, pooling = torch.randn(4, 6, 8, dtype=torch.float64), GrassmannFull(8, rank=3)
    z, u = pooling(x), top_subspace(x, 3)
    similarity = subspace_similarity(u, u)
    torch.testing.assert_close(z @ z.T, similarity)
    for i in range(4):
        for j in range(4):
            torch.testing.assert_close(similarity[i, j], (u[i].T @ u[j]).square().sum())
    torch.testing.assert_close(similarity.diagonal(), torch.full((4,), 3.0, dtype=torch.float64))


def test_the_untrained_compact_feature_is_unbiased_for_the_similarity():
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    u = top_subspace(x, 2)
    truth = subspace_similarity(u, u)[0, 1].item()
    sketches = [Grassmann(8, 64, rank=2, seed=seed).double()(x) for seed in range(200)]
    draws = torch.stack([z[0] @ z[1] for z in sketches])
    assert abs(draws.mean().item() - truth) < 4 * draws.std().item() / math.sqrt(len(draws))


@pytest.mark.parametrize("length", [2, 4, 7])  # rank-deficient, L < d, L > d
def test_the_gradient_is_exact_for_functions_of_the_subspace(length):
    x = torch.randn(2, length, 5, dtype=torch.float64, requires_grad=True)
    a, c = torch.randn(2, 4, 5, dtype=torch.float64)
    torch.autograd.gradcheck(lambda x: bilinear_readout(top_subspace(x, 3), a, c), x)


def test_equal_singular_values_have_finite_gradients_inside_and_across_the_cut():
    for k in (2, 3):  # the first three are equal: k = 3 keeps them all, k = 2 cuts between them
        x = torch.diag(torch.tensor([2.0, 2, 2, 1, 0.5]))[None].requires_grad_()
        (top_subspace(x, k) ** 2).sum(-1)[..., 0].sum().backward()
        assert x.grad is not None
        assert x.grad.isfinite().all()


def test_equal_values_inside_the_subspace_leave_the_gradient_exact():
    x = torch.diag(torch.tensor([2.0, 2, 2, 1, 0.5], dtype=torch.float64))[None].requires_grad_()
    a, c = torch.randn(2, 4, 5, dtype=torch.float64)
    torch.autograd.gradcheck(lambda x: bilinear_readout(top_subspace(x, 3), a, c), x)


def test_fewer_directions_than_asked_for_leave_zeros():
    x = torch.randn(1, 1, 6)
    u = top_subspace(x.expand(-1, 4, -1), 3)  # constant features: one direction
    torch.testing.assert_close(u[0, :, 0].abs(), torch.nn.functional.normalize(x[0, 0], dim=0).abs())
    assert not u[..., 1:].any()


def test_single_precision_agrees_with_double_on_a_wide_spectrum():
    x = torch.randn(2, 20, 12, dtype=torch.float64) * torch.logspace(0, -3, 12, dtype=torch.float64)
    single, double = (GrassmannFull(12, rank=3)(x.to(t)) for t in (torch.float32, torch.float64))
    torch.testing.assert_close(single.double(), double, rtol=0, atol=1e-4)


def test_channels_are_reduced_first_and_fitted():
    pooling = Grassmann(16, 5, rank=2, channels=4)
    x = torch.randn(6, 10, 16) * torch.tensor([5.0] * 4 + [0.1] * 12)
    pooling.fit(x)
    assert pooling.subspace.reduce is not None
    torch.testing.assert_close(pooling.subspace.reduce[:, :4].norm() ** 2, torch.tensor(4.0), rtol=1e-2, atol=0)
    assert pooling(x).shape == (6, 5)


def test_names_and_options():
    assert Grassmann.from_name("grassmann-4", in_dim=8, out_dim=5).subspace.rank == 4
    assert GrassmannFull.from_name("grassmann-full-4", in_dim=8).out_dim == 36
    with pytest.raises(ConfigError, match="grassmann-4-2"):
        Grassmann.from_name("grassmann-4-2", in_dim=8, out_dim=5)
    with pytest.raises(ConfigError, match="between 1 and 7"):
        Grassmann(8, 5, rank=8)
    with pytest.raises(ConfigError, match="channels"):
        Grassmann(8, 5, rank=2, channels=9)
