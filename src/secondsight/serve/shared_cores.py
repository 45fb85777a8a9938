"""An exported file that several threads run at a time, each on its share of the cores."""

from __future__ import annotations

import os
import threading

import numpy as np

from secondsight.inference.exported import Exported

WORKERS = 4


class SharedCores:
    """A picture that comes alone has all cores; batches at a time have a share each, and never wait for one another.

    ``workers`` is how many calls there may be at a time.
    """

    def __init__(self, exported: Exported):
        mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        cores = exported.session.get_session_options().intra_op_num_threads or mine
        on_cpu = exported.session.get_providers() == ["CPUExecutionProvider"]
        self.workers = min(WORKERS, cores) if on_cpu else 1
        self.whole = exported
        self.share = exported.on(cores // self.workers) if self.workers > 1 else exported
        self._calls, self._counting = 0, threading.Lock()

    def __call__(self, images: np.ndarray) -> np.ndarray:
        with self._counting:
            alone = self._calls == 0 and len(images) == 1
            self._calls += 1
        try:
            return (self.whole if alone else self.share)(images)
        finally:
            with self._counting:
                self._calls -= 1
