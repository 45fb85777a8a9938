"""Connections that send nothing, or a header a byte at a time, or a header without an end, or do not take their answer
are closed; those that are too many are told to come back.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from secondsight.serve.guard import full

PATIENCE = 10.0  # seconds for the header of a request to be complete
HEADER = 16_384  # bytes of it
TAKING = 20.0  # seconds in which a client must have taken what it was sent
CONNECTIONS = 512
WAITING = 64  # requests of one connection that came before the answer to the one before them


class Patient(HttpToolsProtocol):
    """uvicorn closes a connection that is idle between two requests; this one minds how a request begins, too, and how
    its answer ends: closing alone would wait for the client, and keep the answer for as long.
    """

    _timer: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None
    _running: Any = None
    _head = _fields = 0  # bytes that came while it is incomplete; bytes of what was read from it

    def connection_made(self, transport: Any) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # hear of everything that the system could not take at once
        if len(self.connections) > CONNECTIONS:
            self.app = full
        self._begin()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._taking = asyncio.get_running_loop().call_later(TAKING, self._cut)

    def _cut(self) -> None:
        if self._running is not None:
            self._running.disconnected = True  # the rest of its answer is dropped
        self.transport.abort()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._running = cycle  # ``cycle`` of uvicorn's is the last request that came, which may wait behind this one
        super()._start_asgi_task(cycle, app)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._timer is None:
            self._begin()

    def _begin(self) -> None:
        self._head = self._fields = 0
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._end)

    def on_headers_complete(self) -> None:
        self._stop()
        if len(self.pipeline) >= WAITING:  # uvicorn would keep any number of them
            raise ValueError("too many requests at once")
        super().on_headers_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields += len(name) + len(value)
        if self._fields > HEADER:  # though it came in one piece
            raise ValueError("a header that is too large")
        super().on_header(name, value)

    def send_400_response(self, msg: str) -> None:
        body = b'{"error": "this is no request of HTTP", "cure": "see /openapi.json for what can be asked"}'
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + body)
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        before = self._timer
        super().data_received(data)
        if self._timer is not None and self._timer is before:  # not a header that begins in this piece
            self._head += len(data)
            if self._head > HEADER:
                self._end()

    def _end(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)  # calls resume_writing
