"""The similarity of two images as a sum over places, and what a place is worth.

With z_a = Σ_l p_l (what place l adds, ``pooling.local``) and u_a = g ∘ z_a of unit length,

    cos(a, b) = ⟨u_a, u_b⟩ = Σ_l Σ_m P_lm,      P_lm = ⟨g_a ∘ p_l, g_b ∘ p_m⟩ .

g is 1 / ‖z‖ everywhere, or one number for each part that is normalised apart. Row sums of P are the shares of a's
places, column sums those of b's. A share answers what the similarity is made of. It is not what would be lost without
the place: the length of z would change, too. To first order that is the effect,

    effect_l = share_l − cos · ⟨g ∘ p_l, u_a⟩ ,

which sums to zero: a place that is typical of a as a whole changes little when it goes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

UnitParts = Sequence[tuple[int, float]]
"""Sizes of the parts that are normalised apart, and the length each is given; () for the whole."""

TINY = 1e-12


def unit_scale(z: Float[Tensor, "*b d"], parts: UnitParts = ()) -> Float[Tensor, "*b d"]:
    """g with g ∘ z = the model's unit vector: ``Embedder.normalise`` as one factor a number. Zeros stay zeros."""
    sizes, lengths = zip(*parts, strict=True) if parts else ((z.shape[-1],), (1.0,))
    pieces = z.split(list(sizes), dim=-1)
    norms = [piece.norm(dim=-1, keepdim=True) for piece in pieces]
    factors = [
        torch.where(norm < TINY, torch.ones_like(norm), length / norm.clamp_min(TINY)).expand_as(piece)
        for piece, norm, length in zip(pieces, norms, lengths, strict=True)
    ]
    g = torch.cat(factors, dim=-1)
    return g / (g * z).norm(dim=-1, keepdim=True).clamp_min(TINY)


def links(p_a: Float[Tensor, "a d"], p_b: Float[Tensor, "b d"]) -> Float[Tensor, "a b"]:
    """P, from contributions that are scaled already (g ∘ p): its sum is the similarity."""
    return p_a @ p_b.mT


def effects(
    p: Float[Tensor, "l d"], own: Float[Tensor, " d"], other: Float[Tensor, " d"], parts: UnitParts = ()
) -> Float[Tensor, " l"]:
    """What the similarity loses without each place, to first order; sums to zero.

    Args:
        p: Scaled contributions g ∘ p of an image's places.
        own: Their sum, the image's unit vector.
        other: The other image's unit vector.
        parts: As the model normalises.
    """
    return p @ slope(own, other, parts)


def slope(own: Float[Tensor, " d"], other: Float[Tensor, " d"], parts: UnitParts = ()) -> Float[Tensor, " d"]:
    """The gradient of the cosine at ``own``: ``other`` without what points along ``own``, which changes lengths only.

    With parts that are normalised apart, each part's own direction is taken out.
    """
    sizes = [size for size, _ in parts] or [len(own)]
    pieces = zip(own.split(sizes), other.split(sizes), strict=True)
    return torch.cat([theirs - (mine @ theirs) / (mine @ mine).clamp_min(TINY) * mine for mine, theirs in pieces])


def cancellation(p: Float[Tensor, "a b"]) -> float:
    """Σ|P| / |ΣP|: 1 where all evidence points one way, large where positive and negative evidence cancel."""
    return float(p.abs().sum() / p.sum().abs().clamp_min(TINY))


def grouped(p: Float[Tensor, "a b"], h_a: Float[Tensor, "a n"], h_b: Float[Tensor, "b n"]) -> Float[Tensor, "n n"]:
    """Links of groups of places: H_aᵀ P H_b. Rows of H sum to one, so these links have the same sum."""
    return h_a.mT @ p @ h_b
