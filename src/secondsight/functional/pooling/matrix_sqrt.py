"""Square roots and powers of covariance matrices, finite in value and gradient however ill-conditioned these are.

* By Newton–Schulz iteration: Li, Xie, Wang, Gao, "Towards Faster Training of Global Covariance Pooling Networks by
  Iterative Matrix Square Root Normalization" (iSQRT-COV), CVPR 2018. Matrix products only.
* By eigendecomposition: Li, Xie, Wang, Zuo, "Is Second-order Information Helpful for Large-scale Visual Recognition?"
  (MPN-COV), ICCV 2017. Any power.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from secondsight.functional.pooling.eigenvectors import eigh

EXPORTED_STEPS = 18
"""Newton–Schulz steps that stand for an eigendecomposition: as close as single precision gets. Many more would let
rounding grow in the directions where the covariance is zero.
"""


def newton_schulz_sqrt(c: Float[Tensor, "b d d"], *, steps: int = 5, eps: float = 1e-10) -> Float[Tensor, "b d d"]:
    """C^½ ≈ √tr(C) · Y_N, with A = C / tr(C), Y_0 = A, Z_0 = I, and (equation 2 of iSQRT-COV)

        T = ½ (3I − Z Y),    Y ← Y T,    Z ← T Z .

    The trace divides so that the iteration converges, and √trace brings the scale back. ``eps`` is added to the trace:
    a covariance of zero gives zero, with a gradient of at most about 1.5^N / √eps. A small eigenvalue λ needs about
    log(tr/λ) / log(2.25) steps; until then its root comes out too small, and never negative or infinite.
    """
    d = c.shape[-1]
    trace = c.diagonal(dim1=-2, dim2=-1).sum(-1)[:, None, None] + eps
    y = c / trace
    three_halves = 1.5 * torch.eye(d, dtype=c.dtype, device=c.device)
    z = three_halves - 0.5 * y  # the first step's T: Z_0 = I costs no product
    y = y @ z
    for step in range(1, steps):
        t = torch.baddbmm(three_halves.expand_as(y), z, y, alpha=-0.5)
        y = y @ t
        if step < steps - 1:  # the last Z is never used
            z = t @ z
    return y * trace.sqrt()


def matrix_power(c: Float[Tensor, "b d d"], power: float = 0.5) -> Float[Tensor, "b d d"]:
    """C^α = U Λ^α Uᵀ of symmetric positive semi-definite matrices.

    Eigenvalues below d·eps of the largest are zero but for rounding, and count as zero. The gradient has no differences
    of eigenvalues in a denominator: equal ones are harmless.
    """
    if torch.compiler.is_exporting() and power == 0.5:  # exported programs have no eigendecomposition worth its time
        return newton_schulz_sqrt(c, steps=EXPORTED_STEPS)
    out = _MatrixPower.apply(c, power)
    assert isinstance(out, Tensor)
    return out


class _MatrixPower(torch.autograd.Function):
    @staticmethod
    def forward(ctx, c: Tensor, power: float) -> Tensor:
        values, u = eigh(c)
        floor = c.shape[-1] * torch.finfo(c.dtype).eps * values[:, -1:].clamp_min(0)
        values = values.where(values > floor, 0)
        ctx.save_for_backward(values, u, floor)
        ctx.power = power
        return (u * values.pow(power)[:, None]) @ u.mT

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Ḡ ↦ U (K ∘ (Uᵀ Ḡ U)) Uᵀ with Loewner's matrix of divided differences K_ij = (λ_i^α − λ_j^α) / (λ_i − λ_j)."""
        values, u, floor = ctx.saved_tensors
        # Zero has an infinite slope when α < 1; the smallest eigenvalue that is told from zero bounds it.
        least = floor.clamp_min(torch.finfo(values.dtype).tiny ** 0.5)
        loewner = divided_difference(values.maximum(least), ctx.power)
        return u @ (loewner * (u.mT @ gradients[0] @ u)) @ u.mT, None


def divided_difference(values: Float[Tensor, "b d"], power: float) -> Float[Tensor, "b d d"]:
    """(a^α − b^α) / (a − b) for all pairs of positive values, without cancellation when a ≈ b.

    With r = |log(a/b)| / 2 it is (ab)^{(α−1)/2} · sinh(α·r) / sinh(r), and the quotient tends to α as r → 0.
    """
    if power == 0.5:
        root = values.sqrt()
        return (root[:, :, None] + root[:, None, :]).reciprocal()
    logs, scale = values.log(), values.pow((power - 1) / 2)
    r = (logs[:, :, None] - logs[:, None, :]).abs() / 2
    same = r == 0
    r = r.masked_fill(same, 1.0)
    # e^r taken out of both sinh: eigenvalues may be as far apart as the type allows.
    quotient = torch.expm1(-2 * power * r) / torch.expm1(-2 * r) * ((power - 1) * r).exp()
    return scale[:, :, None] * scale[:, None, :] * quotient.masked_fill(same, power)
