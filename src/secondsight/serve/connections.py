"""Connections that send nothing, or a header a byte at a time, or a header without an end, are closed."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

PATIENCE = 10.0  # seconds for the header of a request to be complete
HEADER = 16_384  # bytes of it


class Patient(HttpToolsProtocol):
    """uvicorn closes a connection that is idle between two requests; this one minds how a request begins, too."""

    _timer: asyncio.TimerHandle | None = None
    _head = 0

    def connection_made(self, transport: Any) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._timer is None:
            self._begin()

    def _begin(self) -> None:
        self._head = 0
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, self._end)

    def on_headers_complete(self) -> None:
        self._stop()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._timer is not None:
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
        super().connection_lost(exc)
