"""Batch samplers: which images each training step sees. Deterministic, sharded without overlap, resumable mid-epoch.

    Sequential      in order, each image once: evaluation
    ClassBalanced   P classes × K images: what metric-learning losses need
    Neighbours      anchor classes with their nearest ones (in ``neighbours``): hierarchical triplet loss

All of them know the whole epoch in advance: ``sampler[b]`` is this process's share of global batch b. The global
batches are the same whatever the number of processes; process r of W gets the r-th of W equal parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np

from secondsight.data.loading import batch_plan as planning
from secondsight.errors import ConfigError, DataError

Plan: TypeAlias = "Sequence[np.ndarray] | np.ndarray"
"""Global batches, each an array of image numbers of any shape."""


class BatchSampler:
    """What all samplers share: an epoch, a position in it, and this process's share of every batch."""

    def __init__(self, *, seed: int, rank: int, world_size: int):
        if not 0 <= rank < world_size:
            raise ConfigError(
                f"{type(self).__name__}: rank {rank} is not one of {world_size} processes (0 … {world_size - 1})"
            )
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0
        self.position = 0  # batches of this epoch that have been handed out
        self._resume = 0
        self._planned: tuple[object, Plan] | None = None

    def plan(self, epoch: int) -> Plan:
        """The global batches of an epoch."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Batches in an epoch, those already handed out included."""
        return len(self._batches())

    def __getitem__(self, batch: int) -> np.ndarray:
        """The image numbers of this process in global batch ``batch``; empty when a short last batch leaves it none."""
        return np.array_split(np.asarray(self._batches()[batch]).reshape(-1), self.world_size)[self.rank]

    def __iter__(self) -> Iterator[np.ndarray]:
        """The batches of the epoch; after ``turn_to`` from its position on."""
        for batch in range(self.begin(), len(self)):
            self.position = batch + 1  # before the batch is used: a state that is saved meanwhile goes on after it
            yield self[batch]

    def begin(self) -> int:
        """Where to start: 0, or once after ``turn_to`` its position."""
        start, self._resume = self._resume, 0
        self.position = start
        return start

    def turn_to(self, epoch: int, position: int = 0) -> None:
        """Go to a batch of an epoch, where the next walk begins: the same settings make the same batches again."""
        if epoch < 0:
            raise ConfigError(f"{type(self).__name__}: epoch must be 0 or more, got {epoch}")
        self.epoch, self.position, self._resume = epoch, position, position

    def _batches(self) -> Plan:
        if self._planned is None or self._planned[0] != self.epoch:
            self._planned = (self.epoch, self.plan(self.epoch))
        return self._planned[1]


class Sequential(BatchSampler):
    """0 … n − 1 in order, each once. ``batch_size`` counts the images of all processes together."""

    def __init__(self, n: int, batch_size: int, *, rank: int = 0, world_size: int = 1):
        super().__init__(seed=0, rank=rank, world_size=world_size)
        self.n, self.batch_size = n, at_least_one("batch_size", batch_size)

    def plan(self, epoch: int) -> list[np.ndarray]:
        return planning.in_order(self.n, self.batch_size)


class ClassBalanced(BatchSampler):
    """P×K batches: ``classes_per_batch`` different classes, ``images_per_class`` images of each.

    The rules, for a class with n images and m = ⌈n / K⌉ chunks of K:

    - No class is twice in a batch, and no image twice unless its class has fewer than K: then its images are repeated
      as evenly as they go (a class of one image is its own positive: without augmentation it only serves as a negative;
      ``min_images=2`` leaves such classes out).
    - No image of a class comes again before all of its class have come.
    - An epoch has ⌈Σ m / P⌉ batches and shows every image once, a few more than once to fill the last chunk of a class
      and the last batch. A class with more chunks than the epoch has batches cannot be shown whole: it continues in the
      next epoch where it stopped, and its places go to the classes with the fewest visits.
    - The visits of a class are spread evenly over the epoch; with classes of one size, all come before any comes again.
    """

    def __init__(
        self,
        labels: np.ndarray,
        classes_per_batch: int,
        images_per_class: int,
        *,
        seed: int = 0,
        min_images: int = 1,
        rank: int = 0,
        world_size: int = 1,
    ):
        super().__init__(seed=seed, rank=rank, world_size=world_size)
        self.classes_per_batch = at_least_one("classes_per_batch", classes_per_batch)
        self.images_per_class = at_least_one("images_per_class", images_per_class)
        self.classes = classes_of(labels, classes_per_batch, min_images, world_size)

    def plan(self, epoch: int) -> np.ndarray:
        return planning.balanced(self.classes, self.classes_per_batch, self.images_per_class, self.seed, epoch)


def at_least_one(name: str, value: int) -> int:
    if value < 1:
        raise ConfigError(f"{name} must be at least 1, got {value}")
    return value


def classes_of(labels: np.ndarray, per_batch: int, min_images: int, world_size: int) -> planning.ClassMembers:
    labels = np.asarray(labels)
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise DataError(f"labels must be whole numbers, one per image, got {labels.dtype} of shape {labels.shape}")
    classes = planning.by_label(labels, min_images=min_images)
    if len(classes) < per_batch:
        least = f" with {min_images} images or more" if min_images > 1 else ""
        raise ConfigError(
            f"a batch of {per_batch} different classes needs as many, but there are {len(classes)}{least}; "
            f"lower classes_per_batch to {len(classes)} or less"
        )
    if per_batch % world_size:
        raise ConfigError(
            f"{per_batch} classes per batch cannot be shared equally by {world_size} processes; "
            f"use {max(1, per_batch // world_size) * world_size}"
        )
    return classes
