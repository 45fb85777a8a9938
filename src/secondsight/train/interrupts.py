"""Ctrl-C and SIGTERM end a run after the step that is under way; a second one ends it at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


class Interrupt:
    """Whether someone asked the run to stop."""

    def __init__(self) -> None:
        self.asked = False

    def _ask(self, number: int, frame: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


@contextlib.contextmanager
def listening() -> Iterator[Interrupt]:
    """Inside the block a signal only sets ``asked``. Threads other than the main one cannot listen, and need not."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    kept = {number: signal.signal(number, interrupt._ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
