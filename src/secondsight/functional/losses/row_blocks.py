"""Losses that are a sum over the rows of the similarity matrix, without ever holding more than a block of its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

_BLOCK = 2**22  # entries of the similarity matrix that are looked at together: 16 MB in float32


class RowTerms(NamedTuple):
    """What some rows of S add to the loss Σ total / Σ weight."""

    total: Tensor  # ()
    weight: Tensor  # (), a count: no gradient flows through it
    grad: Tensor  # (rows, b), d total / d S


Rows = Callable[[Tensor, slice], RowTerms]
"""From S[rows] and which rows they are to their terms."""


def row_loss(u: Float[Tensor, "b d"], rows: Rows) -> Float[Tensor, ""]:
    """L = Σ_r total_r / Σ_r weight_r, S = uuᵀ, where ``rows`` gives the terms of a block of rows and their derivative.

    The gradient dL/du = (G + Gᵀ)u / Σ weight, G = d total / dS, is accumulated on the way, so memory is that of one
    block of rows however large the batch. Where nothing has weight the loss is 0 and so is its gradient.
    """
    return _RowLoss.apply(u, rows)  # pyright: ignore[reportReturnType]


class _RowLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, u: Tensor, rows: Rows) -> Tensor:
        total = torch.zeros((), dtype=wide(u), device=u.device)
        weight = torch.zeros_like(total)
        grad = torch.zeros_like(u)
        block = max(1, _BLOCK // max(len(u), 1))
        for start in range(0, len(u), block):
            here = slice(start, min(start + block, len(u)))
            terms = rows(u[here] @ u.T, here)
            total += terms.total
            weight += terms.weight
            if ctx.needs_input_grad[0]:
                _add_gradient(grad, terms.grad, u, here)
        weight.clamp_min_(1)
        ctx.save_for_backward(grad / weight.to(u.dtype))
        return (total / weight).to(u.dtype)

    @staticmethod
    def backward(ctx, *outer: Tensor):
        (grad,) = ctx.saved_tensors
        return outer[0] * grad, None


def _add_gradient(grad: Tensor, g: Tensor, u: Tensor, here: slice) -> None:
    """grad += the rows ``here`` of (G + Gᵀ)u."""
    if len(g) == len(u):
        grad.addmm_(g + g.T, u)  # one product instead of two
        return
    grad[here] += g @ u
    grad.addmm_(g.T, u[here])


def wide(x: Tensor) -> torch.dtype:
    """The type to add up many numbers in: float64, where the device has it."""
    return x.dtype if x.device.type == "mps" else torch.float64
