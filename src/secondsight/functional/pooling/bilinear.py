"""Sums of outer products: the second-order statistics Σ_l x_l x_lᵀ (Lin et al. 2015, equation 2), by codeword."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor


def outer_sum_by_codeword(x: Float[Tensor, "b l d"], h: Float[Tensor, "b l n"]) -> Float[Tensor, "b n d d"]:
    """Σ_l h_n(x_l) x_l x_lᵀ for every codeword n. Nothing of size d² is stored for a location."""
    b, length, d = x.shape
    hx = (h[..., None] * x[..., None, :]).view(b, length, -1)  # (b, l, n·d)
    return (hx.transpose(1, 2) @ x).view(b, h.shape[-1], d, d)


def bilinear_local(
    x: Float[Tensor, "b l d"], h: Float[Tensor, "b l n"], w: Float[Tensor, "n d d o"]
) -> Float[Tensor, "b l o"]:
    """z_i(x_l) = Σ_n h_n(x_l) x_lᵀ W_{n,·,·,i} x_l of every location, one codeword and a few columns at a time."""
    n, d, _, o = w.shape
    step = max(1, 4096 // o)  # columns worked on together: bounds the (b, l, step · o) intermediate
    z = x.new_zeros(*x.shape[:2], o)
    for j in range(n):
        hx = h[..., j, None] * x
        for s in range(0, d, step):
            part = (hx @ w[j, :, s : s + step].reshape(d, -1)).view(*x.shape[:2], -1, o)
            z = z + (part * x[..., s : s + step, None]).sum(2)
    return z
