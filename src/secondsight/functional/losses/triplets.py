"""Triplet losses over every triplet of a batch in O(B² log B) time and one block of rows of memory.

An anchor's negatives are sorted once. A positive then finds its active negatives by binary search and their sum in a
prefix sum, and a negative finds by binary search how many positives it is active for: no triplet is ever listed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from secondsight.functional.losses.pairs import positives
from secondsight.functional.losses.row_blocks import RowTerms, row_loss, wide
from secondsight.functional.losses.row_order import ascending, how_many_below, largest_below


class Hinges(NamedTuple):
    """Σ_p Σ_n relu(x_n − t_p) over the rows."""

    total: Tensor  # ()
    active: Tensor  # (), how many hinges are above 0
    d_x: Tensor  # (rows, b)
    d_t: Tensor  # (rows, k)


def all_triplets(u: Float[Tensor, "b d"], labels: Int[Tensor, " b"], *, margin: float) -> Float[Tensor, ""]:
    """mean of relu(s_an − s_ap + margin) over the triplets (a, p, n) where it is above 0."""
    return _hinged(u, labels, margin, semihard=False)


def semihard_triplets(u: Float[Tensor, "b d"], labels: Int[Tensor, " b"], *, margin: float) -> Float[Tensor, ""]:
    """The same over the semi-hard triplets only, those with s_ap − margin < s_an < s_ap.

    The hinges have the threshold s_ap − margin as before, but only negatives below s_ap count.
    """
    return _hinged(u, labels, margin, semihard=True)


def _hinged(u: Tensor, labels: Tensor, margin: float, *, semihard: bool) -> Tensor:
    index, real = positives(labels)

    def rows(s: Tensor, here: slice) -> RowTerms:
        negative = labels[here, None] != labels[None, :]
        s_ap = s.gather(1, index[here])
        h = hinges(s, s_ap - margin, negative=negative, real=real[here], below=s_ap if semihard else None)
        return RowTerms(h.total, h.active, h.d_x.scatter_add(1, index[here], h.d_t))

    return row_loss(u, rows)


def hardest_semihard_triplets(
    u: Float[Tensor, "b d"], labels: Int[Tensor, " b"], *, margin: float, fallback: bool = True
) -> Float[Tensor, ""]:
    """The same over one negative for each positive pair: the one that ``hardest_semihard`` picks."""
    index, real = positives(labels)

    def rows(s: Tensor, here: slice) -> RowTerms:
        p = index[here]
        n, found = hardest_semihard(s, labels, here, s.gather(1, p), fallback=fallback)
        hinge = s.gather(1, n) - s.gather(1, p) + margin
        active = found & real[here] & (hinge > 0)
        one = active.to(s.dtype)
        grad = torch.zeros_like(s).scatter_add_(1, n, one).scatter_add_(1, p, -one)
        return RowTerms((hinge * one).sum(dtype=wide(s)), active.sum(), grad)

    return row_loss(u, rows)


def hierarchical_triplets(
    u: Float[Tensor, "b d"], labels: Int[Tensor, " b"], margins: Callable[[slice], Tensor]
) -> Float[Tensor, ""]:
    """½ mean of relu(|u_a − u_p|² − |u_a − u_n|² + α_an) over all triplets; ``margins(rows)`` gives α, (r, b).

    On unit vectors |u_a − u_n|² = 2 − 2s_an, so a hinge is relu((2s_an + α_an) − 2s_ap).
    """
    index, real = positives(labels)

    def rows(s: Tensor, here: slice) -> RowTerms:
        negative = labels[here, None] != labels[None, :]
        t = 2 * s.gather(1, index[here])
        h = hinges(2 * s + margins(here), t, negative=negative, real=real[here])
        triplets = (negative.sum(1) * real[here].sum(1)).sum()
        return RowTerms(h.total / 2, triplets, h.d_x.scatter_add(1, index[here], h.d_t))  # ½ of the loss · 2 of d(2s)

    return row_loss(u, rows)


def hinges(
    x: Float[Tensor, "r b"],
    t: Float[Tensor, "r k"],
    *,
    negative: Bool[Tensor, "r b"],
    real: Bool[Tensor, "r k"],
    below: Float[Tensor, "r k"] | None = None,
) -> Hinges:
    """Σ relu(x_n − t_p) over each row's negatives n and real positives p; with ``below``, only where x_n < below_p."""
    in_order = ascending(torch.where(negative, x, torch.inf))  # what is no negative comes last
    sums = in_order.masked_fill(in_order.isinf(), 0).cumsum(1, dtype=wide(x))
    sums = torch.nn.functional.pad(sums, (1, 0))  # sums[i] = the sum of the i smallest
    first = torch.searchsorted(in_order, t.contiguous(), right=True)  # x ≤ t: inactive
    last = negative.sum(1, keepdim=True) if below is None else torch.searchsorted(in_order, below.contiguous())
    count = torch.where(real, last - first, 0)
    total = torch.where(real, sums.gather(1, last.expand_as(first)) - sums.gather(1, first) - count * t.to(wide(x)), 0)
    active = how_many_below(torch.where(real, t, torch.inf), x, strictly=True)
    if below is not None:
        active -= how_many_below(torch.where(real, below, torch.inf), x, strictly=False)
    return Hinges(total.sum(), count.sum(), (active * negative).to(x.dtype), -count.to(x.dtype))


def hardest_semihard(
    s: Float[Tensor, "r b"], labels: Int[Tensor, " b"], here: slice, s_ap: Float[Tensor, "r k"], *, fallback: bool
) -> tuple[Int[Tensor, "r k"], Bool[Tensor, "r k"]]:
    """For each positive pair of the anchors ``here`` its most similar negative less similar than the positive.

    Where every negative is at least as similar as the positive there is none; ``fallback`` then takes the least similar
    negative, so that such a pair still learns (as TensorFlow's ``triplet_semihard_loss`` does). Returns (index, found).
    """
    negative = labels[here, None] != labels[None, :]
    of_negatives = torch.where(negative, s, torch.inf)
    n, found = largest_below(of_negatives, s_ap)
    if fallback and not found.all():
        n = torch.where(found, n, of_negatives.argmin(1, keepdim=True))
        found = negative.any(1, keepdim=True).expand_as(n)
    return n, found


def mine_semihard(
    u: Float[Tensor, "b d"], labels: Int[Tensor, " b"], *, margin: float | None = None, fallback: bool = False
) -> tuple[Int[Tensor, " t"], Int[Tensor, " t"], Int[Tensor, " t"]]:
    """(anchor, positive, negative): for each positive pair its hardest semi-hard negative, in O(B² log B).

    With ``margin`` only triplets that violate it, s_an > s_ap − margin, are kept.
    """
    index, real = positives(labels)
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    block = max(1, 2**22 // max(len(u), 1))
    with torch.no_grad():
        for start in range(0, len(u), block):
            here = slice(start, min(start + block, len(u)))
            s = u[here] @ u.T
            s_ap = s.gather(1, index[here])
            n, keep = hardest_semihard(s, labels, here, s_ap, fallback=fallback)
            keep = keep & real[here]
            if margin is not None:
                keep &= s.gather(1, n) > s_ap - margin
            row, column = keep.nonzero(as_tuple=True)
            found.append((row + start, index[here][row, column], n[row, column]))
    a, p, n = (torch.cat(part) for part in zip(*found, strict=True)) if found else (labels.new_empty(0),) * 3
    return a, p, n
