"""Ranks of the positives among all gallery items, from one blocked pass over the similarity matrix.

For a query q with positives p_1 … p_R in descending order of similarity, and c_j the number of negatives that are at
least as similar as p_j (ties count against the query),

    rank_j = j + c_j,   Recall@K = [rank_1 ≤ K],   MRR = 1 / rank_1,
    P@R = Σ_j [rank_j ≤ R] / R,   MAP@R = Σ_j [rank_j ≤ R] (j / rank_j) / R        (Musgrave 2020, section 2).

So no list of neighbours is needed, only counts. The R similarities of the positives are computed first, in float64;
then each block of S = A Bᵀ is compared with two thresholds a query: what is above the best positive is counted in bulk,
what is below the worst positive that can still be among the R nearest is ignored, and the few in between are looked at
one by one. Where float32 cannot tell (its error bound is proven, see ``similarity``) the pair is computed again in
float64, so the ranks are those of float64 arithmetic. When queries and gallery are the same set, S is symmetric and
only half of it is computed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from secondsight.functional.ranking.similarity import Metric, Similarity, similarity
from secondsight.functional.ranking.tally import Classes, Tally
from secondsight.functional.ranking.threads import MOST, Map, threads

Progress = Callable[[float], None]
"""Told the share of the work that was done since it was last told."""

ROWS, COLUMNS = 512, 2040  # a block that stays in the cache, in whole 64-bit words of booleans
FIRST = 64  # the first blocks are thin: what they show prunes the work of all the others
HELD = 8_000_000  # positive pairs that are held at once; symmetry needs all, else it goes by blocks of queries


class Ranks(NamedTuple):
    """One entry a query, in the order of ``queries``. Without positives ``first`` is 0 and what follows is NaN."""

    positives: Int[Tensor, " q"]  # R
    first: Int[Tensor, " q"]  # rank_1, counted from 1
    r_precision: Float[Tensor, " q"]
    map_at_r: Float[Tensor, " q"]


@torch.no_grad()
def positive_ranks(
    vectors: Float[Tensor, "n d"],
    labels: Int[Tensor, " n"],
    queries: Int[Tensor, " q"],
    gallery: Int[Tensor, " g"],
    *,
    metric: Metric = "cosine",
    progress: Progress = lambda share: None,
) -> Ranks:
    """Rank the positives of every query. ``queries`` and ``gallery`` are indices into ``vectors``, without repeats.

    A query never finds itself: a gallery item of the same index is left out. Memory grows with n, time with q · g.

    >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> everything = torch.arange(3)
    >>> positive_ranks(x, torch.tensor([0, 0, 1]), everything, everything).first.tolist()
    [1, 1, 0]
    """
    order = torch.argsort(labels[queries], stable=True)
    by_class = queries[order], gallery[torch.argsort(labels[gallery], stable=True)]
    classes = _classes(labels, *by_class)
    symmetric = torch.equal(*by_class) and int(classes.positives.sum()) <= HELD
    with _full_precision(vectors.device), threads(vectors.device) as spread:
        blocks = _Blocks(similarity(vectors.detach(), *by_class, metric=metric), classes)
        ranks = (_symmetric if symmetric else _rectangular)(blocks, spread, progress)
    back = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order), device=order.device))
    return Ranks(*(field[back] for field in ranks))


def _classes(labels: Tensor, queries: Tensor, gallery: Tensor) -> Classes:
    column = torch.full((len(labels),), -1, device=labels.device)
    column[gallery] = torch.arange(len(gallery), device=labels.device)
    wanted, there = labels[queries].contiguous(), labels[gallery].contiguous()
    start, stop = torch.searchsorted(there, wanted), torch.searchsorted(there, wanted, right=True)
    return Classes(start, stop, column[queries])


@contextlib.contextmanager
def _full_precision(device: torch.device) -> Iterator[None]:
    """The error bound holds for float32 products, not for what autocast, TF32 or bfloat16 GEMMs put in their place."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


class _Blocks:
    """Blocks of S without the positives, handed to a tally; in float64 from the first that float32 leaves open."""

    def __init__(self, similarity: Similarity, classes: Classes):
        self.similarity, self.classes = similarity, classes
        self.own = threading.local()
        self.exact = False

    def count(self, tally: Tally, rows: slice, columns: slice, *, axes: Sequence[int]) -> None:
        """Let ``tally`` count one block for the queries along each of ``axes``."""
        if not self.exact:
            s = self._without_positives(self.similarity.block(rows, columns, self._buffer()), rows, columns)
            axes = [axis for axis in axes if not tally.add(s, rows, columns, axis=axis)]
            self.exact |= len(axes) > 0  # an embedding that has collapsed has done so everywhere
        if axes:
            s = self._without_positives(self.similarity.exact_block(rows, columns), rows, columns)
            for axis in axes:
                tally.add(s, rows, columns, axis=axis)

    def _buffer(self) -> Tensor:
        """Room for one block, of the thread that asks."""
        if not hasattr(self.own, "buffer"):
            self.own.buffer = torch.empty(ROWS * COLUMNS, device=self.similarity.a.device)
        return self.own.buffer

    def _without_positives(self, s: Tensor, rows: slice, columns: slice) -> Tensor:
        start, stop = self.classes.start[rows, None], self.classes.stop[rows, None]
        first, last = max(int(start[0]), columns.start), min(int(stop[-1]), columns.stop)
        if first < last:
            column = torch.arange(first, last, device=s.device)
            positive = (column >= start) & (column < stop)
            s[:, first - columns.start : last - columns.start].masked_fill_(positive, -torch.inf)
        s[:, len(self.similarity.gallery) - columns.start :] = -torch.inf  # the padding, where the block reaches it
        return s


def _symmetric(blocks: _Blocks, spread: Map, progress: Progress) -> Ranks:
    """Each pair of blocks once, for its rows and for its columns."""
    n = len(blocks.similarity.queries)
    tally = Tally(blocks.similarity, blocks.classes, slice(0, n))

    def count(pair: tuple[slice, slice]) -> int:
        rows, columns = pair
        square = rows.start == columns.start  # on the diagonal: its columns are its rows
        blocks.count(tally, rows, columns, axes=[0] if square else [0, 1])
        return (rows.stop - rows.start) * (min(columns.stop, n) - columns.start) * (1 if square else 2)

    for strips in _rounds(_spans(0, n, ROWS)):
        for area in spread(count, [pair for rows in strips for pair in _pairs(rows, n)]):
            progress(area / n**2)
        tally.prune()
    return Ranks(*tally.result(n))


def _rectangular(blocks: _Blocks, spread: Map, progress: Progress) -> Ranks:
    """All gallery blocks for a few queries, and only these queries' positives are held."""
    n, padded = len(blocks.similarity.queries), len(blocks.similarity.b)
    most = int(blocks.classes.positives.max())

    def count(rows: slice) -> tuple[Tensor, ...]:
        tally = Tally(blocks.similarity, blocks.classes, rows)
        for some in _rounds(_spans(0, padded, COLUMNS)):
            for columns in some:
                blocks.count(tally, rows, columns, axes=[0])
            tally.prune()
        return tally.result(rows.stop - rows.start)

    parts = []
    size = max(1, min(ROWS, HELD // MOST // max(most, 1)))
    for part in spread(count, _spans(0, n, size, first=size)):
        parts.append(part)
        progress(len(part[0]) / n)
    return Ranks(*(torch.cat(fields) for fields in zip(*parts, strict=True)))


def _pairs(rows: slice, n: int) -> Iterator[tuple[slice, slice]]:
    """The block of ``rows`` on the diagonal of an n × n matrix, and those to the right of it, up to the padding."""
    end = _padded(n) if rows.stop == n else rows.stop
    yield rows, slice(rows.start, end)
    for columns in _spans(end, _padded(n), COLUMNS, first=COLUMNS):
        yield rows, columns


def _padded(n: int) -> int:
    return n + -n % 8


def _rounds(spans: Iterator[slice]) -> Iterator[list[slice]]:
    """Consecutive spans in groups, each half as much again as all before it. The tally is pruned after each: often
    enough to save work, seldom enough to cost none.
    """
    before, some = 0, []
    for span in spans:
        some.append(span)
        if span.stop >= 1.5 * before:
            yield some
            before, some = span.stop, []
    if some:
        yield some


def _spans(start: int, stop: int, size: int, *, first: int = FIRST) -> Iterator[slice]:
    """Consecutive slices: ``first`` wide, then twice as wide each time, up to ``size``."""
    width = min(first, size)
    while start < stop:
        yield slice(start, min(start + width, stop))
        start += width
        width = min(width * 2, size)
