"""Second-order statistics of each codeword's own locations, at the cost of one Gram matrix over all of them.

A location belongs to one codeword. Sorted by codeword, each codeword's locations are projected by its own matrix, and
each (codeword, image) pair is a run of consecutive rows whose Gram matrix is wanted. The work is L·(d·p + p²) whatever
the number of codewords; no outer product of a single location is ever stored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


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
        # locations that were masked out are in no route: only then is there something to zero
        dx = g.new_empty(ctx.shape) if len(order) == ctx.shape[0] else g.new_zeros(ctx.shape)
        for w, rows, part in zip(weight, order.split(ctx.sizes), g.split(ctx.sizes), strict=True):
            dx.index_copy_(0, rows, part @ w.T)
        return dx, None, None, None, None


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
    """``half(Σ y yᵀ)`` over every run of consecutive rows; run (k, i) has ``runs[k, i]`` of them.

    Runs of like length are padded with zero rows to a common one and multiplied as a batch: at most half is padding.
    """
    return _RunGrams.apply(y, runs)  # type: ignore[return-value]


class _RunGrams(torch.autograd.Function):
    """By hand because each row belongs to one run: its gradient is written once, not added up."""

    @staticmethod
    def forward(ctx, y, runs):
        (n, b), p = runs.shape, y.shape[1]
        ctx.groups, ctx.shape = list(_like_runs(runs, len(y))), (b, n)
        ctx.save_for_backward(y)
        out = y.new_zeros(b * n, p * (p + 1) // 2)
        for places, rows in ctx.groups:
            group = _gathered(y, rows)
            out.index_copy_(0, places, half(group.transpose(1, 2) @ group))
        return out.view(b, n, -1)

    @staticmethod
    def backward(ctx, *grads):
        (y,) = ctx.saved_tensors
        g = grads[0].flatten(0, 1)
        dy = torch.cat([y, y[:1]])  # one row more, where the padding's gradients go
        for places, rows in ctx.groups:
            group = _gathered(y, rows)
            dy.index_copy_(0, rows.flatten(), (group @ _unfolded(g.index_select(0, places), y.shape[1])).flatten(0, 1))
        return dy[:-1], None


def _like_runs(runs: Tensor, m: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Runs of 1, of 2 to 3, of 4 to 7 … rows: their places (image, codeword), and their rows, with m for padding."""
    n, b = runs.shape
    lengths = runs.flatten()
    starts = lengths.cumsum(0) - lengths
    low, longest = 1, int(lengths.max()) if len(lengths) else 0
    while low <= longest:
        some = ((lengths >= low) & (lengths < 2 * low)).nonzero().flatten()
        step = torch.arange(min(2 * low - 1, longest), device=runs.device)
        yield some % b * n + some // b, torch.where(step < lengths[some, None], starts[some, None] + step, m)
        low *= 2


def _gathered(y: Tensor, rows: Tensor) -> Tensor:
    padded = torch.cat([y, y.new_zeros(1, y.shape[1])])
    return padded.index_select(0, rows.flatten()).view(*rows.shape, y.shape[1])


def _unfolded(g: Tensor, p: int) -> Tensor:
    """The gradient of YᵀY for Y's sake, D + Dᵀ, from that of its half: (s, p, p)."""
    rows, columns = torch.triu_indices(p, p, device=g.device)
    place = torch.empty(p, p, dtype=torch.long, device=g.device)
    place[rows, columns] = place[columns, rows] = torch.arange(len(rows), device=g.device)
    scale = g.new_full((p, p), math.sqrt(2)).fill_diagonal_(2)
    return g.index_select(1, place.flatten()).view(len(g), p, p) * scale


def half(t: Float[Tensor, "*s p p"]) -> Float[Tensor, "*s q"]:
    """The upper triangle of symmetric matrices, off-diagonal entries times √2: inner products are kept.

    >>> half(torch.tensor([[1.0, 2.0], [2.0, 3.0]]))
    tensor([1.0000, 2.8284, 3.0000])
    """
    p = t.shape[-1]
    rows, columns = torch.triu_indices(p, p, device=t.device)
    scale = t.new_full((len(rows),), math.sqrt(2)).masked_fill(rows == columns, 1)
    return t.flatten(-2).index_select(-1, rows * p + columns) * scale
