"""One generation of an index, as a reader holds it: which ids there are, which of them live, and their vectors."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import as_strided

from secondsight.index import segments
from secondsight.index.catalogue import fact, generation
from secondsight.index.segments import Segment


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
        number = generation(database)
        if before is not None and before.generation == number:
            return before
        held = {} if before is None else {(s.id, s.checksum): s for s in before.segments}
        listed = database.execute("SELECT id, rows, checksum FROM segments ORDER BY first").fetchall()
        found = tuple(
            held.get((name, checksum)) or Segment(name, segments.path(folder, name), rows, checksum).open()
            for name, rows, checksum in listed
        )
        dead = np.fromiter((row[0] for row in database.execute("SELECT id FROM dead ORDER BY id")), np.int64)
        return cls(number, fact(database, "dim"), found, dead)

    @cached_property
    def offsets(self) -> np.ndarray:
        """(segments + 1,) the position at which each segment starts, and the end."""
        return np.concatenate([[0], np.cumsum([s.rows for s in self.segments], dtype=np.int64)]).astype(np.int64)

    @cached_property
    def _ends(self) -> np.ndarray:
        """(segments − 1,) where all but the last segment end."""
        return self.offsets[1:-1]

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
        found, known = self.found(ids)
        return found if known is None else found[known]

    def found(self, ids: np.ndarray, *, sure: bool = False) -> tuple[np.ndarray, np.ndarray | None]:
        """Positions (of others, where an id is in no segment), and which are those of the ``ids``; None for all.

        There must be segments; ``ids`` may have any shape. ``sure``: they are all here.
        """
        found = self.ids.searchsorted(ids) if self._unbroken is None else ids - self._unbroken
        if sure:
            return found, None
        found = np.clip(found, 0, len(self.ids) - 1)
        known = self.ids[found] == ids
        return found, None if known.all() else known

    @cached_property
    def _unbroken(self) -> int | None:
        """The first id where none is missing in between."""
        return int(self.ids[0]) if int(self.ids[-1] - self.ids[0]) == len(self.ids) - 1 else None

    def living(self, ids: np.ndarray) -> np.ndarray:
        """(m,) bool: which of the ``ids`` are here and not removed."""
        if not len(self.ids):
            return np.zeros(len(ids), bool)
        found, known = self.found(ids)
        return self.alive[found] if known is None else self.alive[found] & known

    def stored(self, positions: np.ndarray) -> np.ndarray:
        """(…, dim) float32 at ``positions`` (…), in that order, as stored: float16 is off by up to 0.05 %."""
        if not self.segments:
            return np.zeros((*np.shape(positions), self.dim), np.float32)
        numbers, starts = self._numbers
        at = starts[self._ends.searchsorted(positions, side="right")]
        at += self.dim * positions
        return segments.widened(numbers[at])

    @cached_property
    def _numbers(self) -> tuple[np.ndarray, np.ndarray]:
        """All vectors in one array, so that one step fetches those of many segments: the memory from the first number
        of the segment that is mapped lowest, cut into vectors that start at every number. Most of them lie between
        files and are never touched. The vector at position p of segment s starts at ``starts``[s] + dim · p.
        """
        held = [segment.vectors for segment in self.segments]
        width = held[0].itemsize
        addresses = np.array([vectors.ctypes.data for vectors in held])
        lowest, highest = held[int(addresses.argmin())], int(addresses.argmax())
        starts = (addresses - addresses.min()) // width
        count = int(starts[highest]) + (len(held[highest]) - 1) * self.dim + 1
        numbers = as_strided(lowest, (count, self.dim), (width, width), writeable=False)
        return numbers, starts - self.dim * self.offsets[:-1]

    def vectors(self, positions: np.ndarray) -> np.ndarray:
        """(m, dim) float32 of unit length at ``positions``, in that order."""
        out = self.stored(positions)
        out /= np.maximum(np.sqrt(np.einsum("ij,ij->i", out, out)), np.float32(1e-12))[:, None]
        return out
