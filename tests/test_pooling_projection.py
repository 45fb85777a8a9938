"""The projection to a common size: random start that keeps angles, PCA and whitening against sklearn."""

from __future__ import annotations

import io

import pytest
import torch
from sklearn.decomposition import PCA as SklearnPCA

from secondsight.errors import ConfigError, DataError, RunError, UnknownName
from secondsight.pooling.channelwise import GeM, Max
from secondsight.pooling.compact_bilinear import TensorSketch
from secondsight.pooling.covariance import ISqrtCov
from secondsight.pooling.lowrank import LowRankBilinear
from secondsight.pooling.principal import PCA, main_directions
from secondsight.pooling.projection import Projected


def _vectors(n: int = 300, d: int = 12) -> torch.Tensor:
    return torch.randn(n, d, dtype=torch.float64) * torch.logspace(1, -1, d, dtype=torch.float64) + 5


def _up_to_sign(found, wanted) -> torch.Tensor:
    return (found * wanted).sum(1).abs()


@pytest.mark.parametrize("block", [300, 64, 1])
def test_streamed_pca_is_pca_whatever_the_blocks(block):
    z, pca = _vectors(), PCA(rank=12)
    for part in z.split(block):
        pca.add(part)
    wanted = SklearnPCA(12).fit(z.numpy())
    assert pca.count == 300
    torch.testing.assert_close(pca.mean, z.mean(0))
    torch.testing.assert_close(pca.variances, torch.from_numpy(wanted.explained_variance_))
    axes = torch.from_numpy(wanted.components_)
    torch.testing.assert_close(_up_to_sign(pca.axes, axes), torch.ones(12, dtype=torch.float64))


def test_pca_of_vectors_much_wider_than_many_keeps_the_strongest_directions():
    """Rank 40 of 400 dimensions, 500 vectors in blocks of 50: the top 20 directions are those of the whole data."""
    z = torch.randn(500, 400) * torch.arange(1, 401).pow(-0.75) + 3
    pca = PCA(rank=40)
    for part in z.split(50):
        pca.add(part)
    wanted = SklearnPCA(20, svd_solver="full").fit(z.numpy())
    captured = (torch.from_numpy(wanted.components_) @ pca.axes[:24].T).square().sum(1)
    assert captured.min() > 0.97
    torch.testing.assert_close(pca.variances[:10].numpy(), wanted.explained_variance_[:10], rtol=0.05, atol=0)


def test_axes_are_orthonormal_even_under_a_mean_that_dwarfs_the_variance():
    pca = PCA(rank=8)
    for part in (torch.randn(200, 30) + 1e3).split(33):
        pca.add(part)
    torch.testing.assert_close(pca.axes @ pca.axes.T, torch.eye(8), rtol=0, atol=1e-4)


def test_main_directions_are_not_centred():
    x = torch.randn(2, 100, 4) * 0.1 + torch.tensor([0.0, 0, 3, 0])
    torch.testing.assert_close(
        main_directions([x], 1).abs().float(), torch.tensor([[0.0], [0], [1], [0]]), rtol=0, atol=0.02
    )


def test_the_learned_projection_starts_by_keeping_angles():
    pooling = Projected(ISqrtCov(16), out_dim=512)
    x = torch.randn(8, 40, 16)
    before, after = (torch.nn.functional.normalize(z, dim=1) for z in (pooling.pooling(x), pooling(x)))
    assert ((before @ before.T) - (after @ after.T)).abs().max() < 0.25
    assert pooling.weight.requires_grad


@pytest.mark.parametrize("method", ["pca", "pca-whiten"])
def test_pca_projections_are_sklearns_on_the_pooled_vectors(method):
    x = torch.randn(200, 10, 6, dtype=torch.float64) * torch.rand(200, 1, 6, dtype=torch.float64)
    pooling = Projected(ISqrtCov(6), out_dim=5, method=method).double()
    pooling.fit([x[:90], x[90:]])
    pooled = ISqrtCov(6)(x)
    wanted = torch.from_numpy(SklearnPCA(5, whiten=method == "pca-whiten").fit_transform(pooled.numpy()))
    z = pooling(x)
    torch.testing.assert_close(z.abs(), wanted.abs(), rtol=1e-3, atol=1e-4)
    assert z.mean(0).abs().max() < 1e-8
    if method == "pca-whiten":
        torch.testing.assert_close(z.T.cov(), torch.eye(5, dtype=torch.float64), rtol=1e-3, atol=1e-3)
    assert not list(pooling.parameters())


def test_pca_of_an_additive_pooling_still_sums_over_locations_and_gives_zeros_for_nothing():
    x = torch.randn(40, 10, 6)
    pooling = Projected(TensorSketch(6, 32, normalise="none"), out_dim=5, method="pca")
    pooling.fit(x)
    mask = torch.rand(40, 10) > 0.4
    mask[0] = False
    z = pooling(x, mask)
    torch.testing.assert_close(pooling.local(x, mask).sum(1), z, rtol=1e-3, atol=1e-4)
    assert not z[0].any()


def test_fit_reaches_the_pooling_inside():
    x = torch.randn(20, 10, 6)
    pooling = Projected(LowRankBilinear(6, 9, channels=2), out_dim=4, method="pca")
    before = pooling.pooling.get_parameter("project").clone()
    pooling.fit(x)
    assert not torch.equal(pooling.pooling.get_parameter("project"), before)


def test_a_fitted_projection_travels_through_a_state_dict():
    x, fresh = torch.randn(40, 10, 6), Projected(GeM(6), out_dim=4, method="pca-whiten")
    with pytest.raises(RunError, match="fit"):
        fresh(x)
    fitted = Projected(GeM(6), out_dim=4, method="pca-whiten")
    fitted.fit(x)
    stored = io.BytesIO()
    torch.save(fitted.state_dict(), stored)
    stored.seek(0)
    fresh.load_state_dict(torch.load(stored, weights_only=True))
    assert torch.equal(fresh(x), fitted(x))


def test_fit_leaves_the_mode_alone():
    pooling = Projected(GeM(6), out_dim=4, method="pca").train()
    pooling.fit(torch.randn(20, 10, 6))
    assert pooling.training
    with pytest.raises(DataError, match="images"):
        pooling.fit([torch.randn(20, 10, 6), torch.randn(20, 6)])
    assert pooling.training


def test_normalise_comes_before_the_projection():
    x, inner = torch.randn(3, 10, 6), ISqrtCov(6)
    pooling = Projected(inner, out_dim=4, normalise="l2")
    torch.testing.assert_close(pooling(x), torch.nn.functional.normalize(inner(x), dim=1) @ pooling.weight.T)
    torch.testing.assert_close(pooling(2 * x), pooling(x))
    additive = Projected(TensorSketch(6, 8, normalise="none"), out_dim=4, normalise="sqrt-l2")
    assert not additive.additive
    with pytest.raises(ConfigError, match="normalise='none'"):
        additive.local(x)


def test_what_cannot_be_projected_is_said():
    with pytest.raises(UnknownName, match="did you mean 'pca-whiten'"):
        Projected(Max(6), out_dim=4, method="pca-whitening")
    with pytest.raises(ConfigError, match=r"out_dim ≤ 6, or projection='linear'"):
        Projected(Max(6), out_dim=8, method="pca")
    with pytest.raises(DataError, match="more than 4 images"):
        Projected(Max(6), out_dim=4, method="pca").fit(torch.randn(4, 10, 6))
    with pytest.raises(DataError, match=r"images, locations, 6"):
        Projected(Max(6), out_dim=4, method="pca").fit(torch.randn(40, 6))
