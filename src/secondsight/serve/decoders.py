"""The server's side of the decoders: a few processes, each with one picture at a time; one that dies is replaced."""

from __future__ import annotations

import contextlib
import fcntl
import os
import queue
import select
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

import secondsight
from secondsight.data.loading.decode import DecodeError, ReadError
from secondsight.serve import messages
from secondsight.serve.request_limits import Limits

_PIPE = 1 << 20  # bytes: most pictures pass in one piece, without the two processes waking each other for every 64 kB


class Decoder:
    """One process."""

    def __init__(self, limits: Limits):
        self.limits = limits
        path = os.pathsep.join([str(Path(secondsight.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        # One picture at a time on one thread; and secrets of the server are none of its business.
        kept = {key: value for key, value in os.environ.items() if not key.startswith("SECONDSIGHT_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "secondsight.serve.decoder", str(limits.memory), str(limits.pixels)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=kept | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError, AttributeError):  # a limit of the system's, or another system
                fcntl.fcntl(cast(BinaryIO, pipe), fcntl.F_SETPIPE_SZ, _PIPE)

    def ask(self, header: dict[str, Any], content: bytes) -> tuple[dict[str, Any], bytes]:
        """One question; EOFError if the process dies of it, TimeoutError if it takes too long."""
        deadline = time.monotonic() + self.limits.decoding
        messages.write(cast(BinaryIO, self.process.stdin), header, content)
        assert self.process.stdout is not None
        handle = self.process.stdout.fileno()

        def take(count: int) -> bytes:
            parts = bytearray()
            while len(parts) < count:
                if not select.select([handle], [], [], max(0.0, deadline - time.monotonic()))[0]:
                    raise TimeoutError
                part = os.read(handle, min(count - len(parts), 1 << 20))
                if not part:
                    raise EOFError
                parts += part
            return bytes(parts)

        return messages.read(take, 3 * self.limits.pixels + 1)

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError, ValueError):
                if pipe is not None:
                    pipe.close()
        self.process.wait()


class Decoders:
    """All of them. ``deaths`` counts those that had to be replaced."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.deaths = 0
        self._free: queue.SimpleQueue[Decoder | None] = queue.SimpleQueue()
        for _ in range(limits.decoders):
            self._free.put(None)  # started when first needed
        self._threads = ThreadPoolExecutor(limits.decoders, "decoding")
        self._closed = threading.Event()
        self._all: set[Decoder] = set()

    def pixels(self, source: bytes | str, target: int | None, name: str) -> Future[np.ndarray]:
        """(H, W, 3) uint8 of a file's content, or of the file at a path; the future may raise ``DecodeError``."""
        return self._threads.submit(self._pixels, source, target, name)

    def thumbnail(self, path: str, id: int, side: int, folder: str | None, name: str) -> Future[bytes]:
        """A JPEG, kept in ``folder`` where that is given."""
        header = {"do": "thumbnail", "path": path, "id": id, "side": side, "folder": folder}
        return self._threads.submit(lambda: self._asked(header, b"", name)[1])

    def _pixels(self, source: bytes | str, target: int | None, name: str) -> np.ndarray:
        header: dict[str, Any] = {"do": "pixels", "target": target}
        if isinstance(source, str):
            header, source = header | {"path": source}, b""
        found, content = self._asked(header, source, name)
        height, width, three = (int(n) for n in found["shape"])
        if height < 1 or width < 1 or three != 3 or len(content) != 3 * height * width:
            raise DecodeError(name, "the decoder returned something that is not a picture")
        return np.frombuffer(content, np.uint8).reshape(height, width, 3).copy()

    def _asked(self, header: dict[str, Any], content: bytes, name: str) -> tuple[dict[str, Any], bytes]:
        decoder = self._free.get()
        try:
            if self._closed.is_set():
                raise ReadError(name, "the server is stopping")
            if decoder is not None and decoder.process.poll() is not None:
                decoder = self._replaced(decoder)  # while it was idle: no fault of this picture
            if decoder is None:
                decoder = Decoder(self.limits)
                self._all.add(decoder)
            found, answer = decoder.ask(header, content)
        except (EOFError, OSError, ValueError) as error:
            decoder = self._replaced(decoder)
            slow = isinstance(error, TimeoutError)
            cause = f"decoding it took more than {self.limits.decoding:g} s" if slow else "the decoder died of it"
            raise DecodeError(name, cause) from error
        finally:
            self._free.put(decoder)
        if "error" in found:
            raise (DecodeError if found.get("lasting", True) else ReadError)(name, str(found["error"]))
        return found, answer

    def _replaced(self, decoder: Decoder | None) -> None:
        self.deaths += 1
        if decoder is not None:
            self._all.discard(decoder)
            decoder.end()

    def close(self) -> None:
        self._closed.set()
        for decoder in list(self._all):
            decoder.end()
        self._threads.shutdown(wait=False, cancel_futures=True)
