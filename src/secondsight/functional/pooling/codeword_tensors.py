"""Second-order statistics of each codeword's own locations, at the cost of one Gram matrix over all of them.

A location belongs to one codeword. Sorted by codeword, each codeword's locations are projected by its own matrix, and
each (codeword, image) pair is a run of consecutive rows whose Gram matrix is wanted. The work is L·(d·p + p²) whatever
the number of codewords; no outer product of a single location is ever stored.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from secondsight.functional.pooling.triangle import upper_triangle


class Routes(NamedTuple):
    """Locations sorted by codeword, then image; those masked out are left away."""

    order: Tensor  # (m,)  rows of x.flatten(0, 1)
    sizes: list[int]  # locations of each codeword
    runs: Tensor  # (n, b)  locations of each codeword in each image


def route(words: Int[Tensor, "b l"], n: int, mask: Bool[Tensor, "b l"] | None = None) -> Routes:
    """Sort locations by codeword.

    >>> route(torch.tensor([[1, 0, 1]]), 2)
    Routes(order=tensor([1, 0, 2]), sizes=[1, 2], runs=tensor([[1],
            [2]]))
    """
    b = len(words)
    key = words * b + torch.arange(b, device=words.device)[:, None]
    flat = key.flatten() if mask is None else key.masked_fill(~mask, n * b).flatten()
    runs = torch.bincount(flat, minlength=n * b + 1)[: n * b].view(n, b)
    sizes = runs.sum(1).tolist()
    return Routes(flat.argsort(stable=True)[: sum(sizes)], sizes, runs)


class _RoutedLinear(torch.autograd.Function):
    """Rows of each codeword times its own matrix. By hand because the backward of N gathers would form dx N times."""

    @staticmethod
    def forward(ctx, x, order, sizes, weight, bias):
        ctx.save_for_backward(order, weight)
        ctx.sizes, ctx.shape = sizes, x.shape
        y = x.new_empty(len(order), weight.shape[2])
        for w, b, rows, out in zip(weight, bias, order.split(sizes), y.split(sizes), strict=True):
            torch.addmm(b, x.index_select(0, rows), w, out=out)
        return y

    @staticmethod
    def backward(ctx, *grads):
        (g,) = grads
        order, weight = ctx.saved_tensors
        dx = g.new_empty(len(order), ctx.shape[1])
        for w, part, out in zip(weight, g.split(ctx.sizes), dx.split(ctx.sizes), strict=True):
            out.copy_(part @ w.T) if torch.is_grad_enabled() else torch.mm(part, w.T, out=out)
        # to gather is faster than to copy each product's rows to their places
        whole = len(order) == ctx.shape[0]
        dx = unrouted(dx, order) if whole else g.new_zeros(ctx.shape).index_copy_(0, order, dx)
        return dx, None, None, None, None


def unrouted(t: Float[Tensor, "m p"], order: Int[Tensor, " m"]) -> Float[Tensor, "m p"]:
    """Rows in a route's order, back in that of the locations, none of which is masked out."""
    back = torch.empty_like(order)
    back[order] = torch.arange(len(back), device=back.device)
    return t.index_select(0, back)


def routed_linear(
    x: Float[Tensor, "b l d"], routes: Routes, weight: Float[Tensor, "n d p"], bias: Float[Tensor, "n p"]
) -> Float[Tensor, "m p"]:
    """x W_k + b_k with the W of each location's own codeword, in ``routes``' order; W and b get no gradient."""
    return _RoutedLinear.apply(x.flatten(0, 1), routes.order, routes.sizes, weight, bias)  # type: ignore[return-value]


def own_linear(
    x: Float[Tensor, "b l d"], words: Int[Tensor, "b l"], weight: Float[Tensor, "n d p"], bias: Float[Tensor, "n p"]
) -> Float[Tensor, "b l p"]:
    """``routed_linear`` without routing, for exporters, whose shapes may not depend on data: N times the work."""
    n, d, p = weight.shape
    every = (x @ weight.transpose(0, 1).reshape(d, n * p)).unflatten(-1, (n, p)) + bias
    return every.gather(2, words[..., None, None].expand(-1, -1, 1, p))[:, :, 0]


def run_grams(y: Float[Tensor, "m p"], runs: Int[Tensor, "n b"]) -> Float[Tensor, "b n q"]:
    """The isometric upper triangle of Σ y yᵀ over every run of consecutive rows; run (k, i) has ``runs[k, i]`` of them.

    Runs of like length are padded with zero rows to a common one and multiplied as a batch: at most half is padding.
    """
    return _RunGrams.apply(y, runs)  # type: ignore[return-value]


class _RunGrams(torch.autograd.Function):
    """By hand because each row belongs to one run: its gradient is written once, not added up."""

    @staticmethod
    def forward(ctx, y, runs):
        (n, b), (m, p) = runs.shape, y.shape
        ctx.save_for_backward(y)
        ctx.places, ctx.groups = like_runs(runs, m)
        padded = torch.cat([y, y.new_zeros(1, p)])
        grams = y.new_empty(len(ctx.places), p, p)
        for rows, out in zip(ctx.groups, split_like(grams, ctx.groups), strict=True):
            group = _gathered(padded, rows)
            torch.bmm(group.transpose(1, 2), group, out=out)
        return (
            y.new_zeros(b * n, p * (p + 1) // 2)
            .index_copy_(0, ctx.places, upper_triangle(grams, isometric=True))
            .view(b, n, -1)
        )

    @staticmethod
    def backward(ctx, *grads):
        (y,) = ctx.saved_tensors
        m, p = y.shape
        d = _unfolded(grads[0].flatten(0, 1).index_select(0, ctx.places), p)
        dy = y.new_empty(m + 1, p)  # one row more, where the padding's gradients go
        for rows, own in zip(ctx.groups, split_like(d, ctx.groups), strict=True):
            group = _gathered(y, rows.clamp_max(m - 1))  # what stands in for the padding does not matter here
            dy.index_copy_(0, rows.flatten(), (group @ own).flatten(0, 1))
        return dy[:-1], None


def like_runs(runs: Int[Tensor, "n b"], m: int) -> tuple[Int[Tensor, " r"], list[Int[Tensor, "some length"]]]:
    """The places (image, codeword) of runs that are not empty, short ones first, and the rows of these in groups.

    A group has runs of 1, of 2 to 3, of 4 to 7 … rows, padded to the longest it may have with the row m.
    """
    n, b = runs.shape
    lengths, order = runs.flatten().sort()
    sizes, starts = lengths.tolist(), (runs.flatten().cumsum(0) - runs.flatten())[order]
    first = begin = bisect_left(sizes, 1)
    low, groups = 1, []
    while begin < len(sizes):
        end = bisect_left(sizes, 2 * low)
        step = torch.arange(min(2 * low - 1, sizes[-1]), device=runs.device)
        groups.append(torch.where(step < lengths[begin:end, None], starts[begin:end, None] + step, m))
        begin, low = end, 2 * low
    places = order[first:]
    return places % b * n + places // b, groups


def split_like(t: Tensor, groups: list[Tensor]) -> tuple[Tensor, ...]:
    """What belongs to the runs of each group."""
    return t.split([len(group) for group in groups]) if groups else ()


def _gathered(y: Tensor, rows: Tensor) -> Tensor:
    return y.index_select(0, rows.flatten()).view(*rows.shape, y.shape[1])


def _unfolded(g: Tensor, p: int) -> Tensor:
    """The gradient of YᵀY for Y's sake, D + Dᵀ, from that of its upper triangle: (s, p, p)."""
    rows, columns = torch.triu_indices(p, p, device=g.device)
    place = torch.empty(p, p, dtype=torch.long, device=g.device)
    place[rows, columns] = place[columns, rows] = torch.arange(len(rows), device=g.device)
    scale = g.new_full((len(rows),), math.sqrt(2)).masked_fill_(rows == columns, 2)
    return (g * scale).index_select(1, place.flatten()).view(len(g), p, p)
