"""Cross-correlations of neighbouring locations, codeword by codeword.

    T_ij = Σ_n Σ_s y_s y_{s+n}ᵀ  over the locations s of codeword i whose neighbour s + n has codeword j

With z_s = e_{codeword(s)} ⊗ y_s, all T_ij at once are the blocks of Σ_s z_s (Σ_n z_{s+n})ᵀ: the shifted maps are added
before the product, so there is one product per image, however many shifts.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

Shift = tuple[int, int]
"""(rows down, columns right)."""


def half_plane(radius: int) -> tuple[Shift, ...]:
    """(0, 0) and every shift of at most ``radius`` rows and columns, one of each pair ±n: T_ij of −n is (T_ji of n)ᵀ.

    >>> half_plane(1)
    ((0, 0), (0, 1), (1, -1), (1, 0), (1, 1))
    """
    side = range(-radius, radius + 1)
    return tuple((row, column) for row in range(radius + 1) for column in side if row or column >= 0)


def _added(z: Tensor, shifts: tuple[Shift, ...], sign: int) -> Tensor:
    """Σ_n z[s + sign·n]; what lies outside the grid counts as zero."""
    h, w = z.shape[1:3]
    out = torch.zeros_like(z)
    for row, column in shifts:
        r, c = sign * row, sign * column
        if abs(r) < h and abs(c) < w:
            here = out[:, max(0, -r) : h - max(0, r), max(0, -c) : w - max(0, c)]
            here += z[:, max(0, r) : h - max(0, -r), max(0, c) : w - max(0, -c)]
    return out


class _ShiftSum(torch.autograd.Function):
    """Linear, with the opposite shifts as its transpose; autograd's own would keep a full map for every shift."""

    @staticmethod
    def forward(ctx, z, shifts):
        ctx.shifts = shifts
        return _added(z, shifts, 1)

    @staticmethod
    def backward(ctx, *grads):
        return shift_sum(grads[0], tuple((-row, -column) for row, column in ctx.shifts)), None


def shift_sum(z: Float[Tensor, "b h w c"], shifts: tuple[Shift, ...]) -> Float[Tensor, "b h w c"]:
    """Σ_n z_{s+n}: at every location, the sum of its neighbours; what lies outside the grid counts as zero."""
    return _ShiftSum.apply(z, shifts)  # type: ignore[return-value]


def spread(
    y: Float[Tensor, "b l p"], words: Int[Tensor, "b l"], n: int, mask: Bool[Tensor, "b l"] | None = None
) -> Float[Tensor, "b l {n}*p"]:
    """z = e_codeword ⊗ y: each location's features in its codeword's place, zeros elsewhere and where masked out."""
    p = y.shape[2]
    if mask is not None:
        y = y.masked_fill(~mask[..., None], 0)
    row = words.flatten() + n * torch.arange(words.numel(), device=y.device)
    return y.new_zeros(words.numel() * n, p).index_copy(0, row, y.reshape(-1, p)).view(*words.shape, n * p)


def pair_tensors(
    z: Float[Tensor, "b l np"], grid: tuple[int, int], shifts: tuple[Shift, ...], n: int
) -> Float[Tensor, "b n n p p"]:
    """Every T_ij of every image."""
    neighbours = shift_sum(z.unflatten(1, grid), shifts).flatten(1, 2)
    p = z.shape[2] // n
    return (z.transpose(1, 2) @ neighbours).view(-1, n, p, n, p).permute(0, 1, 3, 2, 4)


def local_pair_tensors(
    z: Float[Tensor, "b l np"], grid: tuple[int, int], shifts: tuple[Shift, ...], n: int
) -> Float[Tensor, "b l n n p p"]:
    """What each location adds to ``pair_tensors``: half of every pair that it is in."""
    p = z.shape[2] // n
    maps = z.unflatten(1, grid)
    opposite = tuple((-row, -column) for row, column in shifts)
    after, before = (shift_sum(maps, s).flatten(1, 2) for s in (shifts, opposite))
    pairs = z[..., :, None] * after[..., None, :] + before[..., :, None] * z[..., None, :]
    return 0.5 * pairs.view(*z.shape[:2], n, p, n, p).transpose(3, 4)
