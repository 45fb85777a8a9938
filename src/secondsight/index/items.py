"""What the catalogue says about items: which they are, where, and their place on the map."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from secondsight.index import growth
from secondsight.index.catalogue import damaged, item_checksum, restored, stored
from secondsight.index.hits import Item
from secondsight.index.store import Store


def select(store: Store, condition: str, parameters: Sequence[Any]) -> list[Item]:
    """The items for which a condition in SQL holds; one that is damaged is an error."""
    bases = {root.id: root for root in growth.roots(store)}
    with store.reading() as (database, _):
        columns = own_columns(database)
        extra, own = "".join(f", {field}" for field in columns.values()), item_checksum(database)
        rows = database.execute(
            f"SELECT own IS {own}, id, root, path, label, width, height, size{extra} FROM items WHERE {condition}",
            parameters,
        ).fetchall()
    found = []
    for sound, number, root, path, label, width, height, size, *values in rows:
        if not sound:
            raise damaged(f"item {number} of {store.folder}")
        name = restored(path)
        place = name if root is None or name is None else bases[root].file(name)
        given = {n: v for n, v in zip(columns, values, strict=True) if v is not None}
        found.append(Item(number, place, restored(label), given, width, height, size, name))
    return found


def own_columns(database: sqlite3.Connection) -> dict[str, str]:
    """The user's own columns: name → column of ``items``."""
    return dict(database.execute("SELECT name, field FROM columns"))


def find(store: Store, path: str | Path) -> int | None:
    """The id of the item of that file, or None."""
    place = os.path.abspath(path)
    for root in growth.roots(store):
        inside = os.path.relpath(place, root.base)
        with store.reading() as (database, _):
            row = database.execute(
                "SELECT id FROM items WHERE root = ? AND path IN (?, ?)", (root.id, stored(inside), stored(place))
            ).fetchone()
        if row is not None:
            return row[0]
    return None


def places(store: Store) -> tuple[np.ndarray, np.ndarray]:
    """The map: ids (m,) and places (m, 2)."""
    with store.reading() as (database, _):
        rows = database.execute("SELECT id, x, y FROM places ORDER BY id").fetchall()
    table = np.array(rows, np.float64).reshape(-1, 3)
    return table[:, 0].astype(np.int64), table[:, 1:].astype(np.float32)


def set_places(store: Store, ids: Sequence[int] | np.ndarray, places: np.ndarray) -> None:
    """Keep a map in the place of the one before."""
    rows = [(int(i), float(x), float(y)) for i, (x, y) in zip(ids, places, strict=True)]
    with store.writer(), store.catalogue.writing() as database:
        database.execute("DELETE FROM places")
        database.executemany("INSERT INTO places VALUES (?, ?, ?)", rows)
