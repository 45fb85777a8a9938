"""Whose a part is: parts belong to contents, contents to items, of which several may be copies of each other."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from secondsight.index.snapshot import Snapshot


@dataclass(frozen=True, eq=False)
class Owners:
    """Which part is of which content, and which items have that content, in one generation of both stores."""

    generations: tuple[int, int]
    content: np.ndarray  # (positions of parts,) number of the content, −1 for a part that is dead
    items: np.ndarray  # (m,) ids of items that have parts, ascending
    item_content: np.ndarray  # (m,) their contents
    missing: np.ndarray  # ids of items that have a content but no parts

    @cached_property
    def _parts_of(self) -> tuple[np.ndarray, np.ndarray]:
        return _grouped(self.content)

    @cached_property
    def _items_of(self) -> tuple[np.ndarray, np.ndarray]:
        return _grouped(self.item_content)

    def parts(self, content: int) -> np.ndarray:
        """Positions of the parts of a content."""
        order, starts = self._parts_of
        return order[starts[content] : starts[content + 1]]

    def holders(self, content: int) -> np.ndarray:
        """Ids of the items of a content: several where files are copies of each other."""
        order, starts = self._items_of
        return self.items[order[starts[content] : starts[content + 1]]]

    def of(self, ids: np.ndarray) -> np.ndarray:
        """The content of each item; −1 where it has no parts."""
        if not len(self.items):
            return np.full(len(ids), -1)
        found = np.minimum(np.searchsorted(self.items, ids), len(self.items) - 1)
        return np.where(self.items[found] == ids, self.item_content[found], -1)

    def passing(self, allowed: np.ndarray | None) -> np.ndarray | None:
        """Positions of parts that some item in ``allowed`` (ids; None: any) has; None where that is all of them."""
        wanted = self.item_content if allowed is None else self.of(allowed)
        mask = np.zeros(self.content.max(initial=-1) + 2, bool)  # the last is content −1
        mask[wanted[wanted >= 0]] = True
        mask[-1] = False
        passing = mask[self.content]
        return None if (passing | (self.content < 0)).all() else np.flatnonzero(passing)


def read(database: sqlite3.Connection, snapshot: Snapshot, inside: sqlite3.Connection, parts: Snapshot) -> Owners:
    """From the catalogue of an index and that of its parts (``inside``)."""
    number: dict[bytes, int] = {}
    content = np.full(len(parts.ids), -1, np.int64)
    rows = inside.execute("SELECT id, hash FROM items ORDER BY id").fetchall()
    codes = np.array([number.setdefault(digest, len(number)) for _, digest in rows], np.int64)
    content[parts.positions(np.array([i for i, _ in rows], np.int64))] = codes
    items = database.execute("SELECT id, hash FROM items WHERE hash IS NOT NULL ORDER BY id").fetchall()
    ids = np.array([i for i, _ in items], np.int64)
    held = np.array([number.get(digest, -1) for _, digest in items], np.int64)
    return Owners(
        (snapshot.generation, parts.generation), content, ids[held >= 0], held[held >= 0], missing=ids[held < 0]
    )


def _grouped(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places sorted by their code, and where each code starts; code −1 is left out."""
    order = np.argsort(codes, kind="stable")
    order = order[int((codes < 0).sum()) :]
    return order, np.searchsorted(codes[order], np.arange(codes.max(initial=-1) + 2))
