"""Pictures from files as rows of a batch: read, decoded, transformed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from secondsight.data.loading.decode import Scratch, decode
from secondsight.data.loading.limits import MAX_PIXELS
from secondsight.data.loading.transforms import Transform


class Images(Protocol):
    """All that loading needs of a set of images; ``ImageSet`` is one."""

    @property
    def labels(self) -> np.ndarray | None: ...

    def __len__(self) -> int: ...

    def path(self, i: int) -> Path: ...


class Pictures:
    """Rows of uint8 images (b, 3, S, S), channels last in memory, un-normalised: that is the backbone's business.

    Random transforms draw from (seed, epoch, index).
    """

    def __init__(self, images: Images, transform: Transform, *, seed: int = 0, max_pixels: int = MAX_PIXELS):
        self.images = images
        self.transform = transform
        self.seed = seed
        self.max_pixels = max_pixels
        self._own = threading.local()  # each thread decodes into memory of its own
        self._names: dict[int, str] = {}  # making a Path and its text takes as long as opening the file

    @property
    def labels(self) -> np.ndarray | None:
        return self.images.labels

    def __len__(self) -> int:
        return len(self.images)

    def name(self, index: int) -> str:
        name = self._names.get(index)
        if name is None:
            name = self._names[index] = str(self.images.path(index))
        return name

    def empty(self, count: int) -> Tensor:
        size = self.transform.size
        return torch.empty((count, size, size, 3), dtype=torch.uint8).permute(0, 3, 1, 2)

    def read_into(self, row: Tensor, index: int, epoch: int) -> None:
        scratch = self._own.__dict__.setdefault("scratch", Scratch())
        pixels = decode(self.name(index), target=self.transform.target, max_pixels=self.max_pixels, scratch=scratch)
        image = self.transform(pixels, seed=self.seed, epoch=epoch, index=index, out=row)
        if image is not row:
            # numpy copies without waking torch's threads; both sides are (S, S, 3) in memory
            np.copyto(row.permute(1, 2, 0).numpy(), image.permute(1, 2, 0).numpy())
