"""One generation of an index, as a reader holds it: which ids there are, which of them live, and their vectors."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from secondsight.index import segments
from secondsight.index.catalogue import fact
from secondsight.index.segments import Segment

_FEW = 64  # vectors that are sooner fetched one by one than sorted by their segment


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The segments that count and the ids in them that do not. Positions number the rows of all segments in order."""

    generation: int
    dim: int
    segments: tuple[Segment, ...]  # by their first id; ids ascend from segment to segment
    dead: np.ndarray  # ids, ascending

    @classmethod
    def read(cls, database: sqlite3.Connection, folder: Path, before: Snapshot | None = None) -> Snapshot:
        """The generation that ``database`` shows; files that ``before`` holds open are not opened again."""
        generation = int(database.execute("SELECT value FROM facts WHERE key = 'generation'").fetchone()[0])
        if before is not None and before.generation == generation:
            return before
        held = {} if before is None else {(s.id, s.checksum): s for s in before.segments}
        listed = database.execute("SELECT id, rows, checksum FROM segments ORDER BY first").fetchall()
        found = tuple(
            held.get((number, checksum)) or Segment(number, segments.path(folder, number), rows, checksum).open()
            for number, rows, checksum in listed
        )
        dead = np.fromiter((row[0] for row in database.execute("SELECT id FROM dead ORDER BY id")), np.int64)
        return cls(generation, fact(database, "dim"), found, dead)

    @cached_property
    def offsets(self) -> np.ndarray:
        """(segments + 1,) the position at which each segment starts, and the end."""
        return np.concatenate([[0], np.cumsum([s.rows for s in self.segments], dtype=np.int64)]).astype(np.int64)

    @cached_property
    def ids(self) -> np.ndarray:
        """(positions,) int64, ascending."""
        return np.concatenate([np.zeros(0, np.int64), *(s.ids for s in self.segments)])

    @cached_property
    def alive(self) -> np.ndarray:
        """(positions,) bool."""
        mask = np.ones(len(self.ids), bool)
        mask[self.positions(self.dead)] = False
        return mask

    def __len__(self) -> int:
        return int(self.offsets[-1]) - len(self.dead)

    def positions(self, ids: np.ndarray) -> np.ndarray:
        """Where the ``ids`` are; ids that are in no segment are left out."""
        ids = np.asarray(ids, np.int64)
        if not len(self.ids):
            return np.zeros(0, np.int64)
        found, known = self._found(ids)
        return found if known.all() else found[known]

    def _found(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions (of others, where an id is in no segment), and which of them are those of the ``ids``."""
        last, first = len(self.ids) - 1, self.ids[0]
        if self.ids[last] - first == last:  # no id is missing in between: nothing to look for
            found = ids - first
            return found, (found >= 0) & (found <= last)
        found = np.minimum(self.ids.searchsorted(ids), last)
        return found, self.ids[found] == ids

    def living(self, ids: np.ndarray) -> np.ndarray:
        """(m,) bool: which of the ``ids`` are here and not removed."""
        if not len(self.ids):
            return np.zeros(len(ids), bool)
        found, known = self._found(ids)
        known[known] = self.alive[found[known]]
        return known

    def stored(self, positions: np.ndarray) -> np.ndarray:
        """(m, dim) float32 at ``positions``, in that order, as they are stored: float16 is off by up to 0.05 %."""
        positions = np.asarray(positions, np.int64)
        if len(self.segments) == 1:
            return segments.widened(self.segments[0].vectors.take(positions, 0))
        which = self.offsets.searchsorted(positions, side="right") - 1
        rows = positions - self.offsets[which]
        out = np.empty((len(positions), self.dim), self.segments[0].vectors.dtype if self.segments else np.float32)
        if len(positions) <= _FEW:
            for to, number, row in zip(out, which.tolist(), rows.tolist(), strict=True):
                to[:] = self.segments[number].vectors[row]
            return segments.widened(out)
        for number in set(which.tolist()):
            chosen = np.flatnonzero(which == number)
            out[chosen] = self.segments[number].vectors.take(rows[chosen], 0)
        return segments.widened(out)

    def vectors(self, positions: np.ndarray) -> np.ndarray:
        """(m, dim) float32 of unit length at ``positions``, in that order."""
        out = self.stored(positions)
        out /= np.maximum(np.sqrt(np.einsum("ij,ij->i", out, out)), np.float32(1e-12))[:, None]
        return out
