"""The segments of a JPEG before its pixels: what is known of it without decoding it."""

from __future__ import annotations

from collections.abc import Iterator

END, SCAN = 0xD9, 0xDA


def jpeg_segments(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Marker, first byte after the length, and end of every segment up to the first scan, where the pixels begin."""
    position = 2
    while position + 4 <= len(content) and content[position] == 0xFF:
        marker = content[position + 1]
        if marker == 0xFF:  # a fill byte
            position += 1
            continue
        if marker in (END, SCAN):
            return
        size = int.from_bytes(content[position + 2 : position + 4], "big")
        yield marker, position + 4, position + 2 + size
        position += 2 + size
