"""Sums of outer products: the second-order statistics Σ_l x_l y_lᵀ, as a whole or by codeword."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from secondsight.functional.pooling.gram import gram


def outer_sum(x: Float[Tensor, "b l d"], y: Float[Tensor, "b l e"]) -> Float[Tensor, "b d e"]:
    """Σ_l x_l y_lᵀ = X Yᵀ, one matrix product an image (Lin et al. 2015, equation 2)."""
    return gram(x) if y is x else x.transpose(1, 2) @ y


def outer_sum_by_codeword(
    x: Float[Tensor, "b l d"], y: Float[Tensor, "b l e"], h: Float[Tensor, "b l n"]
) -> Float[Tensor, "b n d e"]:
    """Σ_l h_n(x_l) x_l y_lᵀ for every codeword n. Nothing of size d·e is stored for a location."""
    b, length, d = x.shape
    hx = (h[..., None] * x[..., None, :]).view(b, length, -1)  # (b, l, n·d)
    return outer_sum(hx, y).view(b, h.shape[-1], d, y.shape[-1])


def bilinear_local(
    x: Float[Tensor, "b l d"], y: Float[Tensor, "b l e"], h: Float[Tensor, "b l n"], w: Float[Tensor, "n d e o"]
) -> Float[Tensor, "b l o"]:
    """z_i(x_l) = Σ_n h_n(x_l) x_lᵀ W_{n,·,·,i} y_l of every location, one codeword and a few columns at a time."""
    n, d, e, o = w.shape
    step = max(1, 4096 // o)  # columns of y worked on together: bounds the (b, l, step · o) intermediate
    z = x.new_zeros(*x.shape[:2], o)
    for j in range(n):
        hx = h[..., j, None] * x
        for s in range(0, e, step):
            part = (hx @ w[j, :, s : s + step].reshape(d, -1)).view(*x.shape[:2], -1, o)
            z = z + (part * y[..., s : s + step, None]).sum(2)
    return z
