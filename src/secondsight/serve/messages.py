"""Messages between the server and a decoder: the lengths, a line of JSON, then bytes. Nothing in them is ever run."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any, BinaryIO

_LENGTHS = struct.Struct("<IQ")
MOST = 1 << 20  # bytes of JSON


def write(stream: BinaryIO, header: dict[str, Any], content: bytes | memoryview = b"") -> None:
    text = json.dumps(header).encode()
    stream.write(_LENGTHS.pack(len(text), len(content)))
    stream.write(text)
    stream.write(content)
    stream.flush()


def read(take: Callable[[int], bytes], most: int) -> tuple[dict[str, Any], bytes]:
    """A message; ``take(n)`` gives exactly n bytes or raises ``EOFError``. Content above ``most`` is a ValueError."""
    text, content = _LENGTHS.unpack(take(_LENGTHS.size))
    if text > MOST or content > most:
        raise ValueError(f"a message of {text:,} and {content:,} bytes; {MOST:,} and {most:,} are allowed")
    header = json.loads(take(text))
    return header, take(content)
