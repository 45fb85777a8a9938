"""How large pictures are, by their headers: nothing is decoded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from secondsight.data.imageset import ImageSet
from secondsight.data.loading.decode import formats, is_heic, open_regular, register_heic


def shorter_side(path: str | Path) -> int | None:
    """Pixels of a picture's shorter side; None for a file that says nothing of it."""
    try:
        with open_regular(path) as file:
            if is_heic(file.read(12)):
                register_heic(str(path))
            file.seek(0)
            with Image.open(file, formats=formats()) as image:
                return min(image.size)
    except Exception:  # a broken header can make Pillow's parsers raise anything, IndexError to struct.error
        return None


def usual_side(images: ImageSet, *, count: int = 128) -> int:
    """The median of the shorter sides of ``count`` pictures spread over the set; 0 where none can be read."""
    chosen = np.unique(np.linspace(0, len(images) - 1, min(count, len(images))).astype(int))
    found = [side for i in chosen if (side := shorter_side(images.path(int(i)))) is not None]
    return int(np.median(found)) if found else 0
