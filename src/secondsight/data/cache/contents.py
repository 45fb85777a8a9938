"""What is in a file, in 16 bytes: a hash that is remembered until the size or the time of the file changes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from secondsight.data.loading.decode import DecodeError, ReadError, read
from secondsight.data.loading.failures import Failures
from secondsight.data.loading.picture_rows import Images
from secondsight.errors import DataError
from secondsight.progress import track

DIGEST_BYTES = 16

BROKEN = sqlite3.DatabaseError, UnicodeDecodeError
"""What SQLite raises for a damaged file; where its message quotes damaged text, Python cannot even make the first."""

# A file that was written this recently may be written again without its time changing: hash it, but do not rely on it.
_SETTLED = 2.0  # seconds


def digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()


def digests(paths: Iterable[Path], memory: Path) -> Iterator[bytes | DecodeError]:
    """The digest of every file, or why it cannot be read. ``memory`` is a small database that several runs may share.

    Losing the database costs time, never correctness: one that is broken is replaced, one that cannot be written
    ignored."""
    with contextlib.closing(_open(memory)) as database:
        try:
            for path in paths:
                yield _digest(path, database)
        finally:
            try:
                database.commit()
                database.execute("SELECT count(*) FROM digests").fetchone()
            except sqlite3.OperationalError:
                pass  # read-only, or held by another run
            except BROKEN:  # damaged pages: without it the next run is as fast again
                memory.unlink(missing_ok=True)


@dataclass(frozen=True)
class Contents:
    """The digest of every image (empty where the file cannot be read), and the files that failed."""

    images: Images
    digests: list[bytes]
    failures: Failures

    @classmethod
    def of(cls, images: Images, memory: Path, *, strict: bool) -> Contents:
        found, failures = [], Failures()
        paths = (images.path(i) for i in range(len(images)))
        for i, one in enumerate(track(digests(paths, memory), "reading file contents", total=len(images))):
            if isinstance(one, DecodeError):
                if strict:
                    raise one
                failures.add(i, one.source, one.cause, lasting=one.lasting)
            found.append(b"" if isinstance(one, DecodeError) else one)
        if not any(found):
            worst = next(iter(failures))
            raise DataError(f"none of the {len(images):,} files can be read; {worst.path}: {worst.cause}")
        return cls(images, found, failures)

    def rows(self, records: np.ndarray) -> np.ndarray:
        """The row of every image, −1 where there is none; where a content has several, the last."""
        number = {record: row for row, record in enumerate(records["digest"].tolist())}
        return np.array([number.get(one, -1) for one in self.digests], np.int64)

    def missing(self, records: np.ndarray, failed: Container[bytes]) -> list[int]:
        """The first image of every content that has no row yet and is not known to have none."""
        without = np.flatnonzero(self.rows(records) < 0).tolist()
        absent = [i for i in without if self.digests[i] and self.digests[i] not in failed]
        return sorted({self.digests[i]: i for i in reversed(absent)}.values())

    def add_failures(self, causes: dict[bytes, str]) -> None:
        """A content that cannot be decoded cannot be decoded in any copy of the file."""
        for i, one in enumerate(self.digests):
            if one in causes:
                self.failures.add(i, str(self.images.path(i)), causes[one])

    def add_unread(self, failures: Failures, numbers: Sequence[int]) -> None:
        """Files that could be read when they were hashed, and not when they were decoded. ``numbers``: in this set."""
        for failure in failures:
            if not failure.lasting:
                self.failures.add(numbers[failure.index], failure.path, failure.cause, lasting=False)


def _digest(path: Path, database: sqlite3.Connection) -> bytes | DecodeError:
    name = os.fsencode(os.path.abspath(path))
    try:
        status = os.stat(path)
        if (known := _recall(database, name, status)) is not None:
            return known
        found = digest(read(path))
    except DecodeError as error:
        return error
    except OSError as error:
        return ReadError(str(path), error.strerror or str(error))
    if abs(time.time() - status.st_mtime) > _SETTLED:
        with contextlib.suppress(sqlite3.Error):
            row = (status.st_size, status.st_mtime_ns, found)
            database.execute("INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?, ?)", (name, *row, _own(name, *row)))
    return found


def _recall(database: sqlite3.Connection, name: bytes, status: os.stat_result) -> bytes | None:
    """The digest of that file when its size and time were these; None also where the database is damaged."""
    try:
        known = database.execute("SELECT size, time, digest, own FROM digests WHERE path = ?", (name,)).fetchone()
    except (sqlite3.Error, *BROKEN):
        return None
    if known is None or known[:2] != (status.st_size, status.st_mtime_ns) or known[3] != _own(name, *known[:3]):
        return None
    return known[2]


def _own(name: bytes, size: int, time: int, found: object) -> bytes:
    """A checksum of a row: SQLite has none, and a digest with one wrong bit could name another file's activations."""
    return digest(b"%b %d %d %b" % (name, size, time, found if isinstance(found, bytes) else b""))


_TABLE = "CREATE TABLE IF NOT EXISTS digests (path BLOB PRIMARY KEY, size INTEGER, time INTEGER, digest BLOB, own BLOB)"


def _open(memory: Path) -> sqlite3.Connection:
    memory.parent.mkdir(parents=True, exist_ok=True)
    database = _connected(memory) or _connected(memory)  # again: a broken one is gone now
    if database is None:
        database = sqlite3.connect(":memory:")
        database.execute(_TABLE)
    return database


def _connected(memory: Path) -> sqlite3.Connection | None:
    try:
        database = sqlite3.connect(memory, timeout=60)
        database.execute(_TABLE)
        return database
    except sqlite3.OperationalError:  # a full or read-only disk, or another run that holds it for a minute
        return None
    except BROKEN:
        memory.unlink(missing_ok=True)
        return None
