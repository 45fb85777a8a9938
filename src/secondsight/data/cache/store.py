"""Rows of half-precision numbers on disk, found by the contents of the file they were computed from.

A store is a directory:

    store.json   what the rows are: key, shape of a row
    rows.f16     the rows, one after the other, little-endian
    index.bin    a record for every row: 16 bytes of digest, a float32 scale (row = scale · what is stored), a checksum
                 of the row's bytes, and one of the record itself and its place
    failed.json  digests of files that cannot be decoded, and why, so that they are not tried again
    lock         held by the one who appends

Rows are appended in blocks: first the rows, synced, then their index records, synced. A row without a record does not
exist, so a process that is killed loses the block it was writing and no more. Readers need no lock.

Disks forget bits without a word. A record that is not what was written does not exist either, and ``damaged`` finds the
rows that are not: they are forgotten and computed again. Where a digest has several records, the last one counts.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from xxhash import xxh3_64_intdigest, xxh32_intdigest

from secondsight.data.cache.contents import DIGEST_BYTES
from secondsight.errors import ConfigError, DataError
from secondsight.files import locked, write_text

FORMAT = 2  # 1 had no checksums
RECORD = np.dtype([("digest", f"V{DIGEST_BYTES}"), ("scale", "<f4"), ("row", "<u8"), ("own", "<u4")])
HALF = np.dtype("<f2")
NOTHING = bytes(DIGEST_BYTES)
"""The digest of a record whose row is forgotten."""


@dataclass(frozen=True)
class RowStore:
    """The rows of one model prefix and one transform."""

    path: Path

    def describe(self) -> dict | None:
        """``store.json``, or None where nothing has been stored yet."""
        try:
            found = json.loads((self.path / "store.json").read_text(encoding="utf-8"))
            _check_description(found)
            return found
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            cure = f"remove {self.path}: what it holds is computed again"
            raise DataError(f"{self.path / 'store.json'}: not a description of a store ({error!r}); {cure}") from error

    def shape(self) -> tuple[int, ...] | None:
        """Of one row."""
        found = self.describe()
        return None if found is None else tuple(found["shape"])

    def create(self, key: dict[str, str], shape: tuple[int, ...]) -> None:
        """Say what the rows are; only the first time."""
        known = self.shape()
        if known is None:
            described = {"format": FORMAT, "key": key, "shape": list(shape)}
            described["check"] = _check(described)
            write_text(self.path / "store.json", json.dumps(described, indent=2, ensure_ascii=False) + "\n")
        elif known != shape:
            raise ConfigError(
                f"{self.path}: rows of shape {known} are stored under this key, and now shape {shape} was computed; "
                "the key must name everything that the activations depend on"
            )

    def records(self) -> np.ndarray:
        """The index: one record per row that is wholly on disk. A damaged one has the digest ``NOTHING``."""
        found = self.describe()
        if found is None or found["format"] != FORMAT:
            return np.empty(0, RECORD)
        content, size, each = b"", 0, row_bytes(tuple(found["shape"]))
        with contextlib.suppress(FileNotFoundError):
            size = os.path.getsize(self.path / "rows.f16")
            content = (self.path / "index.bin").read_bytes()
        # A power cut can leave the file longer than what was written to it, with zeros at its end.
        count = -(-len(content.rstrip(b"\0")) // RECORD.itemsize)
        count = min(count, len(content) // RECORD.itemsize, size // each if each else count)
        records = np.frombuffer(content, RECORD, count).copy()
        records["digest"][records["own"] != _own(records, 0)] = np.void(NOTHING)
        return records

    def damaged(self, records: np.ndarray, rows: np.ndarray, stored: np.ndarray) -> np.ndarray:
        """Which of ``rows`` (numbers, −1 for none) do not have the bytes that were written, and which records.

        Every byte of ``stored``, which is ``self.rows(len(records))``, is read once, here; whoever reads from the same
        array afterwards finds it mapped.
        """
        wanted = np.unique(rows[rows >= 0])
        rotten = [row for row in wanted.tolist() if xxh3_64_intdigest(stored[row].data) != int(records["row"][row])]
        void = np.flatnonzero((records["digest"] == np.void(NOTHING)) & (records["own"] != _own(records, 0)))
        return np.union1d(np.array(rotten, np.int64), void)

    def forget(self, records: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """The records without the rows of those numbers; on disk, too. The lock must be held."""
        left = records.copy()
        left[numbers] = np.zeros((), RECORD)
        left["own"][numbers] = _own(left, 0)[numbers]
        handle = os.open(self.path / "index.bin", os.O_WRONLY)
        try:
            for number in numbers.tolist():
                os.pwrite(handle, left[number].tobytes(), number * RECORD.itemsize)
            os.fsync(handle)
        finally:
            os.close(handle)
        return left

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
            return {bytes.fromhex(digest): str(cause) for digest, cause in known.items()}
        except (FileNotFoundError, ValueError, TypeError, AttributeError, RecursionError):  # it costs another try
            return {}

    def add_failed(self, failed: dict[bytes, str]) -> None:
        """Remember more of them; the lock must be held."""
        known = {digest.hex(): cause for digest, cause in {**self.failed(), **failed}.items()}
        write_text(self.path / "failed.json", json.dumps(known, indent=2, ensure_ascii=False) + "\n")

    def locked(self, waiting: Callable[[], None] | None = None) -> contextlib.AbstractContextManager[None]:
        """Hold the store for appending. ``waiting`` is called when another run holds it; None: then it is an error."""
        return locked(self.path / "lock", waiting=waiting)

    def append(self, count: int, digests: Sequence[bytes], rows: np.ndarray, scales: np.ndarray) -> None:
        """Add a block to the ``count`` rows there are; the lock must be held. On a full disk nothing of it stays."""
        records = np.empty(len(rows), RECORD)
        records["digest"] = np.frombuffer(b"".join(digests), records.dtype["digest"])
        records["scale"] = scales
        data = np.ascontiguousarray(rows, HALF)
        records["row"] = [xxh3_64_intdigest(row) for row in data]
        records["own"] = _own(records, count)
        _extend(self.path / "rows.f16", count * row_bytes(data.shape[1:]), data)
        _extend(self.path / "index.bin", count * RECORD.itemsize, records)


class DiskFull(DataError):
    """There is no room, or not as much as will be needed."""


def row_bytes(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64)) * HALF.itemsize


def _own(records: np.ndarray, first: int) -> np.ndarray:
    """The checksum of every record, with its place: a record that was moved is damaged, too."""
    content, end = np.ascontiguousarray(records).tobytes(), RECORD.fields["own"][1] if RECORD.fields else 0
    starts = range(0, len(content), RECORD.itemsize)
    return np.array([xxh32_intdigest(content[s : s + end], first + i) for i, s in enumerate(starts)], np.uint32)


def _check_description(found: dict) -> None:
    """TypeError, KeyError or ValueError where ``store.json`` is not as we wrote it."""
    if found["format"] == FORMAT and found["check"] != _check(found):
        raise ValueError("its checksum does not fit")
    if not isinstance(found["format"], int) or not isinstance(found["key"], dict):
        raise ValueError("format and key are missing")
    tuple(map(int, found["shape"]))


def _check(described: dict) -> str:
    content = json.dumps({name: described[name] for name in ("format", "key", "shape")}, sort_keys=True)
    return f"{xxh3_64_intdigest(content.encode('utf-8', 'surrogateescape')):016x}"


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
