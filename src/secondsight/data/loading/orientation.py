"""Which way up a picture is: the EXIF tag, found in a JPEG's first bytes without parsing the rest, and its undoing."""

from __future__ import annotations

import struct

import numpy as np

from secondsight.data.loading.jpeg_segments import jpeg_segments

ORIENTATION = 0x0112
_SHORT, _LONG = 3, 4


def jpeg_orientation(content: bytes) -> int:
    """The EXIF orientation of a JPEG, 1–8 unless nonsense is written there; 1, upright, where there is none."""
    for marker, start, end in jpeg_segments(content):
        if marker == 0xE1 and content[start : start + 6] == b"Exif\0\0":
            return exif_orientation(content[start + 6 : end])
    return 1


def exif_orientation(exif: bytes) -> int:
    """The orientation in an EXIF block, a small TIFF file: byte order, offset of a directory, 12-byte entries."""
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(exif[:4])
    if order is None:
        return 1
    try:
        (start,) = struct.unpack_from(order + "I", exif, 4)
        (entries,) = struct.unpack_from(order + "H", exif, start)
        for i in range(entries):
            entry = start + 2 + 12 * i
            tag, kind = struct.unpack_from(order + "HH", exif, entry)
            if tag == ORIENTATION and kind in (_SHORT, _LONG):
                (value,) = struct.unpack_from(order + ("H" if kind == _SHORT else "I"), exif, entry + 8)
                return value
    except struct.error:  # cut short
        pass
    return 1


def upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Undo an EXIF orientation (anything but 2–8 is upright); contiguous, so that torch can take the result as it is.

    2 mirrors, 3 turns by 180°, 4 mirrors top to bottom, 5 transposes, 6 turns by 90° clockwise, 7 transposes about the
    other diagonal, 8 turns by 90° counter-clockwise.
    """
    if orientation in (5, 6, 7, 8):
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)
