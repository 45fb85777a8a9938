"""Normalisations of a vector that is made of blocks, one or more for every codeword."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from secondsight.functional.normalise import l2

BLOCK_NORMALISATIONS = ("none", "l2", "sqrt-l2", "power-l2", "intra-l2")
"""none: the plain sum · l2: length 1 · sqrt-l2, power-l2: signed √ or power, and l2 · intra-l2: l2 by block, and l2."""


def normalise_blocks(v: Float[Tensor, "b blocks dims"], how: str, power: float = 0.5) -> Float[Tensor, "b out"]:
    """The blocks as one vector, normalised as one of ``BLOCK_NORMALISATIONS``; ``power`` is for ``power-l2`` alone."""
    if how == "intra-l2":
        v = l2(v)
    flat = v.flatten(1)
    if how in ("sqrt-l2", "power-l2"):
        flat = _powered(flat, power if how == "power-l2" else 0.5)
    return flat if how == "none" else l2(flat)


def _powered(z: Float[Tensor, "b out"], power: float, eps: float = 1e-10) -> Float[Tensor, "b out"]:
    """``signed_power`` with fewer passes: these vectors are wide, and each pass costs as much as a small product."""
    scale = z.abs().add_(eps)
    scale = scale.rsqrt_() if power == 0.5 else scale.log().mul_(power - 1).exp_()  # pow takes twice as long
    return z * scale
