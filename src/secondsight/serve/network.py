"""One thread that runs the network on whatever waits: pictures that arrive while it works become its next batch."""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from secondsight.memory import give_back
from secondsight.serve.shelf import Seen

if TYPE_CHECKING:
    from secondsight.model import Embedder

TIDY = 60.0  # seconds of work between two times that freed memory is given back


@dataclass(frozen=True, eq=False)
class _Job:
    pixels: np.ndarray
    name: str
    future: Future[Seen]


class NetworkQueue:
    """The model behind a queue. Nobody waits for a batch to fill: it is what came while the last one was computed.

    ``OwnModel`` and ``ExportedFile`` say what runs.
    """

    size: int  # pixels a side that the model takes
    target: int  # no side of a picture may be decoded to less
    model: Embedder | None = None  # what explains; an exported file cannot

    def __init__(self, *, batch: int):
        self.batch = batch
        self.batches = self.pictures = 0
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._tidied = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="network", daemon=True)
        self._thread.start()

    def submit(self, pixels: np.ndarray, name: str) -> Future[Seen]:
        """What the network makes of a picture (H, W, 3) uint8."""
        future: Future[Seen] = Future()
        self._jobs.put(_Job(pixels, name, future))
        return future

    def close(self) -> None:
        self._jobs.put(None)

    def _work(self) -> None:
        while True:
            jobs, open_ = self._gathered()
            if jobs:
                try:
                    made = self.run([job.pixels for job in jobs], [job.name for job in jobs])
                    for job, one in zip(jobs, made, strict=True):
                        job.future.set_result(one)
                except Exception as error:  # whoever asked shall hear of it, and the thread goes on
                    for job in jobs:
                        if not job.future.done():
                            job.future.set_exception(error)
            if not open_:
                return
            if time.monotonic() > self._tidied + TIDY:
                give_back()
                self._tidied = time.monotonic()

    def _gathered(self) -> tuple[list[_Job], bool]:
        """What waits, at most a batch, at least one; and whether there will be more."""
        jobs: list[_Job] = []
        while len(jobs) < self.batch:
            try:
                job = self._jobs.get(block=not jobs)
            except queue.Empty:
                break
            if job is None:
                return jobs, False
            if job.future.set_running_or_notify_cancel():
                jobs.append(job)
        return jobs, True

    def run(self, pictures: list[np.ndarray], names: list[str]) -> list[Seen]:
        """What is made of a batch."""
        raise NotImplementedError
