"""Normalisations of a vector that is made of blocks, one or more for every codeword."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from secondsight.functional.pooling.image_slices import image_slices
from secondsight.functional.pooling.normalise import l2, signed_power
from secondsight.functional.pooling.plain_gradients import plain_gradients

BLOCK_NORMALISATIONS = ("none", "l2", "sqrt-l2", "power-l2", "intra-l2")
"""none: the plain sum · l2: length 1 · sqrt-l2, power-l2: signed √ or power, and l2 · intra-l2: l2 by block, and l2."""

EPS = 1e-10
"""Where the power bends to keep a finite slope at zero."""

SHORTEST = 1e-12
"""A vector shorter than this is divided by it instead of by its length; zero stays zero."""

NUMBERS = 2**17
"""Numbers of v that go through all the steps of a power normalisation together: 512 kB in float32."""


def normalise_blocks(v: Float[Tensor, "b blocks dims"], how: str, power: float = 0.5) -> Float[Tensor, "b out"]:
    """The blocks as one vector, normalised as one of ``BLOCK_NORMALISATIONS``; ``power`` is for ``power-l2`` alone."""
    if how in ("sqrt-l2", "power-l2"):
        return power_l2(v.flatten(1), power if how == "power-l2" else 0.5)
    if how == "intra-l2":
        v = l2(v)
    return v.flatten(1) if how == "none" else l2(v.flatten(1))


def power_l2(z: Float[Tensor, "b out"], power: float) -> Float[Tensor, "b out"]:
    """y / ‖y‖ with y = z·(|z| + ε)^(power − 1): ``signed_power``, then ``l2``."""
    if torch.compiler.is_exporting():
        return _plain(z, power)
    return _PowerL2.apply(z, power)  # type: ignore[return-value]


def _plain(z: Tensor, power: float) -> Tensor:
    return l2(signed_power(z, power, eps=EPS), eps=SHORTEST)


class _PowerL2(torch.autograd.Function):
    """Both steps with few passes: these vectors are wide, and a pass over memory is as dear as a product.

    Forward goes a few vectors at a time, so that all but the first reading and the last writing is in the cache, and
    leaves the slope of the power behind. The gradient is then two passes: (g − u·(gᵀu)) ∘ slope / ‖y‖ with u = y / ‖y‖.
    """

    @staticmethod
    def forward(ctx, z, power):
        out, slope = torch.empty_like(z), torch.empty_like(z) if ctx.needs_input_grad[0] else None
        length = z.new_empty(len(z), 1)
        for some in image_slices(z, NUMBERS):
            base = z[some].abs().add_(EPS)
            scale = base.rsqrt() if power == 0.5 else base.log().mul_(power - 1).exp_()  # pow takes twice as long
            y = torch.mul(z[some], scale, out=out[some])
            torch.linalg.vector_norm(y, dim=1, keepdim=True, out=length[some])
            inverse = length[some].clamp_min(SHORTEST).reciprocal_()
            y.mul_(inverse)
            if slope is not None:
                # d z(|z| + ε)^(p−1) / dz = (|z| + ε)^(p−1) (p + (1 − p) ε / (|z| + ε))
                scale.mul_(inverse)
                torch.mul(scale, power, out=slope[some]).addcdiv_(scale, base, value=(1 - power) * EPS)
        ctx.save_for_backward(z, out, slope, length)
        ctx.power = power
        return out

    @staticmethod
    def backward(ctx, *grads):
        (g,) = grads
        z, u, slope, length = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: gradients that can be differentiated again, at the plain price
            return plain_gradients(_plain, (z, ctx.power), (g,))
        along = torch.bmm(g[:, None], u[..., None])[:, 0].masked_fill_(length < SHORTEST, 0)
        return torch.addcmul(g, u, along, value=-1).mul_(slope), None


def across_codewords(v: Float[Tensor, "b pairs dims"], power: float) -> Float[Tensor, "b out"]:
    """Blocks T_ij of all pairs of n codewords, normalised as in STA's own code: the signed power; every entry over its
    length across the n blocks T_ii, or across the n(n − 1) blocks with i ≠ j; then l2 of it all.
    """
    y = signed_power(v, power, eps=EPS)
    n = math.isqrt(v.shape[1])
    same = torch.eye(n, dtype=torch.bool, device=v.device).view(-1, 1)
    squares = y.square()
    energy = torch.where(
        same, squares.where(same, 0).sum(1, keepdim=True), squares.where(~same, 0).sum(1, keepdim=True)
    )
    return l2((y / energy.clamp_min(SHORTEST**2).sqrt()).flatten(1), eps=SHORTEST)
