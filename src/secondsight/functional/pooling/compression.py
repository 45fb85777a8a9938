"""Fewer numbers for nearly the same representation: shared projectors in closed form, int8 and bits."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int8, UInt8
from torch import Tensor

from secondsight.functional.pooling.eigenvectors import eigh


def share_projectors(
    w: Float[Tensor, "n d o"],
    r: int,
    usage: Float[Tensor, "n n"] | None = None,
    moment: Float[Tensor, "d d"] | None = None,
) -> tuple[Float[Tensor, "n r"], Float[Tensor, "r d o"], float]:
    """A and W̃ with Σ_r A_nr W̃_r ≈ W_n, the best that R shared projectors can do for N, in closed form.

    A factor of JCF is Σ_n h_n W_nᵀ x. With H = E[h hᵀ] (how much codewords are used, and used together) and C = E[x
    xᵀ], taking both to be independent, replacing W by W' costs

        E ‖ Σ_n h_n (W_n − W'_n)ᵀ x ‖²  =  ‖ H^½ (W − W') C^½ ‖²_F ,     W as N rows of d·o numbers,

    which is least (Eckart–Young) for H^½ W C^½ cut off after its R largest singular values. Their left singular vectors
    Q (N×R) come from the small matrix H^½ W (C ⊗ I) Wᵀ H^½, and give A = H^{−½} Q, W̃ = Qᵀ H^½ W.

    Returns:
        A, W̃, and the share of the cost's largest value, ‖H^½ W C^½‖², that is lost.
    """
    n = len(w)
    root, unroot = _roots(torch.eye(n) if usage is None else usage, w)
    rooted = torch.tensordot(root, w.double(), 1)  # (n, d, o)
    spread = rooted if moment is None else torch.einsum("de,neo->ndo", moment.double(), rooted)
    energy, vectors = eigh(rooted.flatten(1) @ spread.flatten(1).T)
    q = vectors[:, -r:].flip(1)
    lost = float(energy[: n - r].clamp_min(0).sum() / energy.clamp_min(0).sum().clamp_min(1e-30))
    return (unroot @ q).to(w), torch.tensordot(q.T, rooted, 1).to(w), lost


def _roots(usage: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """H^½ and H^{−½}; a codeword that is never used keeps a trace of weight, so that the inverse exists."""
    values, vectors = eigh(usage.to(like.device).double())
    values = values.clamp_min(1e-4 * values[-1].item())
    return (vectors * values.sqrt()) @ vectors.T, (vectors * values.rsqrt()) @ vectors.T


def to_int8(z: Float[Tensor, "m d"]) -> Int8[Tensor, "m d"]:
    """Every vector scaled to fill −127…127 and rounded. The scale is dropped: cosines do not need it."""
    peak = z.abs().amax(1, keepdim=True).clamp_min(torch.finfo(z.dtype).tiny)
    return (z / peak * 127).round().to(torch.int8)


def to_bits(z: Float[Tensor, "m d"]) -> UInt8[Tensor, "m bytes"]:
    """Signs, eight to a byte, the first in the highest bit; the last byte is filled with zeros."""
    bits = torch.nn.functional.pad((z > 0).to(torch.uint8), (0, -z.shape[1] % 8)).view(len(z), -1, 8)
    return (bits << torch.arange(7, -1, -1, dtype=torch.uint8, device=z.device)).sum(2).to(torch.uint8)


def from_bits(codes: UInt8[Tensor, "m bytes"], d: int) -> Float[Tensor, "m d"]:
    """±1 for every sign: ⟨a, b⟩ = d − 2 · (number of signs that differ)."""
    shifts = torch.arange(7, -1, -1, dtype=torch.uint8, device=codes.device)
    return ((codes[..., None] >> shifts) & 1).flatten(1)[:, :d].float() * 2 - 1
