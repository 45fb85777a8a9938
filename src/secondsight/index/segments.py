"""Segments: files of vectors that are written once, checksummed, and never changed.

    magic (8 bytes) | rows, dimension, bytes a number (3 × uint64) | ids (rows × int64) | vectors (rows × dimension)

A segment counts from the moment the catalogue lists it; one that is not listed is what a killed process left behind.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from xxhash import xxh3_64, xxh3_128

from secondsight import files
from secondsight.errors import DataError

FOLDER = "segments"
DTYPES = {"float16": np.dtype("<f2"), "float32": np.dtype("<f4")}

BLOCK = 1024
"""Vectors that share a checksum: what a damaged byte costs."""

BLOCKS = "blocks"
HASHES: dict[str, Callable[..., Any]] = {"": partial(hashlib.blake2b, digest_size=16), "xxh3": xxh3_128}
"""What the checksum of a whole file was made by in older indexes: the word before its colon. Now it is ``BLOCKS``, and
16 digits for each block follow."""

CHECKED = 2_000_000_000
"""Bytes of a segment up to which it is compared with its checksum whenever it is opened."""

_MAGIC = b"ssightV1"
_HEADER = len(_MAGIC) + 3 * 8
_ONE_SIGN = np.uint32(0x8FFFE000).view(np.int32)  # sign, five bits of exponent, ten of fraction
_BIAS = np.float32(2.0 ** (127 - 15))  # exponents of float32 count from −127, those of float16 from −15


@dataclass(frozen=True)
class Segment:
    """A listed file of vectors. Nothing is read before it is asked for."""

    id: int
    path: Path
    rows: int
    checksum: str

    @cached_property
    def _memory(self) -> np.memmap:
        try:
            return np.memmap(self.path, np.uint8, "r")
        except (OSError, ValueError) as error:
            raise DataError(f"{self.path}: cannot be read ({error}); run: secondsight check {_index(self)}") from error

    @cached_property
    def _shape(self) -> tuple[int, int, np.dtype]:
        memory = self._memory
        rows, dim, width = memory[len(_MAGIC) : _HEADER].view("<u8").tolist() if len(memory) >= _HEADER else 3 * [0]
        size = _HEADER + rows * (8 + dim * width)
        if bytes(memory[: len(_MAGIC)]) != _MAGIC or rows != self.rows or len(memory) != size or width not in (2, 4):
            raise DataError(
                f"{self.path}: damaged: {len(memory):,} bytes where {self.rows:,} vectors should be; run: "
                f"secondsight check {_index(self)} --repair"
            )
        return rows, dim, DTYPES["float16" if width == 2 else "float32"]

    @cached_property
    def ids(self) -> np.ndarray:
        """(rows,) int64, ascending."""
        rows, _, _ = self._shape
        return np.asarray(self._memory[_HEADER : _HEADER + 8 * rows].view("<i8"))

    @cached_property
    def vectors(self) -> np.ndarray:
        """(rows, dim), as stored."""
        rows, dim, dtype = self._shape
        return np.asarray(self._memory[_HEADER + 8 * rows :].view(dtype).reshape(rows, dim))

    def open(self) -> Segment:
        """Itself, bit for bit what was written, with the file held open: from now on it can be read even if another
        process removes it.

        Every byte is read once for its checksum, as fast as memory gives it (9 GB/s), and is at hand afterwards. Files
        of more than ``CHECKED`` bytes are left to ``check``: opening must not take minutes.
        """
        self._shape  # noqa: B018
        if len(self._memory) <= CHECKED and not self.intact().all():
            raise DataError(
                f"{self.path}: its checksum is not the one it was written with; run: secondsight check "
                f"{_index(self)} --repair"
            )
        return self

    def intact(self) -> np.ndarray:
        """(rows,) bool: which ids and vectors are what was written. Every byte is read."""
        rows, _, _ = self._shape
        kind, _, sums = self.checksum.rpartition(":")
        if kind != BLOCKS:
            return np.full(rows, kind in HASHES and HASHES[kind](self._memory).hexdigest() == sums)
        right = []
        for start in range(0, rows, BLOCK):
            digest = xxh3_64(self.ids[start : start + BLOCK].data)
            digest.update(self.vectors[start : start + BLOCK].data)
            right.append(digest.hexdigest() == sums[len(right) * 16 : (len(right) + 1) * 16])
        return np.repeat(right, BLOCK)[:rows]


def write(path: Path, ids: np.ndarray, parts: Sequence[np.ndarray]) -> str:
    """Write a segment of the vectors of ``parts``, one after the other; gives its checksum. On disk when it returns."""
    rows, dim, dtype = sum(map(len, parts)), parts[0].shape[1], parts[0].dtype.newbyteorder("<")
    header = _MAGIC + np.array([rows, dim, dtype.itemsize], "<u8").tobytes()
    ids = ids.astype("<i8")
    digests = [xxh3_64(ids[start : start + BLOCK].data) for start in range(0, rows, BLOCK)]
    try:
        with files.replacing(path) as temporary, temporary.open("wb") as handle:
            handle.write(header)
            handle.write(ids.tobytes())
            for block, piece in _pieces(parts, dtype):
                digests[block].update(piece)
                handle.write(piece)
    except OSError as error:
        raise DataError(
            f"{path}: {error.strerror or error}; nothing of this step was kept, the index is as it was: make room, or "
            "choose a folder that may be written to, and run the command again"
        ) from error
    return f"{BLOCKS}:{''.join(digest.hexdigest() for digest in digests)}"


def widened(vectors: np.ndarray) -> np.ndarray:
    """Stored numbers, which may be written to, as float32; fastest by torch, where somebody has loaded it."""
    if vectors.dtype == np.float32:
        return vectors
    if "torch" in sys.modules:
        import torch  # waits where another thread is loading it just now

        return torch.from_numpy(vectors).float().numpy()
    # numpy converts float16 number by number; moving the bits of all of them is five times as fast.
    bits = vectors.view("<i2").astype(np.int32)  # the sign fills all that is above it
    bits <<= 13  # exponent and fraction are now where float32 has them
    bits &= _ONE_SIGN
    wide = bits.view(np.float32)
    wide *= _BIAS
    return wide


def products(queries: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """(q, m): every query times every stored vector, in float32.

    One library widens and multiplies: the threads of two, which spin while they wait, would take each other's cores.
    """
    if "torch" not in sys.modules:
        return queries @ widened(vectors).T
    import torch

    return (torch.from_numpy(vectors).float() @ torch.from_numpy(queries).T).numpy().T


def highest(scores: np.ndarray) -> np.ndarray:
    """(q,): the highest of every row of ``products``, of which there is at least one."""
    if "torch" not in sys.modules:
        return scores.max(1)
    import torch

    return torch.from_numpy(scores.T).amax(0).numpy()


def _pieces(parts: Sequence[np.ndarray], dtype: np.dtype) -> Iterator[tuple[int, memoryview]]:
    """The vectors of all parts in turn, none across the end of a block, and the number of their block."""
    row = 0
    for part in parts:
        stop = 0
        while (start := stop) < len(part):
            stop = min(len(part), start + BLOCK - row % BLOCK)
            yield row // BLOCK, np.ascontiguousarray(part[start:stop], dtype).data
            row += stop - start


def path(folder: Path, number: int) -> Path:
    """Where the segment of that number is."""
    return folder / FOLDER / f"{number:08d}.vectors"


def _index(segment: Segment) -> Path:
    return segment.path.parent.parent
