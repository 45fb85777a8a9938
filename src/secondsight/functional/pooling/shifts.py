"""Cross-correlations of neighbouring locations, codeword by codeword.

    T_ij = Σ_n Σ_s y_s y_{s+n}ᵀ  over the locations s of codeword i whose neighbour s + n has codeword j

With z_s = e_{codeword(s)} ⊗ y_s, all T_ij at once are the blocks of Σ_s z_s (Σ_n z_{s+n})ᵀ: the shifted maps are added
before the product, so there is one product per image, however many shifts. Sorted by codeword, y_s stands for z_s.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from secondsight.functional.pooling.codeword_tensors import like_runs, route, split_like
from secondsight.functional.pooling.plain_gradients import plain_gradients

Shift = tuple[int, int]
"""(rows down, columns right)."""

SMALL = 8
"""Codewords up to which one product with all the zeros takes less time than leaving them out, without a gradient."""


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
    out = z.clone() if (0, 0) in shifts else torch.zeros_like(z)
    for row, column in _without_one(shifts, (0, 0)):
        r, c = sign * row, sign * column
        if abs(r) < h and abs(c) < w:
            here = out[:, max(0, -r) : h - max(0, r), max(0, -c) : w - max(0, c)]
            here += z[:, max(0, r) : h - max(0, -r), max(0, c) : w - max(0, -c)]
    return out


def _without_one(shifts: tuple[Shift, ...], this: Shift) -> tuple[Shift, ...]:
    """The shifts less one ``this``, if it is among them; a shift may be given twice."""
    where = shifts.index(this) if this in shifts else len(shifts)
    return shifts[:where] + shifts[where + 1 :]


class _ShiftSum(torch.autograd.Function):
    """Linear, with the opposite shifts as its transpose; autograd's own would keep a full map for every shift."""

    @staticmethod
    def forward(ctx, z, shifts):
        ctx.shifts = shifts
        return _added(z, shifts, 1)

    @staticmethod
    def backward(ctx, *grads):
        return shift_sum(grads[0], tuple((-row, -column) for row, column in ctx.shifts)), None


def _padded(z: Tensor, shifts: tuple[Shift, ...]) -> Tensor:
    """``_added`` with a margin of zeros instead of a question about the size, which would bind an exported program."""
    h, w = z.shape[1:3]
    down, right = (max(abs(shift[axis]) for shift in shifts) for axis in (0, 1))
    margin = torch.nn.functional.pad(z, (0, 0, right, right, down, down))
    windows = [margin[:, down + r : down + r + h, right + c : right + c + w] for r, c in shifts]
    return torch.stack(windows).sum(0)


def shift_sum(z: Float[Tensor, "b h w c"], shifts: tuple[Shift, ...]) -> Float[Tensor, "b h w c"]:
    """Σ_n z_{s+n}: at every location, the sum of its neighbours; what lies outside the grid counts as zero."""
    if torch.compiler.is_exporting():
        return _padded(z, shifts)
    return _ShiftSum.apply(z, shifts)  # type: ignore[return-value]


def spread(
    y: Float[Tensor, "b l p"], words: Int[Tensor, "b l"], n: int, mask: Bool[Tensor, "b l"] | None = None
) -> Float[Tensor, "b l {n}*p"]:
    """z = e_codeword ⊗ y: each location's features in its codeword's place, zeros elsewhere and where masked out."""
    p = y.shape[2]
    if mask is not None:
        y = y.masked_fill(~mask[..., None], 0)
    row = words.flatten() + n * torch.arange(words.numel(), device=y.device)
    return y.new_zeros(words.numel() * n, p).index_copy_(0, row, y.reshape(-1, p)).view(*words.shape, n * p)


def pair_tensors(
    z: Float[Tensor, "b l np"], grid: tuple[int, int], shifts: tuple[Shift, ...], n: int
) -> Float[Tensor, "b n n p p"]:
    """Every T_ij of every image."""
    neighbours = shift_sum(z.unflatten(1, grid), shifts).flatten(1, 2)
    p = z.shape[2] // n
    return (z.transpose(1, 2) @ neighbours).view(-1, n, p, n, p).permute(0, 1, 3, 2, 4)


def own_pair_tensors(
    y: Float[Tensor, "b l p"],
    words: Int[Tensor, "b l"],
    n: int,
    mask: Bool[Tensor, "b l"] | None,
    grid: tuple[int, int],
    shifts: tuple[Shift, ...],
) -> Float[Tensor, "b n n p p"]:
    """``pair_tensors(spread(y, …), …)`` for training and for large codebooks without the zeros of z.

    That takes L·p·N·p multiplications an image instead of L·N·p·N·p, three times with the gradient, and some sorting.
    """
    if mask is not None:
        y = y.masked_fill(~mask[..., None], 0)
    trained = y.requires_grad and torch.is_grad_enabled()
    if torch.compiler.is_exporting() or (n <= SMALL and not trained):
        return _plain_pairs(y, words, n, grid, shifts)
    return _OwnPairs.apply(y, words, n, grid, shifts)  # type: ignore[return-value]


def _plain_pairs(y: Tensor, words: Tensor, n: int, grid: tuple[int, int], shifts: tuple[Shift, ...]) -> Tensor:
    return pair_tensors(spread(y, words, n), grid, shifts, n)


class _OwnPairs(torch.autograd.Function):
    """T_i = Σ_s y_s (Σ_n z_{s+n})ᵀ over the run of codeword i's locations, runs of like length as one batch.

    By hand because z is N times as wide as what is in it, and as the part of its gradient that counts.
    """

    @staticmethod
    def forward(ctx, y, words, n, grid, shifts):
        (b, length, p), flat = y.shape, y.reshape(-1, y.shape[2])
        routes = route(words, n)
        ctx.runs, groups = like_runs(routes.runs, b * length)
        ctx.lengths = [group.shape for group in groups]
        slots, padded = _slots(routes.order, groups)
        ctx.pairs = [(slots[s] * n + words.flatten()[t], t) for s, t in _neighbours(routes.order, grid, shifts)]
        ctx.n, ctx.grid, ctx.shifts, ctx.slots = n, grid, shifts, slots
        left = y.new_zeros(padded, p).index_copy_(0, slots, flat)
        right = y.new_zeros(padded * n, p)
        for place, t in ctx.pairs:
            right.index_add_(0, place, flat.index_select(0, t))
        ctx.save_for_backward(y, words, left, right)
        products = y.new_empty(len(ctx.runs), p, n * p)
        for a, c, out in zip(
            _in_groups(left, ctx.lengths),
            _in_groups(right.view(padded, n * p), ctx.lengths),
            split_like(products, groups),
            strict=True,
        ):
            torch.bmm(a.transpose(1, 2), c, out=out)
        blocks = products.view(-1, p, n, p).transpose(1, 2).contiguous()
        return y.new_zeros(b * n, n, p, p).index_copy_(0, ctx.runs, blocks).view(b, n, n, p, p)

    @staticmethod
    def backward(ctx, *grads):
        y, words, left, right = ctx.saved_tensors
        n, p = ctx.n, y.shape[2]
        if torch.is_grad_enabled():  # create_graph=True: gradients that can be differentiated again, at the plain price
            return plain_gradients(_plain_pairs, (y, words, n, ctx.grid, ctx.shifts), grads)
        g = grads[0].flatten(0, 1).index_select(0, ctx.runs).transpose(1, 2).reshape(-1, p, n * p)
        d_left, d_right = torch.empty_like(left), torch.empty_like(right)
        for a, c, own, d_a, d_c in zip(
            _in_groups(left, ctx.lengths),
            _in_groups(right.view(-1, n * p), ctx.lengths),
            g.split([shape[0] for shape in ctx.lengths]),
            _in_groups(d_left, ctx.lengths),
            _in_groups(d_right.view(-1, n * p), ctx.lengths),
            strict=True,
        ):
            torch.bmm(c, own.transpose(1, 2), out=d_a)
            torch.bmm(a, own, out=d_c)
        dy = d_left.index_select(0, ctx.slots)
        for place, t in ctx.pairs:
            dy.index_add_(0, t, d_right.index_select(0, place))
        return dy.view_as(y), None, None, None, None


def _neighbours(order: Tensor, grid: tuple[int, int], shifts: tuple[Shift, ...]) -> Iterator[tuple[Tensor, Tensor]]:
    """For every shift n, the locations s that have a neighbour s + n within the grid, and these neighbours."""
    h, w = grid
    place = order % max(1, h * w)
    row, column = place // max(1, w), place % max(1, w)
    for r, c in shifts:
        if abs(r) < h and abs(c) < w:
            s = order[(row >= -r) & (row < h - r) & (column >= -c) & (column < w - c)]
            yield s, s + (r * w + c)


def _slots(order: Tensor, groups: list[Tensor]) -> tuple[Tensor, int]:
    """Where each location stands when the groups' padded runs follow one another, and how many places there are."""
    rows = torch.cat([group.flatten() for group in groups]) if groups else order
    of_row = order.new_empty(len(order) + 1)  # the last is for padding
    of_row[rows] = torch.arange(len(rows), device=order.device)
    slots = torch.empty_like(order)
    slots[order] = of_row[:-1]
    return slots, len(rows)


def _in_groups(t: Tensor, lengths: list[torch.Size]) -> list[Tensor]:
    """Rows as the padded runs of each group: (runs, length, …)."""
    parts = t.split([shape.numel() for shape in lengths]) if lengths else ()
    return [part.view(*shape, t.shape[1]) for part, shape in zip(parts, lengths, strict=True)]


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
