"""One thread that runs the network on whatever waits: pictures that arrive while it works become its next batch."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from secondsight.explain import geometry
from secondsight.model import VIEWS, Embedder, mean
from secondsight.serve.kept import Kept


@dataclass(frozen=True, eq=False)
class _Job:
    pixels: np.ndarray
    name: str
    future: Future[Kept]


class Network:
    """The model behind a queue. Nobody waits for a batch to fill: it is what came while the last one was computed."""

    def __init__(self, model: Embedder, *, batch: int, device: str = "cpu"):
        self.model = model.to(device).eval()
        self.device = device
        self.batch = batch
        self.batches = self.pictures = 0
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="network", daemon=True)
        self._thread.start()

    def submit(self, pixels: np.ndarray, name: str) -> Future[Kept]:
        """What the network makes of a picture (H, W, 3) uint8."""
        future: Future[Kept] = Future()
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

    @torch.no_grad()
    def run(self, pictures: list[np.ndarray], names: list[str]) -> list[Kept]:
        """As ``embed.encode``, but with the features of every picture: what explanations and boxes need."""
        model, transform = self.model, self.model.transform
        images = torch.stack([transform(pixels) for pixels in pictures]).to(self.device)
        grid = model.backbone.grid(*images.shape[-2:])
        views: list[Tensor] = [model.backbone(VIEWS[view](images)) for view in model.views]
        vectors = model.normalise(mean([model.pool(features, grid=grid) for features in views])).float().cpu().numpy()
        self.batches += 1
        self.pictures += len(pictures)
        return [
            Kept(
                model,
                torch.stack([features[i] for features in views]),
                vectors[i],
                geometry.frame(transform, grid, *pictures[i].shape[:2]),
                names[i],
            )
            for i in range(len(pictures))
        ]
