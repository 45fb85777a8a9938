"""Batches of classes that are near each other, where the hard negatives are."""

from __future__ import annotations

import numpy as np

from secondsight.data.loading import batch_plan as planning
from secondsight.data.loading.samplers import BatchSampler, at_least_one, classes_of
from secondsight.errors import ConfigError, RunError


class Neighbours(BatchSampler):
    """``anchors`` groups of ``group`` classes, ``images_per_class`` images of each.

    ``neighbours[c]`` lists the classes nearest to class c, nearest first; c itself is skipped. It may be replaced by
    ``set_neighbours`` before an epoch begins, as hierarchical triplet loss does when it rebuilds its tree (Ge 2018,
    anchor-neighbour sampling). Every class is anchor before any is anchor again; an epoch has as many batches as
    ``ClassBalanced``, but classes that are near many others come more often.
    """

    def __init__(
        self,
        labels: np.ndarray,
        neighbours: np.ndarray,
        *,
        anchors: int,
        group: int,
        images_per_class: int,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ):
        super().__init__(seed=seed, rank=rank, world_size=world_size)
        self.anchors = at_least_one("anchors", anchors)
        self.group = at_least_one("group", group)
        self.images_per_class = at_least_one("images_per_class", images_per_class)
        self.classes = classes_of(labels, anchors * group, 1, world_size)
        self.neighbours = self._checked(neighbours)

    def set_neighbours(self, neighbours: np.ndarray) -> None:
        """Use another table; not in the middle of an epoch, where what was shown already would no longer be known."""
        if 0 < self.position < len(self):
            raise RunError(f"Neighbours: epoch {self.epoch} has begun; change the table between epochs")
        self.neighbours = self._checked(neighbours)
        self._planned = None

    def _checked(self, neighbours: np.ndarray) -> np.ndarray:
        table, c = np.asarray(neighbours, np.int64), len(self.classes)
        if table.ndim != 2 or table.shape[0] != c or table.shape[1] < self.group - 1:
            raise ConfigError(
                f"Neighbours: the table must have {c} rows (one per class) of at least {self.group - 1} classes, "
                f"got shape {table.shape}"
            )
        if table.size and not 0 <= table.min() <= table.max() < c:
            raise ConfigError(
                f"Neighbours: classes are numbered 0 … {c - 1}, got {table.min()} … {table.max()} in the table"
            )
        return table

    def plan(self, epoch: int) -> np.ndarray:
        return planning.around_anchors(
            self.classes, self.neighbours, self.anchors, self.group, self.images_per_class, self.seed, epoch
        )
