"""Distance-weighted sampling of negatives (Wu et al. 2017, section 4): uniform over distances, not over images."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from secondsight.functional.losses.pairs import positives


def log_density(distance: Float[Tensor, "*n"], *, dim: int) -> Float[Tensor, "*n"]:
    """log q(d) = (D − 2) log d + (D − 3)/2 · log(1 − d²/4), up to a constant.

    How often two random points of the unit sphere in R^D are d apart.
    """
    # Two points can be 2 apart only exactly opposite each other: log 0 is kept finite, the weight stays the largest.
    opposite = (1 - distance.square() / 4).clamp_min(torch.finfo(distance.dtype).eps)
    return (dim - 2) * distance.log() + (dim - 3) / 2 * opposite.log()


def distance_weighted_triplets(
    distance: Float[Tensor, "b b"],
    labels: Int[Tensor, " b"],
    *,
    dim: int,
    cutoff: float,
    far: float,
    generator: torch.Generator,
) -> tuple[Int[Tensor, " t"], Int[Tensor, " t"], Int[Tensor, " t"]]:
    """(anchor, positive, negative): each positive pair with one negative of weight 1 / q(max(d, cutoff)), d < far.

    Weights are normalised for each anchor by itself (a softmax of −log q), so none is lost to underflow. An anchor with
    no negative nearer than ``far`` draws uniformly among its negatives (the authors' code: among all images).
    """
    index, real = positives(labels)
    negative = labels[:, None] != labels[None, :]
    if not (index.shape[1] and negative.any()):
        empty = labels.new_empty(0)
        return empty, empty, empty
    log_weight = -log_density(distance.detach().clamp_min(cutoff), dim=dim)
    near = negative & (distance.detach() < far)
    usable = torch.where(near.any(1, keepdim=True), near, negative)
    log_weight = torch.where(near, log_weight, 0.0).masked_fill(~usable, -torch.inf)
    # An anchor whose class fills the batch has no negative; its row must only be well defined.
    log_weight = torch.where(usable.any(1, keepdim=True), log_weight, 0.0)
    drawn = torch.multinomial(log_weight.softmax(1), index.shape[1], replacement=True, generator=generator)
    row, column = (real & usable.any(1, keepdim=True)).nonzero(as_tuple=True)
    return row, index[row, column], drawn[row, column]
