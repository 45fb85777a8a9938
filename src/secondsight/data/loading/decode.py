"""Any picture file becomes an (H, W, 3) uint8 RGB array, or a ``DecodeError`` that names the file and the cause.

What is done with the unusual ones:

    EXIF orientation       honoured, in JPEG and everywhere else Pillow finds it
    CMYK, YCCK             converted without a profile; Adobe's inverted values are recognised by Adobe's marker
    palette, 1-bit, grey   spread to RGB
    transparency           laid on white
    16-bit                 divided by 257 (65535 becomes 255), never clipped; in colour PNGs the high byte is taken
    32-bit, floating       divided by the smallest usual white (1, 255, 65535, 2³¹ − 1) that holds the brightest pixel
    animation, pages       the first one
    embedded ICC profile   ignored: numbers are taken as sRGB, which is what the published networks were trained on
"""

from __future__ import annotations

import functools
import io
import os
import stat
from pathlib import Path
from typing import ClassVar, TypeAlias

import numpy as np
import simplejpeg
from PIL import Image, ImageChops

from secondsight.data.loading.orientation import jpeg_orientation, upright
from secondsight.errors import DataError

Source: TypeAlias = "str | Path | bytes | bytearray | memoryview"

MAX_PIXELS = 178_956_970
"""Pillow's own limit: half a gigabyte of RGB. A file that claims more is taken for a decompression bomb."""

MAX_BYTES = 1 << 30
"""No picture below ``MAX_PIXELS`` needs a larger file; a disk image that was renamed does."""

# Not everything Pillow can open: EPS would start Ghostscript, and formats without a signature would accept any garbage.
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "JPEG2000", "AVIF", "ICO")


class DecodeError(DataError):
    """A file that is not a picture we can read. ``source`` is the file, ``cause`` what is wrong with it.

    ``lasting``: the content is at fault, so no copy of it can ever be decoded.
    """

    lasting: ClassVar[bool] = True

    def __init__(self, source: str, cause: str):
        super().__init__(f"{source}: cannot be decoded: {cause}")
        self.source = source
        self.cause = cause

    def __reduce__(self) -> tuple[type, tuple[str, str]]:  # so that it can cross from one process to another
        return type(self), (self.source, self.cause)


class ReadError(DecodeError):
    """A file that could not be read this time: so said the disk, the network or a permission, not the content."""

    lasting = False


class Scratch:
    """Memory for the pixels of one picture at a time: fresh pages from the system cost a sixth of a JPEG's decoding."""

    LEAST = 1 << 22  # large enough for the system's huge pages

    def __init__(self) -> None:
        self._memory = bytearray()

    def take(self, size: int) -> memoryview:
        if len(self._memory) < size:
            self._memory = bytearray(max(self.LEAST, size + size // 4))
        return memoryview(self._memory)[:size]


def decode(
    source: Source, *, target: int | None = None, max_pixels: int = MAX_PIXELS, scratch: Scratch | None = None
) -> np.ndarray:
    """The picture in a file or in bytes, as RGB (H, W, 3) uint8.

    Args:
        source: a path, or the content of a file.
        target: a JPEG may be decoded at ½, ⅜, ¼ or ⅛ of its size as long as no side falls below this; that is cheaper.
        max_pixels: files that claim more are refused before any pixel is decoded. What is not a JPEG is also held to
            Pillow's own ``Image.MAX_IMAGE_PIXELS``.
        scratch: where the pixels may be put. The result is then only valid until the next call with the same one.
    """
    if isinstance(source, (str, Path)):
        name = os.fspath(source)
        content = read(name)
    else:
        name, content = "<bytes>", bytes(source)
    if not content:
        raise DecodeError(name, "the file is empty")
    pixels = _simplejpeg(name, content, target, max_pixels, scratch) if content.startswith(b"\xff\xd8\xff") else None
    return _pillow(name, content, max_pixels) if pixels is None else pixels


def read(path: str | Path) -> bytes:
    """The content of a regular file; anything else in its place is a ``DecodeError``, not a wait for a pipe."""
    try:
        handle = os.open(path, _READ)
        try:
            return _content(str(path), handle, os.fstat(handle))
        finally:
            os.close(handle)
    except OSError as error:
        raise ReadError(str(path), error.strerror or str(error)) from error


_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def _content(name: str, handle: int, status: os.stat_result) -> bytes:
    if not stat.S_ISREG(status.st_mode):
        raise ReadError(name, "it is a directory" if stat.S_ISDIR(status.st_mode) else "it is not a regular file")
    if status.st_size > MAX_BYTES:
        raise DecodeError(name, f"{status.st_size:,} bytes are too many for a picture (limit {MAX_BYTES:,})")
    content = os.read(handle, status.st_size)
    while len(content) < status.st_size and (more := os.read(handle, status.st_size - len(content))):
        content += more  # some network file systems give a file in pieces
    if len(content) < status.st_size:
        raise ReadError(name, f"it ended after {len(content):,} of {status.st_size:,} bytes; is it being written?")
    return content


def _simplejpeg(
    name: str, content: bytes, target: int | None, max_pixels: int, scratch: Scratch | None
) -> np.ndarray | None:
    """The fast path; None where Pillow shall decide: CMYK, rare codings, and files that libjpeg complains about."""
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(content)
        _check_size(name, int(width), int(height), max_pixels)
        if colours not in ("YCbCr", "RGB", "Gray"):
            return None
        if target is not None and 2 * target <= min(int(height), int(width)):
            # Only factors of two and more have fast code in libjpeg-turbo: ⅞ takes twice the time of the full size.
            height, width, _, _ = simplejpeg.decode_jpeg_header(content, target, target, 2)
        size = int(height) * int(width) * 3
        memory = bytearray(size) if scratch is None else scratch.take(size)
        pixels = simplejpeg.decode_jpeg(
            content, "RGB", min_height=int(height), min_width=int(width), min_factor=2, buffer=memory
        )
    except DecodeError:
        raise
    except ValueError:
        return None
    return upright(pixels, jpeg_orientation(content))


def _pillow(name: str, content: bytes, max_pixels: int) -> np.ndarray:
    try:
        with Image.open(io.BytesIO(content), formats=_formats()) as image:
            _check_size(name, image.width, image.height, max_pixels)
            image.load()
            # After load: Pillow turns TIFFs itself, and then forgets their orientation.
            return upright(_rgb(image), _orientation(image))
    except (DecodeError, MemoryError):
        raise
    except Image.UnidentifiedImageError as error:
        raise DecodeError(name, f"not a picture in a format we read ({', '.join(_formats())})") from error
    except Exception as error:  # a broken file can make Pillow's parsers raise anything, IndexError to struct.error
        raise DecodeError(name, str(error) or type(error).__name__) from error


@functools.cache
def _formats() -> tuple[str, ...]:
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _check_size(name: str, width: int, height: int, max_pixels: int) -> None:
    if width * height > max_pixels:
        raise DecodeError(
            name, f"{width}×{height} is {width * height:,} pixels, more than the limit of {max_pixels:,} (max_pixels)"
        )


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(0x0112, 1))
    except Exception:  # broken EXIF around a sound picture
        return 1


def _rgb(image: Image.Image) -> np.ndarray:
    if image.mode.startswith(("I", "F")):
        # Older versions of Pillow call a 16-bit PNG "I".
        return _deep(np.asarray(image), known16=image.mode.startswith("I;16") or image.format == "PNG")
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    if image.mode == "CMYK" and image.format == "JPEG" and "adobe" not in image.info:
        image = ImageChops.invert(image)  # Pillow takes every CMYK JPEG for one of Adobe's
    return np.array(image.convert("RGB"))


def _deep(grey: np.ndarray, *, known16: bool) -> np.ndarray:
    """More than 8 bits of grey to 8: ``255 · grey / white``, rounded, with white the smallest usual one that fits."""
    values = np.nan_to_num(grey.astype(np.float64), nan=0.0)
    usual = (65535.0,) if known16 else (1.0, 255.0, 65535.0) if grey.dtype.kind == "f" else (255.0, 65535.0)
    white = next((w for w in usual if values.max() <= w), 2.0**31 - 1)
    scaled = np.clip(values * (255.0 / white), 0, 255).round().astype(np.uint8)
    return np.repeat(scaled[..., None], 3, axis=2)
