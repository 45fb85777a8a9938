"""Rows of half-precision numbers on disk, found by the contents of the file they were computed from.

A store is a directory:

    store.json   what the rows are: key, shape of a row
    rows.f16     the rows, one after the other, little-endian
    index.bin    for every row 16 bytes of digest and a float32 scale: row = scale · what is stored
    failed.json  digests of files that cannot be decoded, and why, so that they are not tried again
    lock         held by the one who appends

Rows are appended in blocks: first the rows, synced, then their index records, synced. A row without a record does not
exist, so a process that is killed loses the block it was writing and no more. Readers need no lock.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from secondsight.data.cache.contents import DIGEST_BYTES
from secondsight.errors import ConfigError, DataError
from secondsight.files import write_text

FORMAT = 1
RECORD = np.dtype([("digest", f"V{DIGEST_BYTES}"), ("scale", "<f4")])
HALF = np.dtype("<f2")


@dataclass(frozen=True)
class Store:
    """The rows of one model prefix and one transform."""

    path: Path

    def describe(self) -> dict | None:
        """``store.json``, or None where nothing has been stored yet."""
        try:
            return json.loads((self.path / "store.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise DataError(f"{self.path / 'store.json'}: not readable ({error}); remove {self.path}") from error

    def shape(self) -> tuple[int, ...] | None:
        """Of one row."""
        found = self.describe()
        return None if found is None else tuple(found["shape"])

    def create(self, key: dict[str, str], shape: tuple[int, ...]) -> None:
        """Say what the rows are; only the first time."""
        known = self.shape()
        if known is None:
            described = {"format": FORMAT, "key": key, "shape": list(shape)}
            write_text(self.path / "store.json", json.dumps(described, indent=2, ensure_ascii=False) + "\n")
        elif known != shape:
            raise ConfigError(
                f"{self.path}: rows of shape {known} are stored under this key, and now shape {shape} was computed; "
                "the key must name everything that the activations depend on"
            )

    def records(self) -> np.ndarray:
        """The index: one record per row that is wholly on disk."""
        shape = self.shape()
        if shape is None:
            return np.empty(0, RECORD)
        content = b""
        with contextlib.suppress(FileNotFoundError):
            content = (self.path / "index.bin").read_bytes()
        records = np.frombuffer(content[: len(content) // RECORD.itemsize * RECORD.itemsize], RECORD)
        # A power cut can leave the file longer than what was written to it: such records are zeros.
        blank = np.flatnonzero(records["digest"] == np.zeros((), records.dtype["digest"]))
        with contextlib.suppress(FileNotFoundError):
            whole = os.path.getsize(self.path / "rows.f16") // row_bytes(shape)
            return records[: min([whole, len(records), *blank[:1]])]
        return records[:0]

    def rows(self, count: int) -> np.ndarray:
        """The first ``count`` rows, memory-mapped. Copy on write: torch wants memory that it could write to."""
        shape = self.shape() or ()
        if count == 0 or 0 in shape:
            return np.empty((count, *shape), HALF)
        return np.memmap(self.path / "rows.f16", HALF, mode="c", shape=(count, *shape))

    def failed(self) -> dict[bytes, str]:
        """The digests of files that could not be decoded, with the cause."""
        try:
            known = json.loads((self.path / "failed.json").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):  # it costs another try, no more
            return {}
        return {bytes.fromhex(digest): cause for digest, cause in known.items()}

    def add_failed(self, failed: dict[bytes, str]) -> None:
        """Remember more of them; the lock must be held."""
        known = {digest.hex(): cause for digest, cause in {**self.failed(), **failed}.items()}
        write_text(self.path / "failed.json", json.dumps(known, indent=2, ensure_ascii=False) + "\n")

    @contextlib.contextmanager
    def locked(self, waiting: Callable[[], None] | None = None) -> Iterator[None]:
        """Hold the store for appending. ``waiting`` is called when another run holds it; None: then it is an error."""
        import fcntl  # not on Windows, where the rest of the package still works

        while True:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o666)
            try:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if waiting is None:
                        raise
                    waiting()
                    fcntl.flock(handle, fcntl.LOCK_EX)
                if _is(handle, self.path / "lock"):
                    yield
                    return
                # Whoever held it removed the store: what we locked is no longer there.
            finally:
                os.close(handle)

    def append(self, count: int, digests: Sequence[bytes], rows: np.ndarray, scales: np.ndarray) -> None:
        """Add a block to the ``count`` rows there are; the lock must be held. On a full disk nothing of it stays."""
        records = np.empty(len(rows), RECORD)
        records["digest"] = np.frombuffer(b"".join(digests), records.dtype["digest"])
        records["scale"] = scales
        data = np.ascontiguousarray(rows, HALF)
        _extend(self.path / "rows.f16", count * row_bytes(data.shape[1:]), data)
        _extend(self.path / "index.bin", count * RECORD.itemsize, records)


class DiskFull(DataError):
    """There is no room, or not as much as will be needed."""


def row_bytes(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * HALF.itemsize


def _extend(path: Path, end: int, data: np.ndarray) -> None:
    """Write ``data`` at ``end``, where the file is cut off first (an unfinished block may be there), and sync."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        os.ftruncate(handle, end)
        left = memoryview(data.tobytes())
        os.lseek(handle, end, os.SEEK_SET)
        while left:
            left = left[os.write(handle, left) :]
        os.fsync(handle)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, end)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise DiskFull(f"{path}: {error.strerror}") from error
        raise
    finally:
        os.close(handle)


def _is(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False
