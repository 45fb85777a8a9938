"""Limits on what a picture may cost, checked on its first bytes: sides, pixels, memory, scans of a progressive JPEG.

A file of 400 kB can ask for gigabytes, or for minutes. Nothing is decoded before it is known to stay within bounds:

    sides     65,535, which is what a JPEG can have
    pixels    178,956,970 (``max_pixels``)
    memory    1 GB at the worst moment, whatever the format (``SECONDSIGHT_DECODE_MEMORY=4GB`` changes it)
    work      2³⁰ pixels · scans of a JPEG

Together they keep any one picture to a few seconds (JPEG 2000, the slowest format, to fifteen).

Memory is what the format's decoder was measured to take for each pixel (``tests/trouble`` measures it again), the file
itself, and the RGB pixels that are the result.
"""

from __future__ import annotations

import os
import re

from secondsight.data.loading.jpeg_segments import jpeg_segments
from secondsight.errors import ConfigError

MAX_SIDE = 65_535
MAX_PIXELS = 178_956_970
"""Pillow's own limit: half a gigabyte of RGB. A file that claims more is taken for a decompression bomb."""
MAX_BYTES = 1 << 30
"""No picture below ``MAX_PIXELS`` needs a larger file; a disk image that was renamed does."""
MAX_WORK = 1 << 30
"""Pixels times scans of a JPEG; ten scans, the usual number, of a hundred million pixels."""
MAX_MEMORY = 10**9
"""Bytes, unless ``$SECONDSIGHT_DECODE_MEMORY`` says otherwise."""

SMALL = MAX_MEMORY // 10  # bytes: pictures that need more take turns
RESULT = 3  # bytes of a pixel in the result, RGB
STRIP = 1 << 20  # pixels that are converted to RGB at a time
CONVERTING = 24 * STRIP  # bytes
STORED = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2, "I;16N": 2}
"""Bytes of a pixel in Pillow's memory, 4 in every other mode."""
DECODER = {"WEBP": 12, "AVIF": 14, "HEIF": 14, "JPEG2000": 24, "GIF": 5, "TIFF": 4, "ICO": 5}
"""Bytes of a pixel that a format's decoder takes beside Pillow's image; 0 for those that work row by row."""


class TooLarge(ValueError):
    """A picture that asks for more than it may."""


def memory_limit() -> int:
    """Bytes that decoding one picture may take."""
    text = os.environ.get("SECONDSIGHT_DECODE_MEMORY", "")
    if not text:
        return MAX_MEMORY
    match = re.fullmatch(r"(\d{1,9})\s*([kmgt]?)b?", text.strip().lower())
    if match is None:
        raise ConfigError(f"SECONDSIGHT_DECODE_MEMORY={text!r}: a size such as 500MB, 2GB or 4GB")
    return int(match[1]) * 1000 ** " kmgt".index(match[2] or " ")


def is_small(pixels: int, content: bytes) -> bool:
    """Whether a JPEG is within all limits at first sight: 12 bytes a pixel are the most it can take."""
    return (
        12 * pixels + len(content) < SMALL
        and content.count(b"\xff\xda") * pixels <= MAX_WORK  # also those of a thumbnail inside: the count is too high
        and "SECONDSIGHT_DECODE_MEMORY" not in os.environ
    )


def check_size(width: int, height: int, max_pixels: int) -> None:
    if max(width, height) > MAX_SIDE:
        raise TooLarge(f"{width}×{height}: a side may have {MAX_SIDE:,} pixels")
    if width * height > max_pixels:
        raise TooLarge(
            f"{width}×{height} is {width * height:,} pixels, more than the limit of {max_pixels:,} (max_pixels); "
            "make it smaller"
        )


def pillow_memory(format: str, mode: str, width: int, height: int, content: int) -> int:
    """Bytes that decoding with Pillow takes at its worst moment; twice the result, for it may have to be turned."""
    return width * height * (STORED.get(mode, 4) + DECODER.get(format, 0) + 2 * RESULT) + content + CONVERTING


def jpeg_memory(width: int, height: int, decoded: int, content: int, *, progressive: bool, turned: bool) -> int:
    """The same for simplejpeg: ``decoded`` pixels come out. A progressive file keeps all coefficients, 2 bytes each."""
    return (6 * width * height if progressive else 0) + RESULT * decoded * (2 if turned else 1) + content


def check_memory(needed: int) -> None:
    """Compare with the limit; call it before the first pixel is decoded."""
    if needed > (limit := memory_limit()):
        raise TooLarge(
            f"decoding it would take {needed / 1e9:.1f} GB of memory, more than the limit of {limit / 1e9:g} GB "
            "(SECONDSIGHT_DECODE_MEMORY=4GB raises it)"
        )


def check_work(width: int, height: int, scans: int) -> None:
    if scans * width * height > MAX_WORK:
        raise TooLarge(f"a JPEG of {width}×{height} in {scans:,} scans takes too long to decode; save it again")


def jpeg_scans(content: bytes) -> tuple[int, bool]:
    """How many scans a JPEG has, and whether it is progressive, from its markers.

    Inside a scan a byte 0xFF is always followed by 0 or a restart marker, so the two bytes 0xFF 0xDA are the start of
    one wherever they are found after the frame's header.
    """
    for marker, start, _ in jpeg_segments(content):
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return content.count(b"\xff\xda", start), marker in (0xC2, 0xC6, 0xCA, 0xCE)
    return content.count(b"\xff\xda"), True  # no frame before the first scan: count on the worst
