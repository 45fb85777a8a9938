"""Which structure answers searches: chosen from the number of vectors, their dimension and the memory there is.

    exact      every vector is compared; float32 in memory where there is much of it, else float16
    ivf-sq8    cells (k-means), a byte a number
    bits       cells, one bit a number (RaBitQ, Gao and Long 2024) and two numbers more
    ivf-pq     cells, product codes of 4 bits: for memory that even bits do not fit into
    hnsw       a graph over float16 vectors; long to build, so only on request

All but the first give candidates, whose scores are then computed from the stored vectors.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass

from secondsight.errors import ConfigError, UnknownName

EXACT = 25_000_000
"""Numbers (vectors × dimension) up to which every vector is compared: about 5 ms a query on one core."""

_EXTRA = 16  # bytes a vector of ids: faiss's and ours


@dataclass(frozen=True)
class Kind:
    """One way of storing vectors in memory."""

    factory: Callable[[int, int, int], str]  # n, dim, bytes a code → what faiss calls it
    code: Callable[[int], float]  # dim → bytes a vector
    candidates: tuple[int, ...]  # times k: how many are rescored, least first
    loss: str  # what is given up


@dataclass(frozen=True)
class Structure:
    """A choice, and why."""

    name: str
    factory: str  # faiss's name for it; "" for exact
    bytes: float  # in memory, a vector
    candidates: tuple[int, ...]
    reason: str


def cells(n: int) -> int:
    """k-means cells for n vectors: 4 √n as a power of two, and no more than have 39 vectors each to be learned from.

    >>> cells(1_000_000), cells(100_000)
    (4096, 1024)
    """
    return 2 ** max(0, min(round(math.log2(4 * math.sqrt(max(n, 1)))), int(math.log2(max(n / 39, 1)))))


KINDS = {
    "ivf-sq8": Kind(lambda n, d, c: f"IVF{cells(n)},SQ8", lambda d: d + _EXTRA, (2, 5), "a byte a number"),
    "bits": Kind(lambda n, d, c: f"IVF{cells(n)},RaBitQ", lambda d: d / 8 + 8 + _EXTRA, (5, 10, 30), "a bit a number"),
    "ivf-pq": Kind(
        lambda n, d, c: f"IVF{cells(n)},PQ{_parts(d, 2 * c)}x4fs",
        lambda d: d / 16 + _EXTRA,
        (10, 30, 100),
        "product codes",
    ),
    "hnsw": Kind(lambda n, d, c: "HNSW32,SQfp16", lambda d: 2 * d + 2 * 32 * 4 + 16 + 8, (2, 5), "a graph"),
}


def choose(n: int, dim: int, *, memory: int | None = None, wanted: str | None = None) -> Structure:
    """The structure for n vectors; ``memory`` in bytes (default: half of the machine's), ``wanted`` one by name."""
    budget = memory if memory is not None else physical_memory() // 2
    said = f"{_bytes(budget)} of memory" + ("" if memory is not None else " (half of this machine's)")
    if wanted is not None and wanted not in ("exact", *KINDS):
        raise UnknownName("structure", wanted, ["exact", *KINDS])
    if wanted == "exact" or (wanted is None and n * dim <= EXACT and 4 * n * dim <= budget):
        reason = f"{n:,} × {dim} numbers are few enough to compare every vector" if n * dim <= EXACT else "asked for"
        return Structure("exact", "", 4.0 * dim, (1,), reason)
    for name, kind in KINDS.items():
        size = kind.code(dim)
        if wanted == name:
            return Structure(name, kind.factory(n, dim, dim // 16), size, kind.candidates, "asked for")
        if wanted is None and name != "hnsw" and n * size <= budget:
            why = f"all of {n:,} × {dim} numbers " + (
                "take too long to compare" if n * dim > EXACT else f"take {_bytes(4 * n * dim)}"
            )
            reason = f"{why}; {kind.loss}, {_bytes(n * size)} in all, fits into {said}"
            return Structure(name, kind.factory(n, dim, dim // 16), size, kind.candidates, reason)
    code = max(4, int(budget / max(n, 1)) - _EXTRA)
    kind = KINDS["ivf-pq"]
    size = code + _EXTRA
    fits = "" if n * size <= budget else f"; even that takes {_bytes(n * size)}"
    return Structure(
        "ivf-pq",
        kind.factory(n, dim, code),
        size,
        kind.candidates,
        f"codes of {code} bytes are what {said} allow{fits}",
    )


def _parts(dim: int, most: int) -> int:
    """The largest number of equal parts, at most ``most``, that a vector can be cut into."""
    return max(p for p in range(1, max(2, most + 1)) if dim % p == 0)


def physical_memory() -> int:
    """Bytes of this machine; 4 GB where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return 4 << 30


def parse_bytes(text: str) -> int:
    """A number of bytes.

    >>> parse_bytes("4GB"), parse_bytes("500 MB")
    (4000000000, 500000000)
    """
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kMGT]?)i?B?\s*", text)
    if not found:
        raise ConfigError(f"--memory {text!r}: write a size such as 4GB or 500MB")
    return int(float(found.group(1)) * 1000 ** " kMGT".index(found.group(2) or " "))


def _bytes(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
