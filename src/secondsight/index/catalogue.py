"""The catalogue of an index: one SQLite file whose transactions are the only commit there is.

facts        what the index is: format, dimension, model, generation (grows by one with every commit)
roots        folders and tables that the items came from, as they are looked at again by ``update``
segments     files of vectors that count; a file that is not listed here does not exist
items        one row a picture; ``id`` is never used twice, and a picture whose content changes gets a new one
dead         ids whose vectors no item uses any more, until ``compact`` leaves them out of the segments
columns      what the user's table says about the items: name → column of ``items``
failures     files that could not be decoded, so that ``update`` need not try them again until they change
dismissals   pairs that the user said are no duplicates
places       where the map puts an item

SQLite keeps no checksums: ``own`` is that of a row. A bit that flips in a label, a path or a fact is an error, not
another answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from xxhash import xxh3_64_intdigest

from secondsight.errors import DataError, nearest

FORMAT = 2  # 1 had no checksums of rows
FILE = "index.sqlite"
FIELDS = ("root", "path", "label", "size", "mtime", "hash", "width", "height")
"""Columns of ``items`` beside ``id``, ``own`` and the user's."""

_SCHEMA = """
CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL, own INTEGER) WITHOUT ROWID;
CREATE TABLE roots (
    id INTEGER PRIMARY KEY, spec NOT NULL UNIQUE, kind TEXT NOT NULL, labelled INTEGER NOT NULL, own INTEGER
);
CREATE TABLE segments (
    id INTEGER PRIMARY KEY AUTOINCREMENT, rows INTEGER NOT NULL, first INTEGER NOT NULL, checksum TEXT NOT NULL
);
CREATE TABLE items (
    id INTEGER PRIMARY KEY, root INTEGER, path, label TEXT, size INTEGER, mtime INTEGER, hash BLOB,
    width INTEGER, height INTEGER, own INTEGER
);
CREATE UNIQUE INDEX items_path ON items (root, path);
CREATE INDEX items_hash ON items (hash);
CREATE INDEX items_label ON items (label);
CREATE TABLE dead (id INTEGER PRIMARY KEY);
CREATE TABLE columns (name TEXT PRIMARY KEY, field TEXT NOT NULL);
CREATE TABLE failures (root INTEGER, path, size INTEGER, mtime INTEGER, cause TEXT, PRIMARY KEY (root, path))
    WITHOUT ROWID;
CREATE TABLE dismissals (a INTEGER, b INTEGER, PRIMARY KEY (a, b)) WITHOUT ROWID;
CREATE TABLE places (id INTEGER PRIMARY KEY, x REAL, y REAL);
"""


def stored(path: str | None) -> str | bytes | None:
    """A path as SQLite can hold it: text, or bytes where the file system has a name that is not UTF-8.

    >>> stored("a.jpg"), stored("caf\\udce9.jpg")
    ('a.jpg', b'caf\\xe9.jpg')
    """
    if path is None:
        return None
    try:
        path.encode()
    except UnicodeEncodeError:
        return os.fsencode(path)
    return path


def restored(path: str | bytes | None) -> str | None:
    """The inverse of ``stored``."""
    return os.fsdecode(path) if isinstance(path, bytes) else path


def _no_index(folder: Path) -> str:
    """What to say of a path that is no index: most often it is the folder of pictures, or a picture, or misspelt."""
    try:
        beside = [path.name for path in folder.parent.iterdir() if (path / FILE).is_file()]
    except OSError:
        beside = []
    if near := nearest(folder.name, beside):
        return f"{folder}: not an index; did you mean {str(folder.parent / near)!r}?"
    if folder.is_file():
        return f"{folder}: a file, and an index is a folder; name the index first, then pictures"
    return f"{folder}: not an index; make one with: secondsight index FOLDER"


class Catalogue:
    """Connections to the catalogue of one index, one a thread; reading never waits for a writer."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.file = folder / FILE
        self._own = threading.local()
        if not self.file.is_file():
            raise DataError(_no_index(folder))
        self._check_format()

    @staticmethod
    def create(folder: Path, facts: dict[str, Any]) -> None:
        """Write an empty catalogue into ``folder``, in one piece."""
        with contextlib.closing(sqlite3.connect(folder / FILE, isolation_level=None)) as database:
            database.create_function("checksum", -1, checksum, deterministic=True)
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("BEGIN")
            for statement in _SCHEMA.split(";"):
                if statement.strip():
                    database.execute(statement)
            given = {"format": FORMAT, "generation": 0, "next_id": 0, **facts}
            for key, value in given.items():
                set_fact(database, key, value)
            database.execute("COMMIT")

    def _check_format(self) -> None:
        with self.reading() as database:
            found = database.execute("SELECT value FROM facts WHERE key = 'format'").fetchone()
        number = None if found is None else json.loads(found[0])
        if number != FORMAT:
            cure = "update secondsight" if isinstance(number, int) and number > FORMAT else "make it again"
            raise DataError(
                f"{self.folder}: an index of format {number}; this version of secondsight reads format {FORMAT}: {cure}"
            )

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A read transaction: whatever is read inside belongs to one and the same commit."""
        try:
            database = self._connection()
            database.execute("BEGIN")
            try:
                yield database
            finally:
                database.execute("ROLLBACK")
        except (sqlite3.Error, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise self._explained(error) from error

    def generation(self) -> int:
        """The number of the last commit; one statement, which is a transaction of its own."""
        try:
            return generation(self._connection())
        except sqlite3.Error as error:
            raise self._explained(error) from error

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A write transaction, committed and on the disk when the block ends, undone if it fails.

        Only whoever holds the index's lock may call this. Every commit is a new generation.
        """
        try:
            database = self._connection()
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                set_fact(database, "generation", fact(database, "generation") + 1)
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> DataError:
        return DataError(f"{self.file}: {_explanation(error)}")

    def _connection(self) -> sqlite3.Connection:
        database = getattr(self._own, "database", None)
        if database is None or self._own.process != os.getpid():  # a connection must not cross a fork
            database = self._own.database = _connected(self.file)
            self._own.process = os.getpid()
        return database

    def close(self) -> None:
        """Close this thread's connection; another one is made when needed."""
        database = getattr(self._own, "database", None)
        if database is not None:
            self._own.database = None
            database.close()


def checksum(*values: Any) -> int:
    """64 bits of a row as SQLite gives it; NULLs at its end do not count, so that a column can be added.

    >>> checksum(1, "heron") == checksum(1, "heron", None) != checksum(1, "hero", "n")
    True
    """
    there = len(values)
    while there and values[there - 1] is None:
        there -= 1
    return xxh3_64_intdigest(repr(values[:there]).encode()) - 2**63


def item_checksum(database: sqlite3.Connection) -> str:
    """In SQL: what ``own`` of a row of ``items`` has to be."""
    given = database.execute("SELECT COUNT(*) FROM columns").fetchone()[0]
    return f"checksum({', '.join(['id', *FIELDS, *(f'c{n}' for n in range(given))])})"


def damaged(what: str) -> DataError:
    return DataError(f"{what} is damaged: its checksum does not fit; find out more with: secondsight check INDEX")


def fact(database: sqlite3.Connection, key: str, default: Any = None) -> Any:
    found = database.execute("SELECT value, own FROM facts WHERE key = ?", (key,)).fetchone()
    if found is None:
        return default
    if found[1] != checksum(key, found[0]):
        raise damaged(f"the index's fact {key!r}")
    return json.loads(found[0])


def generation(database: sqlite3.Connection) -> int:
    """The number of the commit that ``database`` shows."""
    return int(database.execute("SELECT value FROM facts WHERE key = 'generation'").fetchone()[0])


def set_fact(database: sqlite3.Connection, key: str, value: Any) -> None:
    text = json.dumps(value)
    database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?, ?)", (key, text, checksum(key, text)))


def roots_of(database: sqlite3.Connection) -> list[tuple[int, str | bytes, str, int]]:
    """id, spec, kind and whether it is labelled, of every root."""
    rows = database.execute("SELECT id, spec, kind, labelled, own FROM roots ORDER BY id").fetchall()
    for number, *row, own in rows:
        if own != checksum(*row):
            raise damaged(f"the index's folder {number}")
    return [row[:-1] for row in rows]


def labels_of(database: sqlite3.Connection, ids: np.ndarray) -> list[str | None]:
    """The label of each item, in the order of ``ids``; None where it has none."""
    look = "SELECT label FROM items WHERE id = ?"
    rows = (database.execute(look, (number,)).fetchone() for number in ids.tolist())
    return [None if row is None else restored(row[0]) for row in rows]


def _connected(file: Path) -> sqlite3.Connection:
    database = _open(str(file), timeout=30)
    try:
        # FULL: a commit that was acknowledged survives a power cut, too, not only the end of the process.
        database.execute("PRAGMA synchronous = FULL")
        database.execute("SELECT 1 FROM facts LIMIT 1")
        return database
    except sqlite3.OperationalError:
        database.close()
        wal = Path(f"{file}-wal")
        if os.access(file.parent, os.W_OK) or (wal.exists() and wal.stat().st_size):
            raise
    # A folder that may not be written to: without a log beside it the file is all there is, and does not change.
    return _open(f"{file.resolve().as_uri()}?immutable=1", uri=True)


def _open(where: str, *, timeout: float = 5, uri: bool = False) -> sqlite3.Connection:
    database = sqlite3.connect(where, isolation_level=None, timeout=timeout, uri=uri, check_same_thread=False)
    database.create_function("checksum", -1, checksum, deterministic=True)
    return database


def _explanation(error: Exception) -> str:
    text = str(error) if isinstance(error, sqlite3.Error) else f"malformed: {error}"
    if "disk is full" in text or "disk I/O error" in text:
        return f"{text}; nothing of this step was kept, the index is as it was: make room and run the command again"
    if "readonly" in text or "unable to open" in text:
        return f"{text}; check that you may write to the folder {os.path.dirname(text) or 'of the index'}"
    if "not a database" in text or "malformed" in text or "no such table" in text:
        return f"{text}; restore it from a copy, or make the index again"
    return text
