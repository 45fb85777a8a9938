"""The process in which pictures are decoded: ``python -m secondsight.serve.decoder MEMORY PIXELS``.

A broken picture can take a decoder written in C with it: then this process dies, and the server starts another one. It
reads messages on its input, answers on its output, and ends when its input does.

    {"do": "pixels", "target": n} + a file's content   →  {"shape": [h, w, 3]} + pixels
    {"do": "pixels", "target": n, "path": …}           →  the same
    {"do": "thumbnail", "path": …, "id", "side", "folder": where to keep it}  →  a JPEG
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from pathlib import Path
from typing import Any, BinaryIO

from secondsight.data.loading.decode import DecodeError, decode
from secondsight.serve import messages


def main(memory: int, pixels: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # there is no such module on Windows
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")  # what a library thinks of a stranger's picture is nothing for the log
    # Messages have the output for themselves: what a library prints goes to the errors.
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def take(count: int) -> bytes:
        content = source.read(count)
        if len(content) < count:
            raise EOFError
        return content

    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while True:
            header, content = messages.read(take, sys.maxsize)
            try:
                answer(sink, header, content, pixels)
            except DecodeError as error:
                messages.write(sink, {"error": error.cause, "lasting": error.lasting})
            except (MemoryError, RecursionError) as error:
                messages.write(sink, {"error": f"too much for the decoder ({type(error).__name__})", "lasting": True})


def answer(sink: BinaryIO, header: dict[str, Any], content: bytes, pixels: int) -> None:
    """Do what one message asks for."""
    source: Any = header.get("path") or content
    if header["do"] == "thumbnail":
        messages.write(sink, {}, thumbnail(header))
        return
    found = decode(source, target=header.get("target"), max_pixels=pixels)
    messages.write(sink, {"shape": list(found.shape)}, memoryview(found.tobytes()))


def thumbnail(header: dict[str, Any]) -> bytes:
    from secondsight.data.loading.thumbnail import thumbnail as small
    from secondsight.index.hits import Item
    from secondsight.index.thumbnails import thumbnail as kept

    if header.get("folder") is None:
        return small(header["path"], header["side"])
    return kept(Path(header["folder"]), Item(header["id"], header["path"]), header["side"])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
