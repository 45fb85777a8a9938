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
    HEIC                   with the extra ``heic``
    bombs                  refused before anything is decoded: see ``limits``
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, ClassVar, TypeAlias

import numpy as np
import simplejpeg
from PIL import Image

from secondsight.data.loading.colours import to_rgb
from secondsight.data.loading.limits import (
    MAX_BYTES,
    MAX_PIXELS,
    STRIP,
    TooLarge,
    check_memory,
    check_size,
    check_work,
    is_small,
    jpeg_memory,
    jpeg_scans,
    memory_limit,
    pillow_memory,
)
from secondsight.data.loading.orientation import jpeg_orientation, upright
from secondsight.errors import DataError, MissingExtra, SecondsightError
from secondsight.extras import require

Source: TypeAlias = "str | Path | bytes | bytearray | memoryview"

# Not everything Pillow can open: EPS would start Ghostscript, and formats without a signature would accept any garbage.
FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "JPEG2000", "AVIF", "ICO", "HEIF")

_TURN = threading.Lock()
"""Held while a picture is decoded that takes more than a tenth of the memory limit: threads do not multiply it."""


class DecodeError(DataError):
    """A file that is not a picture we can read. ``source`` is the file, ``cause`` what is wrong with it.

    ``lasting``: the content is at fault, so no copy of it can ever be decoded.
    """

    lasting: ClassVar[bool] = True
    cannot: ClassVar[str] = "decoded"
    cure: ClassVar[str] = ""

    def __init__(self, source: str, cause: str):
        super().__init__(f"{source}: cannot be {self.cannot}: {cause}{self.cure}")
        self.source = source
        self.cause = cause

    def __reduce__(self) -> tuple[type, tuple[str, str]]:  # so that it can cross from one process to another
        return type(self), (self.source, self.cause)


class ReadError(DecodeError):
    """A file that could not be read this time: so said the disk, the network or a permission, not the content."""

    lasting = False
    cannot = "read"
    cure = "; check that the file is there and may be read"


class Scratch:
    """Memory for the pixels of one picture at a time: fresh pages from the system cost a sixth of a JPEG's decoding."""

    LEAST = 1 << 22  # large enough for the system's huge pages
    MOST = 1 << 26  # what is kept; a larger picture gets memory of its own, and the system gets it back

    def __init__(self) -> None:
        self._memory = bytearray()

    def take(self, size: int) -> memoryview:
        if size > self.MOST:
            return memoryview(bytearray(size))
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
    try:
        pixels = None
        if content.startswith(b"\xff\xd8\xff"):
            pixels = _simplejpeg(content, target, max_pixels, scratch)
        return _pillow(name, content, max_pixels) if pixels is None else pixels
    except TooLarge as error:
        raise DecodeError(name, str(error)) from error
    except MemoryError as error:  # within the limits, and yet the system has not that much
        raise ReadError(name, "there is not enough memory to decode it") from error


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


@contextlib.contextmanager
def open_regular(path: str | Path) -> Iterator[BinaryIO]:
    """A regular file, open for reading: its header, perhaps. Anything else is a ``ReadError``."""
    with os.fdopen(os.open(path, _READ), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ReadError(str(path), "it is not a regular file")
        yield file


_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def _content(name: str, handle: int, status: os.stat_result) -> bytes:
    if not stat.S_ISREG(status.st_mode):
        raise ReadError(name, "it is a directory" if stat.S_ISDIR(status.st_mode) else "it is not a regular file")
    if status.st_size > min(MAX_BYTES, memory_limit()):
        limit = f"{min(MAX_BYTES, memory_limit()):,}"
        raise DecodeError(name, f"{status.st_size:,} bytes are too many for a picture (limit {limit})")
    content = os.read(handle, status.st_size)
    while len(content) < status.st_size and (more := os.read(handle, status.st_size - len(content))):
        content += more  # some network file systems give a file in pieces
    if len(content) < status.st_size:
        raise ReadError(name, f"it ended after {len(content):,} of {status.st_size:,} bytes; is it being written?")
    return content


def _simplejpeg(content: bytes, target: int | None, max_pixels: int, scratch: Scratch | None) -> np.ndarray | None:
    """The fast path; None where Pillow shall decide: CMYK, rare codings, and files that libjpeg complains about."""
    try:
        height, width, colours, _ = simplejpeg.decode_jpeg_header(content)
        full = int(width), int(height)
        check_size(*full, max_pixels)
        if colours not in ("YCbCr", "RGB", "Gray"):
            return None
        if target is not None and 2 * target <= min(full):
            # Only factors of two and more have fast code in libjpeg-turbo: ⅞ takes twice the time of the full size.
            height, width, _, _ = simplejpeg.decode_jpeg_header(content, target, target, 2)
        orientation, size = jpeg_orientation(content), int(height) * int(width) * 3
        with _jpeg_room(content, full, size // 3, turned=2 <= orientation <= 8):
            memory = bytearray(size) if scratch is None else scratch.take(size)
            pixels = simplejpeg.decode_jpeg(
                content, "RGB", min_height=int(height), min_width=int(width), min_factor=2, buffer=memory
            )
            return upright(pixels, orientation)
    except TooLarge:
        raise
    except ValueError:
        return None


def _jpeg_room(
    content: bytes, full: tuple[int, int], decoded: int, *, turned: bool
) -> contextlib.AbstractContextManager[None]:
    """Memory and work for one JPEG; almost all are so small that this is known without looking closer."""
    if is_small(full[0] * full[1], content):
        return _ANY
    scans, progressive = jpeg_scans(content)
    check_work(*full, scans)
    return _allowed(jpeg_memory(*full, decoded, len(content), progressive=progressive, turned=turned))


_ANY = contextlib.nullcontext()


@contextlib.contextmanager
def _allowed(needed: int) -> Iterator[None]:
    """Memory for one picture, within the limit; those who need much take turns."""
    check_memory(needed)
    with _TURN if needed > memory_limit() // 10 else contextlib.nullcontext():
        yield


def _pillow(name: str, content: bytes, max_pixels: int) -> np.ndarray:
    if is_heic(content):
        register_heic(name)
    try:
        with Image.open(io.BytesIO(content), formats=formats()) as image:
            check_size(*image.size, max_pixels)
            with _allowed(_needs(image, content)):
                image.load()
                # After load: Pillow turns TIFFs itself, and then forgets their orientation.
                return upright(to_rgb(image, STRIP), _orientation(image))
    except (SecondsightError, TooLarge, MemoryError):
        raise
    except Image.UnidentifiedImageError as error:
        raise DecodeError(name, f"not a picture in a format we read ({', '.join(formats())})") from error
    except Exception as error:  # a broken file can make Pillow's parsers raise anything, IndexError to struct.error
        raise DecodeError(name, str(error) or type(error).__name__) from error


def _needs(image: Image.Image, content: bytes) -> int:
    needed = pillow_memory(image.format or "", image.mode, *image.size, len(content))
    if image.format == "JPEG":
        scans, progressive = jpeg_scans(content)
        check_work(*image.size, scans)
        needed += 8 * image.width * image.height if progressive else 0
    return needed


def formats() -> tuple[str, ...]:
    """Those of ``FORMATS`` that Pillow can open here."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def is_heic(content: bytes) -> bool:
    """By the brand in the first box of the file."""
    return content[4:8] == b"ftyp" and content[8:12] in (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1")


def register_heic(name: str) -> None:
    """Teach Pillow HEIC. That it is not installed is said of the file, and not remembered: tomorrow it may be."""
    try:
        require("pillow_heif", extra="heic", purpose="reading a HEIC picture").register_heif_opener(thumbnails=False)
    except MissingExtra as error:
        raise ReadError(name, str(error)) from error


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(0x0112, 1))
    except Exception:  # broken EXIF around a sound picture
        return 1
