"""Low-rank quadratic forms summed over locations: y_o = Σ_l Σ_j c_j ⟨f_oj, x_l⟩².

The heart of factorised bilinear networks (c = 1) and of low-rank bilinear pooling (c = ±1). With G = Σ_l x_l x_lᵀ and
M_o = Σ_j c_j f_oj f_ojᵀ the same number is ⟨M_o, G⟩. With k factors and O outputs the first form costs L·d·k·O an
image, the second d²·O; M is formed for a few outputs at a time and again in the backward pass, never stored whole.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from secondsight.functional.pooling.gram import gram
from secondsight.functional.pooling.recompute import by_pieces, pieces, symbolic


def quadratic(
    x: Float[Tensor, "b l d"], f: Float[Tensor, "o k d"], c: Float[Tensor, " k"] | None = None
) -> Float[Tensor, "b o"]:
    """Σ_l Σ_j c_j ⟨f_oj, x_l⟩², through whichever of its two forms costs less; c = 1 when None."""
    (b, length, d), (o, k, _) = x.shape, f.shape
    if symbolic(b, length) or b * _gram_flops(length, d, o) + 2 * d * d * o * k < b * 2 * length * d * o * k:
        return quadratic_gram(gram(x), f, c)
    return by_pieces(lambda piece: _weighed((piece @ f.flatten(0, 1).mT).square().sum(1), c, k), x, length * o * k)


def quadratic_gram(
    g: Float[Tensor, "b d d"], f: Float[Tensor, "o k d"], c: Float[Tensor, " k"] | None = None
) -> Float[Tensor, "b o"]:
    """⟨Σ_j c_j f_oj f_ojᵀ, G⟩ of symmetric G."""
    if torch.compiler.is_exporting():
        return g.flatten(1) @ gram(f, c).flatten(1).mT
    y = _QuadraticGram.apply(g, f, c)
    assert isinstance(y, Tensor)
    return y


class _QuadraticGram(torch.autograd.Function):
    """M is formed for a few outputs at a time, and once more on the way back."""

    @staticmethod
    def forward(ctx, g: Tensor, f: Tensor, c: Tensor | None) -> Tensor:
        ctx.save_for_backward(g, f, c)
        rows = g.flatten(1)
        return torch.cat([rows @ gram(piece, c).flatten(1).mT for piece in pieces(f, f.shape[-1] ** 2)], dim=1)

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        g, f, c = ctx.saved_tensors
        rows, df, start = g.flatten(1), torch.empty_like(f), 0
        dg = torch.zeros_like(rows)
        for piece in pieces(f, f.shape[-1] ** 2):
            dy = gradients[0][:, start : start + len(piece)]
            dg.addmm_(dy, gram(piece, c).flatten(1))
            dm = (dy.mT @ rows).view(-1, *g.shape[1:])  # symmetric, as G is
            torch.bmm(piece, dm, out=df[start : start + len(piece)])
            start += len(piece)
        return dg.view_as(g), df.mul_(2 if c is None else 2 * c[:, None]), None


def quadratic_local(
    x: Float[Tensor, "b l d"], f: Float[Tensor, "o k d"], c: Float[Tensor, " k"] | None = None
) -> Float[Tensor, "b l o"]:
    """Σ_j c_j ⟨f_oj, x_l⟩² of every location; they sum to ``quadratic``."""
    return _weighed((x @ f.flatten(0, 1).mT).square(), c, f.shape[1])


def quadratic_flops(length: int, d: int, o: int, k: int) -> int:
    """Floating-point operations of one image, the forming of M being shared by a large batch."""
    return min(2 * length * d * o * k, _gram_flops(length, d, o))


def _gram_flops(length: int, d: int, o: int) -> int:
    return 2 * length * d * d + 2 * d * d * o


def _weighed(squares: Tensor, c: Tensor | None, k: int) -> Tensor:
    """(…, o·k) squares to (…, o)."""
    squares = squares.unflatten(-1, (-1, k))
    return squares.sum(-1) if c is None else squares @ c
