"""Small pictures to show: JPEGs no larger than asked for, whole or cut to a square."""

from __future__ import annotations

import io

from PIL import Image, ImageOps

from secondsight.data.loading.decode import Source, decode


def thumbnail(source: Source, side: int = 160, *, square: bool = False) -> bytes:
    """A JPEG whose longer side is ``side`` pixels, or with ``square`` its middle; ``DecodeError`` where it is none."""
    image = Image.fromarray(decode(source, target=2 * side))
    if square:
        image = ImageOps.fit(image, (side, side))
    else:
        image.thumbnail((side, side))
    content = io.BytesIO()
    image.save(content, "JPEG", quality=82)
    return content.getvalue()
