"""Shared projectors made into one for each codeword: [U_n V_n] = [Σ_r a_nr Ũ_r, Σ_r b_nr Ṽ_r].

As a batch of small products, one for each of the d rows of a projector, each written to its place: the N·d·2o numbers
are touched once, where products of whole matrices would copy both halves, join them, and take the gradient apart again.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from secondsight.functional.pooling.plain_gradients import plain_gradients


def combined_projectors(
    a: Float[Tensor, "n r"], b: Float[Tensor, "n r"], uv: Float[Tensor, "r d two_o"]
) -> Float[Tensor, "n d two_o"]:
    """``a`` combines the first half of the columns, U's; ``b`` the second, V's."""
    if torch.compiler.is_compiling() or torch.is_autocast_enabled(uv.device.type):
        return _plain(a, b, uv)
    return _Combined.apply(a, b, uv)  # pyright: ignore[reportReturnType]


def _plain(a: Tensor, b: Tensor, uv: Tensor) -> Tensor:
    u, v = uv.chunk(2, dim=-1)
    return torch.cat([torch.tensordot(a, u, 1), torch.tensordot(b, v, 1)], dim=-1)


class _Combined(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a: Tensor, b: Tensor, uv: Tensor) -> Tensor:
        ctx.save_for_backward(a, b, uv)
        out = uv.new_empty(len(a), *uv.shape[1:])
        for w, half in _halves(a, b, uv):
            torch.bmm(w, _rows(uv, half), out=_rows(out, half))
        return out

    @staticmethod
    def backward(ctx, g: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        a, b, uv = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            return plain_gradients(_plain, (a, b, uv), (g,))
        of_mixes, guv = [], torch.empty_like(uv) if ctx.needs_input_grad[2] else None
        for (w, half), asked in zip(_halves(a, b, uv), ctx.needs_input_grad, strict=False):
            rows = _rows(g, half)
            # R rows in place of R columns: products with few columns take twice as long.
            of_mixes.append(torch.bmm(_rows(uv, half), rows.mT).sum(0).T if asked else None)
            if guv is not None:
                torch.bmm(w.mT, rows, out=_rows(guv, half))
        return *of_mixes, guv


def _halves(a: Tensor, b: Tensor, uv: Tensor) -> Iterator[tuple[Tensor, slice]]:
    """How each half is mixed, once for every row, and its columns."""
    d, o = uv.shape[1], uv.shape[2] // 2
    for w, half in ((a, slice(0, o)), (b, slice(o, 2 * o))):
        yield w.expand(d, -1, -1), half


def _rows(projectors: Tensor, half: slice) -> Tensor:
    """(d, n, o): row by row, a view."""
    return projectors[..., half].transpose(0, 1)
