"""Normalisations of a vector that is made of blocks, one or more for every codeword."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from secondsight.functional.normalise import l2, signed_power

BLOCK_NORMALISATIONS = ("none", "l2", "sqrt-l2", "power-l2", "intra-l2")
"""none: the plain sum · l2: length 1 · sqrt-l2, power-l2: signed √ or power, and l2 · intra-l2: l2 by block, and l2."""


def normalise_blocks(v: Float[Tensor, "b blocks dims"], how: str, power: float = 0.5) -> Float[Tensor, "b out"]:
    """The blocks as one vector, normalised as one of ``BLOCK_NORMALISATIONS``; ``power`` is for ``power-l2`` alone."""
    if how == "intra-l2":
        v = l2(v)
    flat = v.flatten(1)
    if how in ("sqrt-l2", "power-l2"):
        flat = signed_power(flat, power if how == "power-l2" else 0.5)
    return flat if how == "none" else l2(flat)
