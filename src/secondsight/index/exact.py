"""Exact search: every vector is compared, in blocks of one matrix product each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from secondsight.index.snapshot import Snapshot, unit

ROWS = 32768
"""Vectors compared at once: their scores for a few queries stay in the processor's cache."""


@dataclass
class Best:
    """The k best of what has been seen so far, for q queries."""

    k: int
    scores: np.ndarray  # (q, ≤ k) float32, in no order
    ids: np.ndarray  # (q, ≤ k) int64

    @classmethod
    def empty(cls, queries: int, k: int) -> Best:
        return cls(k, np.zeros((queries, 0), np.float32), np.zeros((queries, 0), np.int64))

    def see(self, scores: np.ndarray, ids: np.ndarray) -> None:
        """Take part of ``scores`` (q, m) of the items ``ids`` (m,) into the k best."""
        m = scores.shape[1]
        if m > self.k:
            best = np.argpartition(scores, m - self.k, axis=1)[:, m - self.k :]
            scores, found = np.take_along_axis(scores, best, 1), ids[best]
        else:
            found = np.broadcast_to(ids, scores.shape)
        self.merge(scores, found)

    def merge(self, scores: np.ndarray, ids: np.ndarray) -> None:
        """The same for items that differ from query to query: both (q, m)."""
        scores = np.concatenate([self.scores, scores], axis=1)
        ids = np.concatenate([self.ids, ids], axis=1)
        if (m := scores.shape[1]) > self.k:
            best = np.argpartition(scores, m - self.k, axis=1)[:, m - self.k :]
            scores, ids = np.take_along_axis(scores, best, 1), np.take_along_axis(ids, best, 1)
        self.scores, self.ids = scores, ids


@dataclass(frozen=True, eq=False)
class Exact:
    """All vectors in memory as float32, ready for products."""

    snapshot: Snapshot
    blocks: dict[int, np.ndarray] = field(default_factory=dict)  # segment → (rows, dim) of unit length

    def refreshed(self, snapshot: Snapshot) -> Exact:
        """The same for a newer snapshot; only segments that are new are read."""
        blocks = {s.id: self.blocks[s.id] for s in snapshot.segments if s.id in self.blocks}
        for segment in snapshot.segments:
            if segment.id not in blocks:
                blocks[segment.id] = unit(segment.vectors.astype(np.float32))
        return Exact(snapshot, blocks)

    def search(self, queries: np.ndarray, k: int, allowed: np.ndarray | None = None) -> Best:
        """The k best living items for each row of ``queries`` (q, dim); ``allowed``: only at these positions, (m,)."""
        wanted = self.snapshot.alive
        if allowed is not None:
            wanted = np.zeros(len(wanted), bool)
            wanted[allowed] = True
            wanted &= self.snapshot.alive
        best = Best.empty(len(queries), k)
        for segment, start in zip(self.snapshot.segments, self.snapshot.offsets, strict=False):
            ids, block = segment.ids, self.blocks[segment.id]
            for low in range(0, segment.rows, ROWS):
                high = min(low + ROWS, segment.rows)
                mask = wanted[start + low : start + high]
                scores = queries @ block[low:high].T
                if not mask.all():
                    scores = scores[:, mask]
                best.see(scores, ids[low:high][mask] if not mask.all() else ids[low:high])
        return best


def scan(queries: np.ndarray, k: int, snapshot: Snapshot, positions: np.ndarray) -> Best:
    """As ``Exact.search``, of the items at ``positions`` (all of them alive), read from the disk as they are needed."""
    best = Best.empty(len(queries), k)
    for part in _parts(positions):
        best.see(queries @ snapshot.vectors(part).T, snapshot.ids[part])
    return best


def rescored(queries: np.ndarray, ids: np.ndarray, snapshot: Snapshot) -> np.ndarray:
    """Cosines of each query and its candidates ``ids`` (q, m; −1 for none), in float64 from the stored vectors.

    The same query gives the same numbers whatever it was asked together with, and whichever engine found them.
    """
    scores = np.full(ids.shape, -np.inf)
    for query, row, out in zip(queries.astype(np.float64), ids, scores, strict=True):
        there = row >= 0
        found = snapshot.vectors(snapshot.positions(row[there]))
        out[there] = found.astype(np.float64) @ query
    return scores


def ordered(scores: np.ndarray, ids: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best, best first; equal scores in the order of their ids."""
    order = np.lexsort((ids, -scores), axis=1)[:, :k]
    return np.take_along_axis(scores, order, 1), np.take_along_axis(ids, order, 1)


def _parts(positions: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(positions), ROWS):
        yield positions[start : start + ROWS]
