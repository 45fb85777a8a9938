"""Inputs for the network, batch by batch: decoded images, or stored activations of the frozen prefix."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from secondsight.data import ImageSet
from secondsight.data.decode import decode
from secondsight.data.transforms import Transform


class Feed(Protocol):
    """A set of inputs. ``batches`` hands them out in the order asked for; what an input is depends on (epoch, index) alone."""

    def __len__(self) -> int: ...

    def batches(self, plan: Sequence[np.ndarray], *, epoch: int) -> Iterator[Tensor]: ...


class ImageFeed:
    """Images decoded and transformed by threads, a few batches ahead of the network."""

    def __init__(self, images: ImageSet, transform: Transform, *, seed: int, workers: int | None = None):
        self.images, self.transform, self.seed = images, transform, seed
        self.workers = workers or 2

    def __len__(self) -> int:
        return len(self.images)

    def batches(self, plan: Sequence[np.ndarray], *, epoch: int) -> Iterator[Tensor]:
        waiting: deque[list[Future]] = deque()
        with ThreadPoolExecutor(self.workers) as pool:
            for indices in plan:
                waiting.append([pool.submit(self._one, int(i), epoch) for i in indices])
                if len(waiting) > 2:
                    yield torch.stack([future.result() for future in waiting.popleft()])
            while waiting:
                yield torch.stack([future.result() for future in waiting.popleft()])

    def _one(self, index: int, epoch: int) -> Tensor:
        pixels = decode(self.images.path(index), target=self.transform.target)
        return self.transform(pixels, seed=self.seed, epoch=epoch, index=index)
