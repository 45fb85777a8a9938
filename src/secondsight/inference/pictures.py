"""Picture files to square uint8 pixels with Pillow alone: the same steps as ``data.loading``, which needs more.

Decoding gives the same pixels (a JPEG that both shrink while decoding: nearly), resizing the same to one grey level in
few pixels; the tests measure it.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TypeAlias

import numpy as np
from PIL import Image, ImageChops, ImageOps

from secondsight.errors import DataError
from secondsight.inference.description import SquareTransform

Source: TypeAlias = "str | Path | bytes | Image.Image | np.ndarray"

HEADROOM = 1.25
"""A JPEG may be decoded at ½, ¼ or ⅛ of its size as long as this many times what is needed is left."""

# Not everything Pillow can open: EPS would start Ghostscript, and formats without a signature accept any garbage.
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "JPEG2000", "AVIF", "ICO")


def pixels(source: Source, picture: SquareTransform) -> np.ndarray:
    """A file, its bytes, an image or an (H, W, 3) uint8 array, as (3, S, S) uint8."""
    image = opened(source, least=round(HEADROOM * picture.resize))
    square = squared(image, picture)
    return np.ascontiguousarray(np.asarray(square).transpose(2, 0, 1))


def squared(image: Image.Image, picture: SquareTransform) -> Image.Image:
    """An RGB image by the model's transform."""
    how = Image.Resampling[picture.interpolation.upper()]
    if picture.name == "resize":
        return _resized(image, picture.size, picture.size, how)
    high, wide, top, left = _sides(picture, image.height, image.width)
    return _resized(image, wide, high, how).crop((left, top, left + picture.size, top + picture.size))


def seen(picture: SquareTransform, height: int, width: int) -> tuple[float, float, float, float]:
    """The part of a picture that the model sees: left, top, right, bottom, as fractions of its sides."""
    if picture.name == "resize":
        return 0.0, 0.0, 1.0, 1.0
    high, wide, top, left = _sides(picture, height, width)
    return left / wide, top / high, (left + picture.size) / wide, (top + picture.size) / high


def _sides(picture: SquareTransform, height: int, width: int) -> tuple[int, int, int, int]:
    """Height and width after resizing, and where the crop begins, from the top and from the left."""
    # Rounding as in data.loading.transforms: the longer side down, the crop's corner to the nearest.
    wide = picture.resize if width <= height else int(picture.resize * width / height)
    high = picture.resize if height <= width else int(picture.resize * height / width)
    return high, wide, round((high - picture.size) / 2), round((wide - picture.size) / 2)


def _resized(image: Image.Image, width: int, height: int, how: Image.Resampling) -> Image.Image:
    """First along rows, then along columns, as torch does; left to itself, Pillow turns the order for upright pictures,
    and every sixth pixel comes out one grey level off instead of every two-hundredth.
    """
    return image.resize((width, image.height), how).resize((width, height), how)


def opened(source: Source, *, least: int | None = None) -> Image.Image:
    """The source as an upright RGB image; ``least``: sides below which a JPEG must not be shrunk while decoding."""
    if isinstance(source, np.ndarray):
        if source.dtype != np.uint8 or source.ndim != 3 or source.shape[2] != 3:
            raise DataError(f"a picture as an array is (height, width, 3) uint8 RGB, got {source.dtype} {source.shape}")
        return Image.fromarray(source)
    if isinstance(source, Image.Image):
        return _rgb(ImageOps.exif_transpose(source), source.format)
    name, content = ("<bytes>", source) if isinstance(source, bytes) else (os.fspath(source), None)
    try:
        with Image.open(io.BytesIO(content) if content is not None else name, formats=FORMATS) as image:
            if least is not None and image.format == "JPEG" and image.mode in ("RGB", "L"):
                image.draft(None, (least, least))
            image.load()
            return _rgb(ImageOps.exif_transpose(image), image.format)
    except MemoryError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"{name}: no such file") from error
    except Exception as error:  # a broken file can make Pillow's parsers raise anything, IndexError to struct.error
        raise DataError(f"{name}: cannot be decoded: {error or type(error).__name__}") from error


def _rgb(image: Image.Image, format: str | None) -> Image.Image:
    """Transparency on white, deep greys by their white point, CMYK by Adobe's marker."""
    if image.mode.startswith(("I", "F")):
        return Image.fromarray(_deep(np.asarray(image), known16=image.mode.startswith("I;16") or format == "PNG"))
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    if image.mode == "CMYK" and format == "JPEG" and "adobe" not in image.info:
        image = ImageChops.invert(image)
    return image if image.mode == "RGB" else image.convert("RGB")


def _deep(grey: np.ndarray, *, known16: bool) -> np.ndarray:
    values = np.nan_to_num(grey.astype(np.float64), nan=0.0)
    usual = (65535.0,) if known16 else (1.0, 255.0, 65535.0) if grey.dtype.kind == "f" else (255.0, 65535.0)
    white = next((w for w in usual if values.max() <= w), 2.0**31 - 1)
    return np.repeat(np.clip(values * (255.0 / white), 0, 255).round().astype(np.uint8)[..., None], 3, axis=2)
