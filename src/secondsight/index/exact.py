"""Exact search: every vector is compared.

A score is the dot product of the query, of unit length, and the vector as it is stored. In memory the numbers are
float32, which products take as they are, up to ``WIDE`` of the machine's memory; beyond that they stay float16, which a
few queries read as it is, and of which many share the work of turning blocks into float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import faiss
import numpy as np

from secondsight.index.segments import Segment, highest, products, widened
from secondsight.index.snapshot import Snapshot
from secondsight.index.structures import physical_memory

ROWS = 2048
"""Vectors compared at once in a matrix product: as float32 they fit into a processor's cache."""

FEW = 8
"""Queries up to which reading float16 as it is beats a matrix product."""

WIDE = 1 / 8
"""Share of the machine's memory that float32 may take: turning float16 into it takes as long as the products."""

_SCORES = 1 << 17  # that are looked at together
_RESCORED = 1 << 16  # numbers that are fetched at once: as float64 they stay in a processor's cache


@dataclass
class Best:
    """The k best of what has been seen so far, for q queries; −inf and −1 where fewer than k have been."""

    k: int
    scores: np.ndarray  # (q, k) float32, in no order
    ids: np.ndarray  # (q, k) int64
    full: bool = False  # every place is known to hold an item that lives

    @classmethod
    def empty(cls, queries: int, k: int) -> Best:
        return cls(k, np.full((queries, k), -np.inf, np.float32), np.full((queries, k), -1, np.int64))

    def see(self, scores: np.ndarray, ids: np.ndarray) -> None:
        """Take the ``scores`` (q, m) of the items ``ids`` (m,) into account."""
        least = self.scores.min(1, initial=np.inf)
        better = np.flatnonzero(highest(scores) > least)
        if not len(better):
            return
        scores = scores[better]
        rows, columns = np.nonzero(scores > least[better, None])
        if len(rows) > 4 * self.k * len(better) and scores.shape[1] > self.k:
            m = scores.shape[1]
            best = np.argpartition(scores, m - self.k, axis=1)[:, m - self.k :]
            self.merge(np.take_along_axis(scores, best, 1), ids[best], better)
            return
        # Few are better than what is known: only these are moved.
        count = np.bincount(rows)
        place = np.arange(len(rows)) - np.repeat(np.cumsum(count) - count, count)
        found = Best.empty(len(better), int(count.max()))
        found.scores[rows, place] = scores[rows, columns]
        found.ids[rows, place] = ids[columns]
        self.merge(found.scores, found.ids, better)

    def beside(self, other: Best) -> Best:
        """The candidates of both."""
        return Best(
            self.k + other.k,
            np.concatenate([self.scores, other.scores], axis=1),
            np.concatenate([self.ids, other.ids], axis=1),
        )

    def merge(self, scores: np.ndarray, ids: np.ndarray, rows: np.ndarray | slice = slice(None)) -> None:
        """The same for items that differ from query to query: both (q, m); ``rows``: of these queries only."""
        scores = np.concatenate([self.scores[rows], scores], axis=1)
        ids = np.concatenate([self.ids[rows], ids], axis=1)
        best = np.argpartition(scores, scores.shape[1] - self.k, axis=1)[:, scores.shape[1] - self.k :]
        self.scores[rows], self.ids[rows] = np.take_along_axis(scores, best, 1), np.take_along_axis(ids, best, 1)


@dataclass(frozen=True, eq=False)
class Exact:
    """The vectors of a snapshot (or of its ids from ``first`` on) in memory."""

    snapshot: Snapshot
    first: int = 0
    blocks: dict[int, faiss.Index | np.ndarray] = field(default_factory=dict)  # segment → its vectors, (rows, dim)

    def refreshed(self, snapshot: Snapshot, first: int = 0) -> Exact:
        """The same for a newer snapshot; only segments that are new are read."""
        wanted = [s for s in snapshot.segments if s.ids[-1] >= first]
        held = self.blocks
        wide = bytes_a_number(sum(s.rows for s in wanted) * snapshot.dim) == 4
        return Exact(snapshot, first, {s.id: held[s.id] if s.id in held else _block(s, wide) for s in wanted})

    def search(self, queries: np.ndarray, k: int, allowed: np.ndarray | None = None) -> Best:
        """The k best living items for each row of ``queries`` (q, dim); ``allowed``: only at these positions, (m,)."""
        best = Best.empty(len(queries), k if self.blocks else 0)
        few = len(queries) <= FEW
        for segment, mask in self._living if allowed is None else self._chosen(allowed):
            narrow = few and not isinstance(self.blocks[segment.id], np.ndarray)
            (self._read if narrow else self._multiply)(best, queries, segment, mask)
        return best

    @cached_property
    def _living(self) -> list[tuple[Segment, np.ndarray | None]]:
        """Segments and which of their rows are searched, (rows,) bool; None for all of them."""
        mask = self.snapshot.alive.copy()
        mask[: np.searchsorted(self.snapshot.ids, self.first)] = False
        return self._masked(mask)

    def _chosen(self, positions: np.ndarray) -> list[tuple[Segment, np.ndarray | None]]:
        mask = np.zeros(len(self.snapshot.ids), bool)
        mask[positions] = True
        mask &= self.snapshot.alive
        mask[: np.searchsorted(self.snapshot.ids, self.first)] = False
        return self._masked(mask)

    def _masked(self, wanted: np.ndarray) -> list[tuple[Segment, np.ndarray | None]]:
        masks = [
            (segment, wanted[start : start + segment.rows])
            for segment, start in zip(self.snapshot.segments, self.snapshot.offsets, strict=False)
            if segment.id in self.blocks
        ]
        return [(segment, None if mask.all() else mask) for segment, mask in masks if mask.any()]

    def _read(self, best: Best, queries: np.ndarray, segment: Segment, mask: np.ndarray | None) -> None:
        parameters = None if mask is None else faiss.SearchParameters(sel=bitmap(mask))  # pyright: ignore[reportCallIssue]
        block: Any = self.blocks[segment.id]
        scores, rows = search_arrays(block, queries, min(best.k, segment.rows), parameters)
        there = rows >= 0
        best.merge(np.where(there, scores, -np.inf), np.where(there, segment.ids[rows], -1))

    def _multiply(self, best: Best, queries: np.ndarray, segment: Segment, mask: np.ndarray | None) -> None:
        stored = _numbers(self.blocks[segment.id])
        if mask is None:  # what need not be widened need not fit into a cache, only its scores
            step = ROWS if stored.dtype != np.float32 else max(ROWS, _SCORES // max(1, len(queries)))
            chosen = [slice(start, start + step) for start in range(0, segment.rows, step)]
        else:
            parts = _parts(np.flatnonzero(mask))
            chosen = [slice(p[0], p[-1] + 1) if p[-1] - p[0] < len(p) else p for p in parts]
        for part in chosen:
            best.see(products(queries, stored[part]), segment.ids[part])


def search_arrays(index: faiss.Index, queries: np.ndarray, k: int, parameters) -> tuple[np.ndarray, np.ndarray]:
    """Scores and rows of the k best.

    Libraries that teach faiss to take tensors (pytorch-metric-learning does, on import) replace its ``search`` by one
    without parameters, and keep faiss's own under another name.
    """
    own = getattr(index, "search_numpy", index.search)
    return own(queries, k, params=parameters)


def bitmap(mask: np.ndarray) -> faiss.IDSelectorBitmap:
    """A faiss selector of the rows where ``mask`` is True."""
    return faiss.IDSelectorBitmap(np.packbits(mask, bitorder="little"))  # pyright: ignore[reportCallIssue]


def bytes_a_number(count: int) -> int:
    """In memory, for so many numbers."""
    return 4 if 4 * count <= WIDE * physical_memory() else 2


def _block(segment: Segment, wide: bool) -> faiss.Index | np.ndarray:
    vectors = segment.vectors
    if wide or vectors.dtype == np.float32:
        block = np.empty(vectors.shape, np.float32)  # numpy's memory is in large pages, which read faster
        for start in range(0, len(vectors), ROWS):
            block[start : start + ROWS] = widened(np.array(vectors[start : start + ROWS]))
        return block
    kind = faiss.ScalarQuantizer.QT_fp16
    block = faiss.IndexScalarQuantizer(vectors.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
    block.is_trained = True  # there is nothing to train: the codes are the numbers
    block.add_sa_codes(np.ascontiguousarray(vectors).view(np.uint8).reshape(len(vectors), -1))
    return block


def _numbers(block: faiss.Index | np.ndarray) -> np.ndarray:
    """The vectors of a block where they are in memory: the file's own pages may have been given back to the system."""
    if isinstance(block, np.ndarray):
        return block
    codes = faiss.rev_swig_ptr(block.codes.data(), block.ntotal * 2 * block.d)  # pyright: ignore[reportAttributeAccessIssue]
    return codes.view(np.float16).reshape(block.ntotal, -1)


def scan(queries: np.ndarray, k: int, snapshot: Snapshot, positions: np.ndarray) -> Best:
    """As ``Exact.search``, of the items at ``positions`` (all of them alive), read from the disk as they are needed."""
    best = Best.empty(len(queries), k)
    for part in _parts(positions):
        best.see(queries @ snapshot.stored(part).T, snapshot.ids[part])
    return best


def rescored(queries: np.ndarray, ids: np.ndarray, snapshot: Snapshot, *, sure: bool = False) -> np.ndarray:
    """Scores of each query and its candidates ``ids`` (q, m; −1 for none), in float64 from the stored vectors.

    ``sure``: all of them are here.

    The same query gives the same numbers whatever it was asked together with, and whichever engine found them.
    """
    if not ids.size or not snapshot.segments:
        return np.full(ids.shape, -np.inf)
    positions, known = snapshot.found(ids, sure=sure)
    precise, scores = queries.astype(np.float64)[:, None, :, None], []
    step = max(1, _RESCORED // (ids.shape[1] * snapshot.dim))
    for start in range(0, len(ids), step):
        some = slice(start, start + step)
        vectors = snapshot.stored(positions[some]).astype(np.float64)
        # One product of two vectors for each pair: the rounding of larger ones depends on a row's place, and equal
        # vectors must have equal scores.
        scores.append(np.matmul(vectors[:, :, None, :], precise[some])[:, :, 0, 0])
    found = scores[0] if len(scores) == 1 else np.concatenate(scores)
    if known is not None:
        found[~known] = -np.inf
    return found


def ordered(scores: np.ndarray, ids: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best, best first, equal scores in the order of their ids; no candidate (id −1, score −inf) comes last."""
    order = np.lexsort((ids, -scores), axis=1)[:, :k]
    if len(ids) > 1:
        order += ids.shape[1] * np.arange(len(ids))[:, None]
    return scores.take(order), ids.take(order)


def _parts(positions: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(positions), ROWS):
        yield positions[start : start + ROWS]
