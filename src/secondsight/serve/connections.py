"""Connections that send nothing, or a header a byte at a time, are closed."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

PATIENCE = 10.0  # seconds for the first header of a connection to be complete


class Patient(H11Protocol):
    """uvicorn closes a connection that is idle between two requests; this one does so before the first, too."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._first = asyncio.get_running_loop().call_later(PATIENCE, self._lost_patience)

    def _lost_patience(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._first.cancel()
        super().connection_lost(exc)
