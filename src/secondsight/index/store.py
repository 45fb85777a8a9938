"""The store: items and their vectors, changed only in transactions. It knows nothing of models or engines.

A change writes a segment file, syncs it, and then commits one transaction that lists it: before the commit nothing has
changed, after it everything has. A process that is killed leaves at most a file that is not listed, which the next
writer removes.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import filelock
import numpy as np

from secondsight.errors import DataError, UnknownName
from secondsight.index import segments
from secondsight.index.catalogue import FIELDS, Catalogue, fact, item_checksum, set_fact, stored
from secondsight.index.segments import DTYPES, Segment
from secondsight.index.snapshot import Snapshot

LOCK = "lock"
FAN = 8
"""Small segments that are merged into one when there are so many."""


@dataclass(frozen=True)
class Record:
    """What the catalogue keeps about an item beside its vector."""

    root: int | None = None
    path: str | None = None
    label: str | None = None
    size: int | None = None
    mtime: int | None = None  # ns
    hash: bytes | None = None
    width: int | None = None
    height: int | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)

    def row(self) -> tuple[Any, ...]:
        return tuple(stored(getattr(self, f)) if f in ("path", "label") else getattr(self, f) for f in FIELDS)


@dataclass
class Change:
    """What one transaction does."""

    records: Sequence[Record] = ()
    vectors: np.ndarray | None = None  # (len(records), dim)
    removed: Sequence[int] = ()  # ids
    changed: Mapping[int, Record] = field(default_factory=dict)  # everything but the vector: moved, touched, relabelled
    failed: Sequence[tuple[int, str, int, int, str]] = ()  # root, path, size, mtime, cause


class Store:
    """The folder of an index."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.catalogue = Catalogue(folder)
        self._lock = filelock.FileLock(folder / LOCK, timeout=10)
        self._snapshot: Snapshot | None = None
        self._refreshing = threading.Lock()

    @staticmethod
    def create(folder: Path, *, dim: int, dtype: str, facts: dict[str, Any]) -> None:
        """Write an empty store into an existing folder."""
        if dtype not in DTYPES:
            raise UnknownName("type of stored vectors", dtype, DTYPES)
        (folder / segments.FOLDER).mkdir()
        Catalogue.create(folder, {"dim": dim, "dtype": dtype, **facts})

    @contextlib.contextmanager
    def reading(self) -> Iterator[tuple[sqlite3.Connection, Snapshot]]:
        """A transaction and the snapshot that belongs to it."""
        for attempt in range(5):
            with self.catalogue.reading() as database:
                try:
                    snapshot = self._refreshed(database)
                except DataError:
                    # Another process may have merged the file away since this transaction began: look again.
                    if attempt == 4:
                        raise
                    continue
                yield database, snapshot
                return

    def _refreshed(self, database: sqlite3.Connection) -> Snapshot:
        with self._refreshing:
            snapshot = Snapshot.read(database, self.folder, self._snapshot)
            self._snapshot = snapshot
        return snapshot

    @contextlib.contextmanager
    def writer(self) -> Iterator[None]:
        """Be the one process that changes the index. The lock is the operating system's: the dead do not hold it."""
        try:
            self._lock.acquire()
        except filelock.Timeout as error:
            raise DataError(
                f"{self.folder}: another process is changing this index; wait for it and run the command again"
            ) from error
        except OSError as error:
            raise DataError(f"{self.folder}: cannot be changed ({error.strerror or error})") from error
        try:
            if self._lock.lock_counter == 1:
                self._clean()
            yield
        finally:
            self._lock.release()

    def commit(self, change: Change) -> np.ndarray:
        """Apply ``change`` as a whole; gives the ids of the new items. It is on the disk when this returns."""
        with self.writer():
            with self.catalogue.reading() as database:
                first, number = fact(database, "next_id"), _next_segment(database)
            ids = np.arange(first, first + len(change.records), dtype=np.int64)
            checksum = self._write(number, ids, change.vectors) if len(ids) else ""
            with self.catalogue.writing() as database:
                _delete(database, change.removed)
                _edit(database, change.changed)
                if len(ids):
                    database.execute("INSERT INTO segments VALUES (?, ?, ?, ?)", (number, len(ids), first, checksum))
                    set_fact(database, "next_id", first + len(ids))
                    _insert(database, ids, change.records)
                database.executemany(
                    "INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?)",
                    [(root, stored(path), size, mtime, cause) for root, path, size, mtime, cause in change.failed],
                )
            self._merge_small()
        return ids

    def _write(self, number: int, ids: np.ndarray, vectors: np.ndarray | None) -> str:
        with self.catalogue.reading() as database:
            dim, dtype = fact(database, "dim"), fact(database, "dtype")
        if vectors is None or vectors.shape != (len(ids), dim):
            given = None if vectors is None else vectors.shape
            raise DataError(f"{self.folder}: {len(ids):,} items need vectors of shape ({len(ids)}, {dim}), got {given}")
        return segments.write(segments.path(self.folder, number), ids, [vectors.astype(DTYPES[dtype])])

    def compact(self) -> None:
        """One segment, without the vectors of items that are gone."""
        with self.writer(), self.reading() as (_, snapshot):
            chosen = snapshot.segments
        if len(chosen) > 1 or len(snapshot.dead):
            with self.writer():
                self._merge(snapshot, chosen)

    def _merge_small(self) -> None:
        """Merge the last segments when there are many small ones, and rewrite one of which more than half is dead."""
        while True:
            with self.reading() as (_, snapshot):
                chosen = _small(snapshot.segments) or _mostly_dead(snapshot)
            if not chosen:
                return
            self._merge(snapshot, chosen)

    def _merge(self, snapshot: Snapshot, chosen: Sequence[Segment]) -> None:
        self.rewrite(chosen, [~np.isin(s.ids, snapshot.dead, assume_unique=True) for s in chosen])

    def rewrite(self, chosen: Sequence[Segment], keep: Sequence[np.ndarray]) -> None:
        """One segment in place of the ``chosen``, of the rows to ``keep``: (rows,) bool each. For the writer."""
        ids = np.concatenate([s.ids[k] for s, k in zip(chosen, keep, strict=True)])
        gone = np.concatenate([s.ids[~k] for s, k in zip(chosen, keep, strict=True)])
        with self.catalogue.reading() as database:
            number = _next_segment(database)
        parts = [s.vectors if k.all() else s.vectors[k] for s, k in zip(chosen, keep, strict=True)]
        path = segments.path(self.folder, number)
        checksum = segments.write(path, ids, parts) if len(ids) else ""
        with self.catalogue.writing() as database:
            database.executemany("DELETE FROM segments WHERE id = ?", [(s.id,) for s in chosen])
            database.executemany("DELETE FROM dead WHERE id = ?", [(int(i),) for i in gone])
            if len(ids):
                row = (number, len(ids), int(ids[0]), checksum)
                database.execute("INSERT INTO segments VALUES (?, ?, ?, ?)", row)
        for segment in chosen:  # readers that hold it open go on reading it
            segment.path.unlink(missing_ok=True)

    def _clean(self) -> None:
        """Remove what a killed process left: files that the catalogue does not list."""
        with self.catalogue.reading() as database:
            listed = {segments.path(self.folder, row[0]).name for row in database.execute("SELECT id FROM segments")}
        for path in (self.folder / segments.FOLDER).iterdir():
            if path.name not in listed:
                path.unlink(missing_ok=True)

    def set_fact(self, key: str, value: Any) -> None:
        with self.writer(), self.catalogue.writing() as database:
            set_fact(database, key, value)

    def fact(self, key: str, default: Any = None) -> Any:
        with self.catalogue.reading() as database:
            return fact(database, key, default)


def _next_segment(database: sqlite3.Connection) -> int:
    # sqlite_sequence remembers numbers that were given away and removed since: a file's name is never used twice.
    found = database.execute("SELECT seq FROM sqlite_sequence WHERE name = 'segments'").fetchone()
    return 1 if found is None else found[0] + 1


def _delete(database: sqlite3.Connection, ids: Sequence[int]) -> None:
    rows = [(int(i),) for i in ids]
    known = [row for row in rows if database.execute("SELECT 1 FROM items WHERE id = ?", row).fetchone()]
    database.executemany("INSERT OR IGNORE INTO dead VALUES (?)", known)
    for table, column in (("items", "id"), ("places", "id"), ("dismissals", "a"), ("dismissals", "b")):
        database.executemany(f"DELETE FROM {table} WHERE {column} = ?", known)


def _edit(database: sqlite3.Connection, changed: Mapping[int, Record]) -> None:
    # Names first given up, then taken: two files may have swapped theirs.
    database.executemany("UPDATE items SET path = NULL WHERE id = ?", [(int(i),) for i in changed])
    names = ", ".join(f"{name} = ?" for name in FIELDS)
    for number, record in changed.items():
        extra = _extra(database, record.columns)
        more = "".join(f", {name} = ?" for name in extra)
        values = (*record.row(), *extra.values(), int(number))
        database.execute(f"UPDATE items SET {names}{more} WHERE id = ?", values)
    if changed:
        own = item_checksum(database)
        database.executemany(f"UPDATE items SET own = {own} WHERE id = ?", [(int(i),) for i in changed])


def _insert(database: sqlite3.Connection, ids: np.ndarray, records: Sequence[Record]) -> None:
    names = list(dict.fromkeys(name for record in records for name in record.columns))
    extra = [_field(database, name) for name in names]
    marks = ", ".join("?" * (1 + len(FIELDS) + len(extra)))
    database.executemany(
        f"INSERT INTO items ({', '.join(['id', *FIELDS, *extra])}) VALUES ({marks})",
        ((int(i), *r.row(), *(_value(r.columns.get(n)) for n in names)) for i, r in zip(ids, records, strict=True)),
    )
    database.execute(f"UPDATE items SET own = {item_checksum(database)} WHERE id >= ?", (int(ids[0]),))
    done = [(record.root, stored(record.path)) for record in records if record.path is not None]
    database.executemany("DELETE FROM failures WHERE root = ? AND path = ?", done)


def _extra(database: sqlite3.Connection, columns: Mapping[str, Any]) -> dict[str, Any]:
    return {_field(database, name): _value(value) for name, value in columns.items()}


def _field(database: sqlite3.Connection, name: str) -> str:
    """The column of ``items`` that holds the user's column ``name``; made when it is first seen."""
    found = database.execute("SELECT field FROM columns WHERE name = ?", (name,)).fetchone()
    if found is not None:
        return found[0]
    number = database.execute("SELECT COUNT(*) FROM columns").fetchone()[0]
    database.execute(f"ALTER TABLE items ADD COLUMN c{number}")
    database.execute("INSERT INTO columns VALUES (?, ?)", (name, f"c{number}"))
    return f"c{number}"


def _value(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    if value is None or (isinstance(value, float) and value != value):  # NaN: an empty cell
        return None
    return value if isinstance(value, (int, float)) else stored(str(value))


def _small(listed: Sequence[Segment]) -> Sequence[Segment]:
    """The last segments, eight or more, from the first one that what follows is twice as large as.

    A vector is so rewritten log₃(n) times at most, and there are never more than 8 + log₁․₅(n) segments.
    """
    rows = [s.rows for s in listed]
    for start in range(len(rows) - FAN + 1):
        if sum(rows[start + 1 :]) >= 2 * rows[start]:
            return listed[start:]
    return ()


def _mostly_dead(snapshot: Snapshot) -> Sequence[Segment]:
    for segment in snapshot.segments:
        first, last = segment.ids[0], segment.ids[-1]
        low, high = np.searchsorted(snapshot.dead, [first, last + 1])
        if 2 * (high - low) > segment.rows:
            return [segment]
    return ()
