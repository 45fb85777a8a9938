"""The pairs of a batch: unit vectors, who shares a class with whom, similarities of positive and negative pairs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

_NO_LENGTH = 1e-12  # below this a vector has no direction worth following


def unit(z: Float[Tensor, "*n d"]) -> Float[Tensor, "*n d"]:
    """z / |z|, safe at any length.

    Huge entries do not overflow: the length of z does not matter, so z is divided by its largest entry first. A vector
    that is (almost) zero has no direction; it is returned as it is, with the gradient passed through unchanged, so that
    it can leave the origin. ``torch.nn.functional.normalize`` multiplies that gradient by 1e12.

    >>> unit(torch.tensor([[3e30, 4e30], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    largest = z.detach().abs().amax(dim=-1, keepdim=True)
    zero = largest < _NO_LENGTH
    z = z / torch.where(zero, 1.0, largest)
    length = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    return z / torch.where(zero, 1.0, length)


def unit_parts(z: Float[Tensor, "*n d"], sizes: Sequence[int], scales: Sequence[float]) -> Float[Tensor, "*n d"]:
    """Cut z into parts of the given sizes, make each a unit vector, scale it, and join them again."""
    parts = z.split(list(sizes), dim=-1)
    return torch.cat([unit(part) * scale for part, scale in zip(parts, scales, strict=True)], dim=-1)


def euclidean(s: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    """Distance of two unit vectors from their cosine, √(2 − 2s); its gradient is 0 (not infinite) for equal vectors."""
    squared = 2 - 2 * s
    apart = squared > torch.finfo(s.dtype).eps
    return torch.where(apart, torch.where(apart, squared, 1.0).sqrt(), 0.0)


def pair_masks(labels: Int[Tensor, " b"]) -> tuple[Bool[Tensor, "b b"], Bool[Tensor, "b b"]]:
    """(positive, negative): pairs of two different images of one class; pairs of images of two classes."""
    same = labels[:, None] == labels[None, :]
    return same.clone().fill_diagonal_(False), ~same


def split_pairs(
    s: Float[Tensor, "b b"], labels: Int[Tensor, " b"]
) -> tuple[Float[Tensor, " positive"], Float[Tensor, " negative"]]:
    """The entries of a symmetric matrix for positive and for negative pairs; each unordered pair appears once."""
    same = labels[:, None] == labels[None, :]
    once = torch.ones_like(same).triu(1)
    return s[same & once], s[~same & once]


def positives(labels: Int[Tensor, " b"]) -> tuple[Int[Tensor, "b k"], Bool[Tensor, "b k"]]:
    """For each image the other images of its class, padded to the largest class: (index, whether the entry is real).

    >>> index, real = positives(torch.tensor([7, 5, 7, 7]))
    >>> index[0].tolist(), real.sum(1).tolist()
    ([2, 3], [2, 0, 2, 2])
    """
    order = labels.argsort(stable=True)
    _, of_class, sizes = labels.unique(return_inverse=True, return_counts=True)
    start = (sizes.cumsum(0) - sizes)[of_class]  # where the image's class begins in `order`
    place = torch.empty_like(order)
    place[order] = torch.arange(len(labels), device=labels.device)
    size = sizes[of_class][:, None]
    ahead = torch.arange(1, int(sizes.max()) if len(labels) else 1, device=labels.device)
    index = order[start[:, None] + ((place - start)[:, None] + ahead) % size]
    return index, ahead < size


def mean_or_zero(x: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """The mean, or 0 (not NaN) of nothing, still part of the graph."""
    return x.sum() / max(x.numel(), 1)


def mean_of_active(x: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """The mean over the entries above 0; 0 where there is none, still part of the graph."""
    return x.sum() / (x > 0).sum().clamp_min(1)
