"""The class tree of hierarchical triplet loss (Ge et al. 2018, section 4.1): classes merged at rising distances."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from secondsight.functional.losses.pairs import unit

FARTHEST = 4.0  # the largest squared distance of two unit vectors
_ROWS = 1024  # rows of the distance matrix that are copied at a time: with 10,000 classes it is 400 MB


def class_means(
    batches: Iterable[tuple[Tensor, Tensor]], *, classes: int, dim: int
) -> tuple[Float[Tensor, "c d"], Int[Tensor, " c"]]:
    """The mean unit vector and the number of images of each class, from batches of (embeddings, labels)."""
    sums = torch.zeros(classes, dim, dtype=torch.float64)
    counts = torch.zeros(classes, dtype=torch.long)
    for z, labels in batches:
        labels = labels.cpu().long()
        sums.index_add_(0, labels, unit(z.detach().cpu().double()))
        counts += torch.bincount(labels, minlength=classes)
    return sums / counts.clamp_min(1)[:, None], counts


def class_distances(means: Float[Tensor, "c d"], present: Bool[Tensor, " c"]) -> Float[Tensor, "c c"]:
    """d(p, q) = 1/(n_p n_q) Σ_{i∈p, j∈q} |r_i − r_j|² for unit vectors r: that is 2 − 2⟨μ_p, μ_q⟩, in [0, 4].

    A class without images is as far as can be from all others.
    """
    distances = (means @ means.T).mul_(-2).add_(2).clamp_(0, FARTHEST)
    distances[~present] = FARTHEST
    distances[:, ~present] = FARTHEST
    return distances


def class_spreads(means: Float[Tensor, "c d"], counts: Int[Tensor, " c"]) -> Float[Tensor, " c"]:
    """s_c = 1/(n² − n) Σ_{i≠j∈c} |r_i − r_j|² for unit vectors r: 2n/(n − 1) · (1 − |μ_c|²); 0 for one image."""
    n = counts.to(means.dtype)
    several = counts > 1
    spread = 2 * n / (n - 1).clamp_min(1) * (1 - means.square().sum(1)).clamp_min(0)
    return torch.where(several, spread, 0.0)


def level_thresholds(spreads: Float[Tensor, " c"], counts: Int[Tensor, " c"], *, levels: int) -> Float[Tensor, " l"]:
    """d_l = l(4 − d_0)/L + d_0 for l = 0…L, where d_0 is the mean spread of the classes."""
    several = counts > 1
    d0 = spreads[several].mean() if several.any() else spreads.new_zeros(())
    return torch.linspace(0, 1, levels + 1, dtype=spreads.dtype) * (FARTHEST - d0) + d0


def merge_classes(distances: Float[Tensor, "c c"], thresholds: Float[Tensor, " l"]) -> Int[Tensor, "l c"]:
    """The node that each class belongs to at each level; at level l the classes nearer than d_l are merged.

    Merging is transitive, so the nodes of a level are the connected components of {(p, q): d(p, q) < d_l}: single
    linkage, cut at each threshold. At the top all classes are one node.
    """
    nodes = torch.zeros(len(thresholds), len(distances), dtype=torch.long)
    if len(distances) < 2:
        return nodes
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    tree = linkage(squareform(distances.numpy(), checks=False), method="single")
    for level, threshold in enumerate(thresholds[:-1].tolist()):
        below = np.nextafter(threshold, -np.inf)  # scipy merges at the threshold too
        nodes[level] = torch.from_numpy(fcluster(tree, below, criterion="distance"))
    return nodes


def merging_distance(
    nodes: Int[Tensor, "l c"], thresholds: Float[Tensor, " l"], p: Int[Tensor, " r"], q: Int[Tensor, " b"]
) -> Float[Tensor, "r b"]:
    """d_H(p, q): the threshold of the level at which the classes p and q become one node."""
    level = torch.zeros(len(p), len(q), dtype=torch.long, device=p.device)
    for of_class in nodes[:-1]:  # nodes only grow, so the level is the number of levels that tell p and q apart
        level += of_class[p][:, None] != of_class[q][None, :]
    return thresholds[level]


def nearest_classes(distances: Float[Tensor, "c c"], *, k: int) -> Int[Tensor, "c k"]:
    """The k classes nearest to each class, nearest first."""
    k = min(k, len(distances) - 1)
    found = []
    for start, rows in zip(range(0, len(distances), _ROWS), distances.split(_ROWS), strict=True):
        own = torch.arange(start, start + len(rows))[:, None]
        found.append(rows.scatter(1, own, torch.inf).topk(k, dim=1, largest=False).indices)
    return torch.cat(found)
