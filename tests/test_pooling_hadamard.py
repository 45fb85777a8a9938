"""Hadamard low-rank products under attention, against their definition as loops."""

from __future__ import annotations

import pytest
import torch

from secondsight.errors import ConfigError
from secondsight.functional.pooling.glimpses import attention
from secondsight.pooling.hadamard import Hadamard


def by_loops(m: Hadamard, x: torch.Tensor) -> torch.Tensor:
    """z of one image (l, d)."""
    logits = torch.stack([m.p_attention.T @ ((m.u_attention.T @ a).tanh() * (m.v_attention.T @ a).tanh()) for a in x])
    parts = []
    for g in range(logits.shape[1]):
        alpha = logits[:, g].exp() / logits[:, g].exp().sum()
        parts.append(sum(w * (m.u.T @ a).tanh() * (m.v.T @ a).tanh() for w, a in zip(alpha, x, strict=True)))
    return m.p.T @ torch.cat(parts)


def test_it_multiplies_two_views_of_each_location_and_sums_them_by_attention():
    pooling = Hadamard(4, 3, glimpses=2, rank=5, attention_rank=3).double()
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    torch.testing.assert_close(pooling(x), torch.stack([by_loops(pooling, image) for image in x]))


def test_attention_adds_up_to_one_over_the_real_locations():
    pooling, x = Hadamard(4, 3), torch.randn(2, 6, 4)
    mask = torch.tensor([[True] * 6, [True, True, False, True, False, False]])
    weights = pooling.attend(x, mask)
    assert weights.shape == (2, 6, 2)
    torch.testing.assert_close(weights.sum(1), torch.ones(2, 2))
    assert (weights[~mask] == 0).all()


def test_attention_over_nothing_is_zero_with_finite_gradients():
    logits = torch.randn(1, 3, 2, requires_grad=True)
    weights = attention(logits, torch.zeros(1, 3, dtype=torch.bool))
    weights.sum().backward()
    assert not weights.any()
    assert logits.grad is not None
    assert not logits.grad.any()


def test_fit_brings_features_of_any_size_into_the_bend_of_the_tanh():
    pooling, x = Hadamard(16, 3), 50 * torch.randn(4, 30, 16)
    pooling.fit(x)
    for weight in (pooling.u, pooling.v, pooling.u_attention, pooling.v_attention):
        assert (x @ weight).square().mean().item() == pytest.approx(1, rel=0.01)


def test_names_and_options():
    assert Hadamard.from_name("hadamard-4", in_dim=8, out_dim=3).p_attention.shape[1] == 4
    assert Hadamard.from_name("hadamard", in_dim=8, out_dim=3, rank=6).u.shape == (8, 6)
    with pytest.raises(ConfigError, match="hadamard-2-3"):
        Hadamard.from_name("hadamard-2-3", in_dim=8, out_dim=3)
    with pytest.raises(ConfigError, match="attention_rank"):
        Hadamard(8, 3, attention_rank=0)
