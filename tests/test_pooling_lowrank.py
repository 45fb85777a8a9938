"""Low-rank bilinear pooling against its equation, and its hinge classifier against sklearn and on a task."""

from __future__ import annotations

import pytest
import torch

from secondsight.errors import ConfigError, DataError
from secondsight.pooling.lowrank import LowRankBilinear


def test_it_is_the_difference_of_two_frobenius_norms():
    pooling = LowRankBilinear(5, 3, rank=4, channels=4).double()
    x = torch.randn(2, 6, 5, dtype=torch.float64)
    plus, minus = pooling.factors[:, :2], pooling.factors[:, 2:]
    scores = torch.zeros(2, 3, dtype=torch.float64)
    for b in range(2):
        px = pooling.project @ x[b].T
        for c in range(3):
            scores[b, c] = (plus[c] @ px).norm() ** 2 - (minus[c] @ px).norm() ** 2
    torch.testing.assert_close(pooling(x), scores)


def test_it_is_a_linear_classifier_on_the_bilinear_feature():
    pooling = LowRankBilinear(5, 3, rank=4, channels=5).double()
    x = torch.randn(2, 6, 5, dtype=torch.float64)
    u = pooling.factors @ pooling.project  # (c, r, d)
    w = (u * pooling.signs[:, None]).mT @ u  # symmetric, of rank 4
    torch.testing.assert_close(pooling(x), (x.mT @ x).flatten(1) @ w.flatten(1).mT)


def test_a_mean_does_not_grow_with_the_image():
    pooling, x = LowRankBilinear(5, 3, reduce="mean"), torch.randn(2, 6, 5)
    torch.testing.assert_close(pooling(x.repeat(1, 4, 1)), pooling(x))


def test_fit_projects_on_the_directions_of_most_energy():
    basis = torch.linalg.qr(torch.randn(8, 8)).Q
    x = torch.randn(3, 50, 8) * torch.tensor([9.0, 8, 7, 0.1, 0.1, 0.1, 0.1, 0.1]) @ basis.T
    pooling = LowRankBilinear(8, 3, channels=3)
    pooling.fit([x[:1], x[1:]])
    p = pooling.project
    torch.testing.assert_close(p @ p.mT, torch.eye(3), rtol=0, atol=1e-5)
    torch.testing.assert_close((p @ basis[:, :3]).norm() ** 2, torch.tensor(3.0), rtol=1e-3, atol=0)


def test_fit_says_what_is_wrong_with_the_features():
    with pytest.raises(DataError, match="empty"):
        LowRankBilinear(8, 3).fit([])
    with pytest.raises(DataError, match="NaN"):
        LowRankBilinear(8, 3).fit(torch.full((1, 4, 8), float("nan")))


def test_its_scores_learn_classes_that_differ_in_second_order_alone():
    """Three classes with the same mean and different correlations: first-order pooling is blind to them."""
    mixing = torch.linalg.qr(torch.randn(3, 6, 6)).Q * torch.tensor([3.0, 2, 1, 0.5, 0.2, 0.1])
    labels = torch.arange(3).repeat(30)
    x = torch.randn(90, 40, 6) @ mixing[labels].mT
    pooling = LowRankBilinear(6, 3, rank=4, reduce="mean")
    optimiser = torch.optim.Adam(pooling.parameters(), lr=0.03, weight_decay=1e-4)
    for _ in range(60):
        optimiser.zero_grad()
        torch.nn.functional.multi_margin_loss(pooling(x[::2]), labels[::2]).backward()
        optimiser.step()
    accuracy = (pooling(x[1::2]).argmax(1) == labels[1::2]).float().mean()
    assert accuracy > 0.9


def test_names_and_options():
    assert LowRankBilinear.from_name("lrbp-4", in_dim=8, out_dim=3).factors.shape == (3, 4, 8)
    assert LowRankBilinear.from_name("lrbp", in_dim=256, out_dim=3).factors.shape == (3, 8, 100)
    with pytest.raises(ConfigError, match="even"):
        LowRankBilinear.from_name("lrbp-3", in_dim=8, out_dim=3)
    with pytest.raises(ConfigError, match="channels"):
        LowRankBilinear(8, 3, channels=0)
    with pytest.raises(ConfigError, match="reduce"):
        LowRankBilinear(8, 3, reduce="max")
