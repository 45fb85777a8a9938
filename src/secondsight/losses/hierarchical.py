"""Hierarchical triplet loss: the margin of a triplet follows from a tree of the classes that is rebuilt every epoch."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from secondsight.errors import ConfigError
from secondsight.functional.losses import class_tree
from secondsight.functional.losses.pairs import unit
from secondsight.functional.losses.triplets import hierarchical_triplets
from secondsight.losses.contract import Expects, Loss


class HTL(Loss):
    """½ mean over triplets of relu(|a − p|² − |a − n|² + α), α = β + d_H(y_a, y_n) − s_{y_a}, on unit vectors.

    d_H is the distance at which the classes of a and n merge in the tree, s the mean distance inside the class of a.
    ``on_epoch`` rebuilds the tree and ``neighbours``, the nearest classes of each class, which the sampler is to put
    into a batch together (anchor-neighbour sampling); −1 where there is none. Before the first ``on_epoch``
    the margin is β. That distances are squared, and that the mean is over all triplets, is our reading of the paper; no
    code of the authors' was found to check it against.
    """

    name = "htl"
    paper = "Ge et al. 2018, section 4"
    expects = Expects(2, 2, "≥ 2 images of some random classes and of the classes nearest to them")
    wants_embeddings = True
    nodes: Tensor
    thresholds: Tensor
    spreads: Tensor
    neighbours: Tensor

    def __init__(self, *, dim: int, classes: int, beta: float = 0.1, levels: int = 16, nearest: int = 8):
        super().__init__(dim=dim, classes=classes)
        if levels < 1 or nearest < 1:
            raise ConfigError(f"htl: levels and nearest must be at least 1, got {levels} and {nearest}")
        self.beta, self.levels, self.nearest = beta, levels, min(nearest, classes - 1)
        # One node, no spread, nothing near: α = β until there is a tree.
        self.register_buffer("nodes", torch.zeros(levels + 1, classes, dtype=torch.long))
        self.register_buffer("thresholds", torch.zeros(levels + 1))
        self.register_buffer("spreads", torch.zeros(classes))
        self.register_buffer("neighbours", torch.full((classes, self.nearest), -1))

    @torch.no_grad()
    def on_epoch(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Rebuild the tree from the embeddings of the training set."""
        means, counts = class_tree.class_means(batches, classes=self.classes, dim=self.dim)
        distances = class_tree.class_distances(means.float(), counts > 0)
        spreads = class_tree.class_spreads(means, counts)
        thresholds = class_tree.level_thresholds(spreads, counts, levels=self.levels)
        self.nodes.copy_(class_tree.merge_classes(distances, thresholds.float()))
        self.thresholds.copy_(thresholds)
        self.spreads.copy_(spreads)
        nearest = class_tree.nearest_classes(distances, k=self.nearest)
        self.neighbours.copy_(nearest.masked_fill(counts[nearest] == 0, -1))

    def margins(self, anchors: Int[Tensor, " r"], negatives: Int[Tensor, " b"]) -> Float[Tensor, "r b"]:
        """α = β + d_H(y_a, y_n) − s_{y_a} for classes of anchors and of negatives."""
        merging = class_tree.merging_distance(self.nodes, self.thresholds, anchors, negatives)
        return self.beta + merging - self.spreads[anchors][:, None]

    def compute(self, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        self.check_range(labels)
        return hierarchical_triplets(unit(z), labels, lambda here: self.margins(labels[here], labels).to(z.dtype))
