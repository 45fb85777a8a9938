"""Pictures from files to batches of bytes: read, decode, transform, in threads, ahead of the training step."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from secondsight.data.loading.batches import Batch, BatchLoader
from secondsight.data.loading.decode import Scratch, Source, decode
from secondsight.data.loading.limits import MAX_PIXELS
from secondsight.data.loading.samplers import BatchSampler
from secondsight.data.loading.transforms import Transform

__all__ = ["Batch", "Images", "Loader", "Pictures", "read_image"]


class Images(Protocol):
    """All that loading needs of a set of images; ``ImageSet`` is one."""

    @property
    def labels(self) -> np.ndarray | None: ...

    def __len__(self) -> int: ...

    def path(self, i: int) -> Path: ...


class Loader(BatchLoader):
    """Batches of uint8 images (b, 3, S, S), channels last in memory, un-normalised: that is the backbone's business.

    Random transforms draw from (seed, epoch, index). The other options are those of ``BatchLoader``.
    """

    def __init__(
        self,
        images: Images,
        transform: Transform,
        *,
        batches: BatchSampler | None = None,
        batch_size: int | None = None,
        workers: int | None = None,
        seed: int = 0,
        strict: bool = False,
        substitute: bool = False,
        prefetch: int = 4,
        pin_memory: bool = False,
        max_pixels: int = MAX_PIXELS,
    ):
        super().__init__(
            Pictures(images, transform, seed=seed, max_pixels=max_pixels),
            batches=batches,
            batch_size=batch_size,
            workers=workers,
            prefetch=prefetch,
            strict=strict,
            substitute=substitute,
            pin_memory=pin_memory,
        )


class Pictures:
    """Rows of a batch that are decoded from files."""

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


def read_image(source: Source, transform: Transform, *, seed: int = 0, epoch: int = 0, index: int = 0) -> Tensor:
    """One picture from a file or from bytes, (3, S, S) uint8: exactly what a ``Loader`` would give."""
    return transform(decode(source, target=transform.target), seed=seed, epoch=epoch, index=index)
