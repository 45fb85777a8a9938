"""Threads that run the network on whatever waits: pictures that arrive while they work become their next batches."""

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

    ``OwnModel`` and ``ExportedFile`` say what runs. ``workers`` threads run it, each on its share of what waits.
    """

    size: int  # pixels a side that the model takes
    target: int  # no side of a picture may be decoded to less
    model: Embedder | None = None  # what explains; an exported file cannot
    cores: int = 1  # that one worker has

    def __init__(self, *, batch: int, workers: int = 1):
        self.batch, self.workers = batch, workers
        self.batches = self.pictures = 0
        self._counting = threading.Lock()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._tidied = time.monotonic()
        for number in range(workers):
            threading.Thread(target=self._work, name=f"network {number}", daemon=True).start()

    def submit(self, pixels: np.ndarray, name: str) -> Future[Seen]:
        """What the network makes of a picture (H, W, 3) uint8."""
        future: Future[Seen] = Future()
        self._jobs.put(_Job(pixels, name, future))
        return future

    def close(self) -> None:
        for _ in range(self.workers):
            self._jobs.put(None)

    def _work(self) -> None:
        while True:
            jobs, open_ = self._gathered()
            if jobs:
                try:
                    made = self.run([job.pixels for job in jobs], [job.name for job in jobs])
                    with self._counting:
                        self.batches += 1
                        self.pictures += len(jobs)
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
        """A share of what waits, at most a batch, at least one; and whether there will be more."""
        jobs: list[_Job] = []
        share = 1
        while len(jobs) < share:
            try:
                job = self._jobs.get(block=not jobs)
            except queue.Empty:
                break
            if not jobs:
                share = min(self.batch, -(-(1 + self._jobs.qsize()) // self.workers))
            if job is None:
                return jobs, False
            if job.future.set_running_or_notify_cancel():
                jobs.append(job)
        return jobs, True

    def run(self, pictures: list[np.ndarray], names: list[str]) -> list[Seen]:
        """What is made of a batch."""
        raise NotImplementedError
