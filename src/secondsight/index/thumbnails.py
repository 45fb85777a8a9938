"""Small JPEGs of items, kept in the index's folder; they can be thrown away at any time."""

from __future__ import annotations

import contextlib
from pathlib import Path

from secondsight import files
from secondsight.data.loading.thumbnail import thumbnail as small
from secondsight.errors import DataError
from secondsight.index.hits import Item

FOLDER = "thumbnails"


def thumbnail(folder: Path, item: Item, side: int) -> bytes:
    """A JPEG of ``item`` with ``side`` pixels along its longer side. A content has one id, so it never changes."""
    kept = folder / FOLDER / str(side) / f"{item.id // 1000:06d}" / f"{item.id}.jpg"
    with contextlib.suppress(OSError):
        return kept.read_bytes()
    if item.path is None:
        raise DataError(f"item {item.id} came as a vector without a picture")
    made = small(item.path, side)
    # A read-only index has no thumbnails, it just draws them again.
    with contextlib.suppress(OSError), files.replacing(kept) as temporary:
        temporary.write_bytes(made)
    return made
