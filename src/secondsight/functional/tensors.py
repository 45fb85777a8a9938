"""Second-order statistics of each codeword's own locations, at the cost of one Gram matrix over all of them.

A location belongs to one codeword. Sorted by codeword, each codeword's locations are projected by its own matrix, and
each (codeword, image) pair is a run of consecutive rows whose Gram matrix is wanted. The work is L·(d·p + p²) whatever
the number of codewords; no outer product of a single location is ever stored.
"""

from __future__ import annotations

import math
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
        dx = g.new_zeros(ctx.shape)
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
    (n, b), (m, p) = runs.shape, y.shape
    lengths = runs.flatten()
    starts = lengths.cumsum(0) - lengths
    padded = torch.cat([y, y.new_zeros(1, p)])
    halves, places = [y.new_zeros(0, p * (p + 1) // 2)], [lengths[:0]]
    low, longest = 1, int(lengths.max()) if len(lengths) else 0
    while low <= longest:
        some = ((lengths >= low) & (lengths < 2 * low)).nonzero().flatten()
        step = torch.arange(min(2 * low - 1, longest), device=y.device)
        rows = torch.where(step < lengths[some, None], starts[some, None] + step, m)
        group = padded.index_select(0, rows.flatten()).view(*rows.shape, p)
        halves.append(half(group.transpose(1, 2) @ group))
        places.append(some % b * n + some // b)  # from (codeword, image) to (image, codeword)
        low *= 2
    out = y.new_zeros(b * n, halves[0].shape[1])
    return out.index_copy(0, torch.cat(places), torch.cat(halves)).view(b, n, -1)


def half(t: Float[Tensor, "*s p p"]) -> Float[Tensor, "*s q"]:
    """The upper triangle of symmetric matrices, off-diagonal entries times √2: inner products are kept.

    >>> half(torch.tensor([[1.0, 2.0], [2.0, 3.0]]))
    tensor([1.0000, 2.8284, 3.0000])
    """
    p = t.shape[-1]
    rows, columns = torch.triu_indices(p, p, device=t.device)
    scale = t.new_full((len(rows),), math.sqrt(2)).masked_fill(rows == columns, 1)
    return t.flatten(-2).index_select(-1, rows * p + columns) * scale
