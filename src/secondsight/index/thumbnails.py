"""Small JPEGs of items, kept in the index's folder; they can be thrown away at any time."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from secondsight import files
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
    made = draw(item.path, side)
    with contextlib.suppress(OSError):  # a read-only index has no thumbnails, it just draws them again
        files.write_bytes(kept, made)
    return made


def draw(path: str | Path | bytes, side: int) -> bytes:
    """A JPEG with ``side`` pixels along its longer side."""
    from PIL import Image

    from secondsight.data.loading.decode import decode

    picture = Image.fromarray(decode(path, target=side))
    picture.thumbnail((side, side))
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=85)
    return out.getvalue()
