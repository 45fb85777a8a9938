"""Hadamard low-rank bilinear pooling under attention: a few weighted looks at the positions of an image."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def embedded(
    x: Float[Tensor, "b l d"], weight: Float[Tensor, "d r"], bias: Float[Tensor, " r"] | None = None
) -> Float[Tensor, "b l r"]:
    """tanh(Wᵀx + b)."""
    # In place: neither a product nor a sum needs its own result for the backward pass.
    return torch.nn.functional.linear(x, weight.T, bias).tanh_()


def attention(logits: Float[Tensor, "b l g"], mask: Bool[Tensor, "b l"] | None = None) -> Float[Tensor, "b l g"]:
    """Softmax over the real positions, for each glimpse; zeros for an image that has none."""
    if mask is None:
        return logits.softmax(1)
    outside = ~mask[..., None]
    # The lowest finite number, not −∞: a softmax over nothing but −∞ is NaN, and so are its gradients.
    return logits.masked_fill(outside, torch.finfo(logits.dtype).min).softmax(1).masked_fill(outside, 0)


def glimpses(f: Float[Tensor, "b l r"], weights: Float[Tensor, "b l g"]) -> Float[Tensor, "b g r"]:
    """Σ_l α_gl f_l: the joint feature as each glimpse sees it."""
    return weights.mT @ f
