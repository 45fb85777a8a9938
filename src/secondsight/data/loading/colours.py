"""What Pillow decoded, in whatever mode, as (H, W, 3) uint8 RGB; strip by strip, so that no other copy is whole."""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageChops

USUAL_WHITES = (1.0, 255.0, 65535.0)


def to_rgb(image: Image.Image, strip: int) -> np.ndarray:
    """RGB of a loaded image; ``strip`` is how many pixels are converted at a time."""
    out = np.empty((image.height, image.width, 3), np.uint8)
    step = max(1, strip // max(1, image.width))
    parts = [(top, min(top + step, image.height)) for top in range(0, image.height, step)]
    if image.mode.startswith(("I", "F")):
        # Older versions of Pillow call a 16-bit PNG "I".
        known16 = image.mode.startswith("I;16") or image.format == "PNG"
        white = 65535.0 if known16 else _white(image, parts)
        for top, stop in parts:
            out[top:stop] = _to_8_bits(_values(image, top, stop), white)[..., None]
        return out
    inverted = image.mode == "CMYK" and image.format == "JPEG" and "adobe" not in image.info
    for top, stop in parts:
        out[top:stop] = np.asarray(_strip(image, top, stop, inverted=inverted))
    return out


def _strip(image: Image.Image, top: int, stop: int, *, inverted: bool) -> Image.Image:
    part = _cropped(image, top, stop)
    if part.has_transparency_data:
        white = Image.new("RGBA", part.size, "white")
        part = Image.alpha_composite(white, part.convert("RGBA"))
    if inverted:  # Pillow takes every CMYK JPEG for one of Adobe's
        part = ImageChops.invert(part)
    return part.convert("RGB")


def _cropped(image: Image.Image, top: int, stop: int) -> Image.Image:
    return image if (top, stop) == (0, image.height) else image.crop((0, top, image.width, stop))


def _values(image: Image.Image, top: int, stop: int) -> np.ndarray:
    """More than 8 bits of grey, NaN as 0."""
    return np.nan_to_num(np.asarray(_cropped(image, top, stop)).astype(np.float64), nan=0.0)


def _white(image: Image.Image, parts: list[tuple[int, int]]) -> float:
    """The smallest usual white that holds the brightest pixel."""
    usual = USUAL_WHITES if image.mode.startswith("F") else USUAL_WHITES[1:]
    brightest = max((float(_values(image, top, stop).max()) for top, stop in parts), default=0.0)
    return next((white for white in usual if brightest <= white), 2.0**31 - 1)


def _to_8_bits(values: np.ndarray, white: float) -> np.ndarray:
    """``255 · grey / white``, rounded."""
    return np.clip(values * (255.0 / white), 0, 255).round().astype(np.uint8)
