"""How many negatives stand above each positive of a query: thresholds, counts, and booleans that are added as words."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from secondsight.functional.ranking.similarity import Similarity

DENSE = 1 / 32  # share of a block that float32 cannot decide, from which a float64 GEMM is cheaper than single pairs
FEW = 1 / 16  # share of the groups of eight with a candidate, from which comparing everything is cheaper
_THRESHOLD_ROWS = 128  # queries whose positives are computed at a time: a block as wide as their classes, in float64


@dataclass(frozen=True)
class Classes:
    """Where the positives of each query are in a gallery in class order: start ≤ column < stop, but for itself."""

    start: Int[Tensor, " q"]
    stop: Int[Tensor, " q"]
    itself: Int[Tensor, " q"]  # the column of the query itself, −1 where it is not in the gallery

    @property
    def positives(self) -> Int[Tensor, " q"]:
        """R of each query."""
        return self.stop - self.start - (self.itself >= 0).long()


class Tally:
    """The positives of the queries ``rows``, best first, and the negatives counted between them.

    ``above`` is each query's best positive: all that is beyond it is counted in bulk. ``below`` is the worst that can
    still be among the R nearest: what is under it is ignored. Queries are padded to whole words, without positives.
    A query with R positives has R + 2 slots, ∞ ≥ t_1 ≥ … ≥ t_R ≥ −∞: a negative is counted in the first that is ≤ its
    similarity, so c_j is the sum of the counts up to slot j.
    """

    def __init__(self, similarity: Similarity, classes: Classes, rows: slice):
        self.similarity, self.start = similarity, rows.start
        padding = -(rows.stop - rows.start) % 8
        self.error = pad(similarity.error[rows], (0, padding))
        self.positives = pad(classes.positives[rows], (0, padding))
        self.first = (self.positives + 2).cumsum(0) - self.positives - 1  # the slot of t_1
        slot = self._positives()[2]
        self.thresholds = torch.full(
            (len(slot) + 2 * len(self.first),), -torch.inf, dtype=torch.float64, device=slot.device
        )
        self.thresholds[self.first - 1] = torch.inf
        self.thresholds[slot] = torch.cat(list(_thresholds(similarity, classes, rows)))
        self.keys = _keys(torch.repeat_interleave(self.positives + 2), self.thresholds)
        self.counts, self.adding = torch.zeros_like(self.thresholds, dtype=torch.int32), threading.Lock()
        self.above = torch.where(self.positives > 0, self.thresholds[self.first], torch.inf)
        self.prune()

    def _positives(self) -> tuple[Tensor, Tensor, Tensor]:
        """(query, j, slot) of every positive."""
        query = torch.repeat_interleave(self.positives)
        slot = torch.arange(len(query), device=query.device) + 2 * query + 1
        return query, slot - self.first.index_select(0, query) + 1, slot

    def ranks(self) -> tuple[Int[Tensor, " p"], Int[Tensor, " p"], Int[Tensor, " p"]]:
        """(query, j, rank_j) of every positive. A rank beyond R is a lower bound, but for the best positive's."""
        query, j, slot = self._positives()
        total = self.counts.cumsum(0)
        return query, j, j + total.index_select(0, slot) - total[self.first - 1].index_select(0, query)

    def prune(self) -> None:
        """Raise ``below``: a positive that already has R or more before it changes no figure, unless it is the best."""
        query, _, rank = self.ranks()
        alive = torch.zeros_like(self.positives).index_add_(
            0, query, (rank <= self.positives.index_select(0, query)).long()
        )
        worst = self.thresholds[self.first + alive.clamp_min(1) - 1]
        self.below = torch.where(self.positives > 0, worst, torch.inf)

    def result(self, queries: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """R, rank_1, P@R and MAP@R of the first ``queries`` queries; 0, 0, NaN and NaN for one without positives."""
        query, j, rank = self.ranks()
        found = (rank <= self.positives.index_select(0, query)).double()
        best = torch.zeros_like(self.positives).index_add_(0, query, torch.where(j == 1, rank, 0))
        hits = torch.zeros_like(self.error).index_add_(0, query, found)
        precisions = torch.zeros_like(self.error).index_add_(0, query, found * j / rank)
        fields = self.positives, best, hits / self.positives, precisions / self.positives
        return fields[0][:queries], fields[1][:queries], fields[2][:queries], fields[3][:queries]

    def add(self, s: Float[Tensor, "r c"], rows: slice, columns: slice, *, axis: int) -> bool:
        """Count a block of similarities whose ``axis`` runs over the queries, and the other over the gallery.

        False, with nothing counted, when float32 leaves too much of it open.
        """
        queries, others = (rows, columns) if axis == 0 else (columns, rows)
        mine = slice(queries.start - self.start, queries.stop - self.start)
        error = self.error[mine] if s.dtype == torch.float32 else torch.zeros_like(self.error[mine])
        flat, surely = self._candidates(s, mine, error, axis)
        i, j = flat // s.shape[1], flat % s.shape[1]
        query, other = (i, j) if axis == 0 else (j, i)
        value = s.view(-1).index_select(0, flat)
        slot = self._slots(query + mine.start, value)
        open_ = self._open(slot, value, error.index_select(0, query))
        if len(open_) > DENSE * s.numel():
            return False
        if len(open_):
            query, other = query[open_] + queries.start, other[open_] + others.start
            slot[open_] = self._slots(query - self.start, self.similarity.exact_pairs(query, other))
        with self.adding:
            self.counts.index_add_(0, slot, torch.ones_like(slot, dtype=torch.int32))
            if surely is not None:
                self.counts.index_add_(0, self.first[mine], surely)
        return True

    def _candidates(self, s: Tensor, mine: slice, error: Tensor, axis: int) -> tuple[Tensor, Tensor | None]:
        """Flat positions to look at; if they are many, what is above the best positive is only counted (the second)."""
        below = (self.below[mine] - error).to(s.dtype)
        few = _few_at_least(s, below, axis)
        if few is not None:
            return few, None
        above = _at_least(s, (self.above[mine] + error).to(s.dtype), axis)
        between = _at_least(s, below, axis).view(torch.int64) ^ above.view(torch.int64)
        return _true_positions(between), _count_true(above, axis).int()

    def _slots(self, query: Int[Tensor, " m"], s: Float[Tensor, " m"]) -> Int[Tensor, " m"]:
        """The first slot of each query whose threshold is ≤ s."""
        key = _keys(query, s)
        low = torch.searchsorted(self.keys, key)
        if s.dtype == torch.float32:
            return low  # t ≤ s exactly where t rounded up to float32 is ≤ s
        # Thresholds that are the same number as s in float32 may be above it in float64: bisect among them.
        unsure = (self.thresholds.index_select(0, low) > s).nonzero().view(-1)
        s, begin, end = s[unsure], low[unsure] + 1, torch.searchsorted(self.keys, key[unsure], right=True)
        while bool((begin < end).any()):
            middle = (begin + end) // 2
            higher = (self.thresholds[middle] > s) & (begin < end)
            begin, end = torch.where(higher, middle + 1, begin), torch.where(higher, end, middle)
        return low.index_copy_(0, unsure, begin)

    def _open(self, slot: Int[Tensor, " m"], s: Float[Tensor, " m"], error: Float[Tensor, " m"]) -> Int[Tensor, " o"]:
        """Which of the slots might be another if s is off by ``error``: none when it is 0."""
        over, under = self.thresholds.index_select(0, slot - 1), self.thresholds.index_select(0, slot)
        return ((over - s <= error) | (s - under < error)).nonzero().view(-1)


def _keys(query: Int[Tensor, " m"], s: Float[Tensor, " m"]) -> Int[Tensor, " m"]:
    """Integers in the order of (query, −s), where s is rounded up to float32: one sorted array for all queries."""
    single = s.float()
    if s.dtype != torch.float32:
        single = torch.where(single < s, torch.nextafter(single, single.new_tensor(torch.inf)), single)
    bits = (single + 0.0).view(torch.int32)  # −0.0 becomes 0.0
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # IEEE 754 numbers are ordered like sign-magnitude integers
    return (query << 32) + (~ordered).long() + 2**31


def _thresholds(similarity: Similarity, classes: Classes, rows: slice) -> Iterator[Tensor]:
    """Float64 similarities of the positives of each query, best first, less the tolerance: what ties is not below."""
    for begin in range(rows.start, rows.stop, _THRESHOLD_ROWS):
        part = slice(begin, min(begin + _THRESHOLD_ROWS, rows.stop))
        start, stop, itself = classes.start[part, None], classes.stop[part, None], classes.itself[part, None]
        columns = slice(int(start[0]), int(stop[-1]))
        column = torch.arange(columns.start, columns.stop, device=start.device)
        positive = (column >= start) & (column < stop) & (column != itself)
        values = similarity.exact_block(part, columns)[:, : len(column)] - similarity.tolerance[part, None]
        query = positive.nonzero()[:, 0]
        best_first, order = values[positive].sort(descending=True)
        yield best_first[query[order].argsort(stable=True)]


def _at_least(s: Float[Tensor, "r c"], threshold: Float[Tensor, " t"], axis: int) -> Bool[Tensor, "r c"]:
    return s >= (threshold[:, None] if axis == 0 else threshold)


def _few_at_least(s: Float[Tensor, "r c"], threshold: Float[Tensor, " t"], axis: int) -> Int[Tensor, " m"] | None:
    """Flat positions in s of all that is ≥ its threshold, or None if it is not little: the maximum of eight decides."""
    r, c = s.shape
    step = c // 8 if axis == 0 else r * c // 8
    highest = s.view(r, 8, c // 8).amax(1) if axis == 0 else s.view(8, r // 8, c).amax(0)
    group = _at_least(highest, threshold, axis).view(-1).nonzero()
    if len(group) > FEW * highest.numel():
        return None
    first = group if axis == 1 else group + group // step * (7 * step)
    flat = (first + torch.arange(0, 8 * step, step, device=s.device)).view(-1)
    limit = threshold.index_select(0, flat // c if axis == 0 else flat % c)
    return flat[s.view(-1).index_select(0, flat) >= limit]


def _true_positions(words: Int[Tensor, "r w"]) -> Int[Tensor, " m"]:
    """Flat positions of the true bytes; most words hold none, so they are searched eight bytes at a time."""
    words = words.view(-1)
    some = words.nonzero().view(-1)
    byte = words.index_select(0, some).view(torch.bool).nonzero().view(-1)
    return some.index_select(0, byte >> 3) * 8 + (byte & 7)


def _count_true(mask: Bool[Tensor, "r c"], axis: int) -> Int[Tensor, " t"]:
    """How many are true in each row (axis 0) or column (axis 1), adding eight bytes at once.

    A byte of a sum of words counts to 255, so at most that many words are summed before the bytes are taken apart.
    """
    counts = torch.zeros(mask.shape[axis], dtype=torch.int64, device=mask.device)
    for words in mask.view(torch.int64).split(255, dim=1 - axis):
        lanes = words.sum(1 - axis).view(torch.uint8)
        counts += lanes.view(-1, 8).sum(1) if axis == 0 else lanes
    return counts
