"""JCF where every location has one codeword n(l): each codeword's locations are rows of one matrix from start to end.

    z = Σ_l h_l² (U_nᵀ x_l + b_n) ∘ (V_nᵀ x_l + c_n)

Locations are sorted by codeword once; factors, their product and the gradients stay in that order, so that only x, the
sum's terms and the gradient of x are moved, and the factors, the widest of all, never are.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from secondsight.functional.pooling.codeword_tensors import unrouted
from secondsight.functional.pooling.plain_gradients import plain_gradients
from secondsight.functional.pooling.projectors import routes

ROWS = 8192
"""Locations worked on at a time where no gradient is asked for."""


def jcf_nearest(
    x: Float[Tensor, "b l d"],
    h: Float[Tensor, "b l 1"],
    index: Int[Tensor, "b l 1"],
    uv: Float[Tensor, "n d two_o"],
    bias: Float[Tensor, "n two_o"] | None = None,
) -> Float[Tensor, "b two_o//2"]:
    """What ``functional.jcf`` computes of these.

    >>> x, h, index = torch.tensor([[[2.0], [3.0]]]), torch.ones(1, 2, 1), torch.tensor([[[0], [1]]])
    >>> jcf_nearest(x, h, index, torch.tensor([[[1.0, 1.0]], [[1.0, 2.0]]]))
    tensor([[22.]])
    """
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, h, uv, bias)):
        return _Nearest.apply(x, h, index, uv, bias)  # pyright: ignore[reportReturnType]
    images = max(1, ROWS // max(1, x.shape[1]))
    blocks = zip(x.split(images), h.split(images), index.split(images), strict=True)
    return torch.cat([_Sorted(*block, uv, bias).pooled() for block in blocks])


class _Sorted:
    """Locations in the order of their codewords, and both factors of each."""

    def __init__(self, x: Tensor, h: Tensor, index: Tensor, uv: Tensor, bias: Tensor | None):
        self.shape, self.h = x.shape, h
        self.order, self.spans = routes(index, len(uv))
        self.x = x.flatten(0, 1).index_select(0, self.order)
        self.factors = self.x.new_empty(len(self.order), uv.shape[2])
        for j, span in self.spans:
            if bias is None:
                torch.mm(self.x[span], uv[j], out=self.factors[span])
            else:
                torch.addmm(bias[j], self.x[span], uv[j], out=self.factors[span])

    def products(self) -> Tensor:
        """(b, l, o): a ∘ c, back in the images' own order."""
        a, c = self.factors.chunk(2, dim=-1)
        return unrouted(a * c, self.order).view(*self.shape[:2], a.shape[1])

    def pooled(self) -> Tensor:
        return (self.h.square().mT @ self.products())[:, 0]


class _Nearest(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x, h, index, uv, bias) -> Tensor:
        found = _Sorted(x, h, index, uv, bias)
        ctx.save_for_backward(x, h, index, uv, bias, found.x, found.factors, found.order)
        ctx.spans = found.spans
        return found.pooled()

    @staticmethod
    def backward(ctx: Any, gz: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, h, index, uv, bias, rows, factors, order = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            return plain_gradients(_plain, (x, h, index, uv, bias), (gz,))
        of_x, of_h, _, of_uv, of_bias = ctx.needs_input_grad
        (a, c), o = factors.chunk(2, dim=-1), gz.shape[1]
        gx = gh = guv = gbias = None
        if of_h:
            products = unrouted(a * c, order).view(*x.shape[:2], o)
            gh = 2 * h * (products @ gz[:, :, None])
        g = (h.square() * gz[:, None]).view(-1, o).index_select(0, order)
        gac = torch.empty_like(factors)
        torch.mul(g, c, out=gac[:, :o])
        torch.mul(g, a, out=gac[:, o:])
        if of_x:
            gx = torch.empty_like(rows)
            for j, span in ctx.spans:
                torch.mm(gac[span], uv[j].T, out=gx[span])
            gx = unrouted(gx, order).view_as(x)
        if of_uv:
            guv = torch.empty(uv.shape, dtype=uv.dtype, device=uv.device)
            guv[sorted(set(range(len(uv))) - {j for j, _ in ctx.spans})] = 0
            for j, span in ctx.spans:
                torch.mm(rows[span].T, gac[span], out=guv[j])
        if of_bias:
            gbias = torch.zeros_like(bias)
            for j, span in ctx.spans:
                torch.sum(gac[span], 0, out=gbias[j])
        return gx, gh, None, guv, gbias


def _plain(x, h, index, uv, bias) -> Tensor:
    """With no more than differentiable operations, one codeword after the other."""
    out = 0
    for j, w in enumerate(uv):
        factors = x @ w if bias is None else x @ w + bias[j]
        a, c = factors.chunk(2, dim=-1)
        out = out + (((index == j) * h.square()).mT @ (a * c))[:, 0]
    assert isinstance(out, Tensor)
    return out
