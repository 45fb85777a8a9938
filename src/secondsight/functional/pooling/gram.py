"""Gram matrices XᵀX, whose gradient is one product: both operands are the same."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

FEW = 64
"""Locations below which two products beat one with G + Gᵀ (measured at d = 256)."""


def gram(x: Float[Tensor, "b l d"], c: Float[Tensor, " l"] | None = None) -> Float[Tensor, "b d d"]:
    """G = Σ_l c_l x_l x_lᵀ; c = 1 when None, and a constant otherwise.

    With dG the gradient of G that of x is c x (dG + dGᵀ). Automatic differentiation does not know that the operands
    are one matrix, and takes two products.
    """
    return _Gram.apply(x, c)  # pyright: ignore[reportReturnType]


class _Gram(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, c: Tensor | None) -> Tensor:
        return (x if c is None else x * c[:, None]).mT @ x

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, *gradients: Tensor) -> tuple[Tensor, None]:
        x, c = ctx.saved_tensors
        (g,) = gradients
        # With few rows two products cost less than the sum of two matrices that lie across each other.
        dx = x @ g + x @ g.mT if x.shape[-2] < FEW else x @ (g + g.mT)
        return dx if c is None else dx * c[:, None], None
