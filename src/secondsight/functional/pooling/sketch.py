"""Compact bilinear pooling: sketches of Σ_l x_l ⊗ x_l whose inner products approximate those of the d² numbers.

Gao, Beijbom, Zhang, Darrell, "Compact Bilinear Pooling", CVPR 2016. For both sketches z(x) of one location,
E⟨z(x), z(y)⟩ = ⟨x, y⟩² over the draw of the sketch, and the sketch of an image is the sum over its locations.

*Random Maclaurin* (algorithm 1), w ∈ {±1}^{2·D×d}:     z_k(x) = ⟨w¹_k, x⟩⟨w²_k, x⟩ / √D .
*Tensor Sketch* (algorithm 2), h: [d]→[D], s: [d]→{±1}:  z(x) = FFT⁻¹(FFT(ψ(x,h¹,s¹)) ∘ FFT(ψ(x,h²,s²))),
with the count sketch ψ_k(x,h,s) = Σ_{i: h(i)=k} s(i)·x_i. The convolution theorem says what this is:

    z_k = Σ_{i,j: h¹(i)+h²(j) ≡ k mod D} s¹(i)·s²(j)·x_i·x_j .

Both are linear in x xᵀ, so the sketch of an image is the sketch of its Gram matrix G = Σ_l x_l x_lᵀ. Where d is
moderate that is far cheaper than transforming every location: one d×d product an image, d² numbers dropped into D bins.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from secondsight.functional.pooling.gram import gram
from secondsight.functional.pooling.recompute import by_pieces, pieces, symbolic

# What a number costs in the steps that are not matrix products, in floating-point operations of one that is (measured).
SCATTER = 130
FFT = 20

IMAGES, COLUMNS = 8, 256
"""Gram matrices and outputs contracted at a time, so that their product is still in the cache when it is summed."""


def count_sketch(
    x: Float[Tensor, "*n d"], h: Int[Tensor, " d"], s: Float[Tensor, " d"], size: int
) -> Float[Tensor, "*n size"]:
    """ψ_k(x) = Σ_{i: h(i)=k} s(i)·x_i, along the last dimension."""
    return x.new_zeros(*x.shape[:-1], size).index_add(-1, h, x * s)


def tensor_sketch(
    x: Float[Tensor, "b l d"], h: Int[Tensor, "2 d"], s: Float[Tensor, "2 d"], size: int
) -> Float[Tensor, "b size"]:
    """The Tensor Sketch of Σ_l x_l ⊗ x_l, through whichever of its two forms costs less."""
    gram_pays = torch.compiler.is_exporting() or _gram_pays(x.shape[1], x.shape[2], size)
    return (tensor_sketch_gram if gram_pays else tensor_sketch_fft)(x, h, s, size)


def tensor_sketch_flops(length: int, d: int, size: int) -> int:
    """Floating-point operations of one image with ``length`` locations in the form that is taken."""
    if _gram_pays(length, d, size):
        return (2 * length + 1) * d * d
    return round((length + 1) * 5 * size * math.log2(max(2, size))) + 4 * length * d


def _gram_pays(length: int, d: int, size: int) -> bool:
    gram = (2 * length + SCATTER) * d * d
    fft = length * (FFT * 5 * size * math.log2(max(2, size)) + SCATTER * 2 * d)
    return gram <= fft


def tensor_sketch_gram(
    x: Float[Tensor, "b l d"], h: Int[Tensor, "2 d"], s: Float[Tensor, "2 d"], size: int
) -> Float[Tensor, "b size"]:
    """z_k = Σ_{h¹(i)+h²(j) ≡ k} (s¹ s²ᵀ ∘ G)_ij: cost L·d² + d² an image, whatever the size of the sketch."""
    bins = ((h[0, :, None] + h[1]) % size).flatten()
    out = []
    signs = (s[0, :, None] * s[1]).flatten()
    for piece in pieces(x, x.shape[-1] ** 2):  # no operation keeps G for the backward pass
        g = gram(piece).flatten(1) * signs
        out.append(g.new_zeros(g.shape[0], size).index_add(1, bins, g))
    return torch.cat(out)


def tensor_sketch_fft(
    x: Float[Tensor, "b l d"], h: Int[Tensor, "2 d"], s: Float[Tensor, "2 d"], size: int
) -> Float[Tensor, "b size"]:
    """FFT⁻¹(Σ_l FFT(ψ¹(x_l)) ∘ FFT(ψ²(x_l))): one inverse transform an image; cost L·D·log D, whatever d."""
    if not torch.compiler.is_exporting() and x.numel() == 0:  # MKL refuses to transform nothing
        return tensor_sketch_gram(x, h, s, size)

    def convolved(x: Tensor) -> Tensor:
        first, second = (torch.fft.rfft(count_sketch(x, h[i], s[i], size)) for i in (0, 1))
        return torch.fft.irfft((first * second).sum(1), n=size)

    return by_pieces(convolved, x, 4 * x.shape[1] * size)


def tensor_sketch_local(
    x: Float[Tensor, "b l d"], h: Int[Tensor, "2 d"], s: Float[Tensor, "2 d"], size: int
) -> Float[Tensor, "b l size"]:
    """The sketch of every location; they sum to ``tensor_sketch``."""
    return tensor_sketch_fft(x.reshape(-1, 1, x.shape[-1]), h, s, size).view(*x.shape[:2], size)


def random_maclaurin(x: Float[Tensor, "b l d"], w: Float[Tensor, "2 size d"]) -> Float[Tensor, "b size"]:
    """Σ_l ⟨w¹_k, x_l⟩⟨w²_k, x_l⟩ / √D, through the Gram matrix when locations are many (2·L ≥ d).

    w¹_kᵀ G w²_k costs one projection of G's d rows; the locations themselves need two projections of L rows.
    """
    _, length, d = x.shape
    w = w * w.shape[1] ** -0.25
    if not symbolic(length) and 2 * length < d:
        return by_pieces(lambda piece: _maclaurin(piece, w).sum(1), x, 2 * length * w.shape[1])
    return torch.cat([contract(gram(piece), w[0], w[1]) for piece in pieces(x, d * d)])


def random_maclaurin_local(x: Float[Tensor, "b l d"], w: Float[Tensor, "2 size d"]) -> Float[Tensor, "b l size"]:
    """The sketch of every location; they sum to ``random_maclaurin``."""
    return _maclaurin(x, w * w.shape[1] ** -0.25)


def _maclaurin(x: Tensor, w: Tensor) -> Tensor:
    return (x @ w[0].mT) * (x @ w[1].mT)


def contract(g: Float[Tensor, "b d d"], u: Float[Tensor, "o d"], v: Float[Tensor, "o d"]) -> Float[Tensor, "b o"]:
    """u_kᵀ G v_k for every matrix G and every pair (u_k, v_k); differentiable in G alone."""
    if torch.compiler.is_exporting():
        return ((g @ v.mT) * u.mT).sum(1)
    z = _Contract.apply(g, u, v)
    assert isinstance(z, Tensor)
    return z


class _Contract(torch.autograd.Function):
    """z_k = u_kᵀ G v_k. Linear in G, so nothing is kept; its adjoint is ``_Expand``, and the other way round."""

    @staticmethod
    def forward(ctx, g: Tensor, u: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(u, v)
        (b, d, _), z = g.shape, g.new_empty(len(g), len(u))
        ut, vt = u.mT.contiguous(), v.mT.contiguous()
        for i in range(0, b, IMAGES):
            rows = g[i : i + IMAGES].reshape(-1, d)
            for k in range(0, len(u), COLUMNS):
                product = (rows @ vt[:, k : k + COLUMNS]).view(-1, d, min(COLUMNS, len(u) - k))
                z[i : i + IMAGES, k : k + COLUMNS] = product.mul_(ut[:, k : k + COLUMNS]).sum(1)
        return z

    @staticmethod
    def backward(ctx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        u, v = ctx.saved_tensors
        return _Expand.apply(gradients[0], u, v), None, None  # pyright: ignore[reportReturnType]


class _Expand(torch.autograd.Function):
    """G = Σ_k z_k u_k v_kᵀ."""

    @staticmethod
    def forward(ctx, z: Tensor, u: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(u, v)
        ut, g = u.mT.contiguous(), z.new_empty(len(z), u.shape[1], v.shape[1])
        for out, weights in zip(g, z, strict=True):
            torch.mm(ut * weights, v, out=out)
        return g

    @staticmethod
    def backward(ctx, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        u, v = ctx.saved_tensors
        return _Contract.apply(gradients[0], u, v), None, None  # pyright: ignore[reportReturnType]
