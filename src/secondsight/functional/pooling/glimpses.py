"""Hadamard low-rank bilinear pooling under attention: a few weighted looks at the positions of an image."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

NUMBERS = 2**17
"""Numbers that go through a tanh's steps together: 512 kB in float32."""


def embedded(
    x: Float[Tensor, "b l d"], weight: Float[Tensor, "d r"], bias: Float[Tensor, " r"] | None = None
) -> Float[Tensor, "b l r"]:
    """tanh(Wᵀx + b)."""
    rows = torch.nn.functional.linear(x.flatten(0, 1), weight.T, bias)
    if torch.compiler.is_compiling() or rows.device.type != "cpu" or rows.dtype.itemsize < 4:
        return rows.tanh().view(*x.shape[:2], weight.shape[1])
    return _Tanh.apply(rows).view(*x.shape[:2], weight.shape[1])  # type: ignore[union-attr]


class _Tanh(torch.autograd.Function):
    """tanh x = 2σ(2x) − 1, in place: on a processor a sigmoid takes a tenth of the time, to the same 10⁻⁷. It works on
    what fits the cache, and neither a product nor a sum before it needs its own result for the backward pass.
    """

    @staticmethod
    def forward(ctx, x):
        for some in x.split(max(1, NUMBERS // max(1, x.shape[1]))):
            some.mul_(2).sigmoid_().mul_(2).sub_(1)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, *grads):
        (y,) = ctx.saved_tensors
        return torch.ops.aten.tanh_backward(grads[0], y)


def maps(f: Float[Tensor, "b l r"], p: Float[Tensor, "r g"], bias: Float[Tensor, " g"] | None = None) -> Tensor:
    """pᵀf + b: one number a location for each glimpse, (b, l, g).

    With p's columns as rows, forward and gradient take a quarter of the time: products with two columns are slow.
    """
    return torch.nn.functional.linear(f, p.T.contiguous(), bias)


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
