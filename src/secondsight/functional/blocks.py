"""Normalisations of a vector that is made of blocks, one or more for every codeword."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from secondsight.functional.normalise import l2

BLOCK_NORMALISATIONS = ("none", "l2", "sqrt-l2", "power-l2", "intra-l2")
"""none: the plain sum · l2: length 1 · sqrt-l2, power-l2: signed √ or power, and l2 · intra-l2: l2 by block, and l2."""

EPS = 1e-10
"""Where the power bends to keep a finite slope at zero."""


def normalise_blocks(v: Float[Tensor, "b blocks dims"], how: str, power: float = 0.5) -> Float[Tensor, "b out"]:
    """The blocks as one vector, normalised as one of ``BLOCK_NORMALISATIONS``; ``power`` is for ``power-l2`` alone."""
    if how == "intra-l2":
        v = l2(v)
    flat = v.flatten(1)
    if how in ("sqrt-l2", "power-l2"):
        flat = _SignedPower.apply(flat, power if how == "power-l2" else 0.5)
    assert isinstance(flat, Tensor)
    return flat if how == "none" else l2(flat)


class _SignedPower(torch.autograd.Function):
    """``signed_power`` with few passes both ways: these vectors are wide, and a pass is as dear as a product."""

    @staticmethod
    def forward(ctx, z, power):
        scale = z.abs().add_(EPS)
        if power == 0.5:
            scale.rsqrt_()
        else:
            scale.log_().mul_(power - 1).exp_()  # pow takes twice as long
        ctx.save_for_backward(z, scale)
        ctx.power = power
        return z * scale

    @staticmethod
    def backward(ctx, *grads):
        z, scale = ctx.saved_tensors
        # d z(|z| + ε)^(p−1) / dz = (|z| + ε)^(p−1) (p + (1 − p) ε / (|z| + ε))
        slope = z.abs().add_(EPS).reciprocal_().mul_((1 - ctx.power) * EPS).add_(ctx.power)
        return slope.mul_(scale).mul_(grads[0]), None
