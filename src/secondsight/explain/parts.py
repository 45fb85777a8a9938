"""An image in parts: places that lie together and say the same become one vector each, so small things are found.

k-means on (contribution's direction, position): places near each other that add the same to the embedding. The seeds
are the strongest place, then whatever is farthest from all seeds so far, weighed by its strength; nothing is drawn by
chance. Each part is then pooled by itself, from features that are there already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from secondsight.errors import ConfigError
from secondsight.explain import algebra
from secondsight.explain.geometry import Box

if TYPE_CHECKING:
    from secondsight.explain.places import Places

NEARNESS = 4.0
"""How much the width of the image weighs against two directions that have nothing in common (whose distance is √2)."""

ROUNDS = 8


@dataclass(frozen=True, eq=False)
class Part:
    """A part of an image: its own embedding, and where it is."""

    vector: np.ndarray  # (D,) of unit length
    mask: np.ndarray  # (h, w) bool: its places
    box: Box  # around its places, on the whole original
    strength: float  # of its places' contributions, as a share of all


def parts(places: Places, count: int = 8) -> list[Part]:
    """The image in at most ``count`` parts, strongest first.

    Args:
        places: Of the image.
        count: Parts, at least 1; an image has no more than it has places.
    """
    if count < 1:
        raise ConfigError(f"an image has at least 1 part, got {count}")
    points, weights = _described(places)
    group = grouped(points, weights, min(count, int((weights > 0).sum())))
    made = []
    masks = torch.stack([torch.from_numpy(group == number) for number in range(group.max() + 1)])
    z = places.pooled(masks)
    vectors = (algebra.unit_scale(z, places.model.config.normalise) * z).float().numpy()
    for mask, vector in zip(masks.numpy(), vectors, strict=True):
        shape = mask.reshape(places.grid)
        strength = float(weights[mask].sum() / max(weights.sum(), algebra.TINY))
        made.append(Part(vector, shape, around(places, shape), strength))
    return sorted(made, key=lambda part: -part.strength)


def vectors(places: Places, count: int = 8) -> np.ndarray:
    """(count, D): the embedding of the whole, then those of ``count − 1`` parts; the whole again where parts lack."""
    found = [places.vector, *(part.vector for part in (parts(places, count - 1) if count > 1 else []))]
    return np.stack(found + [places.vector] * (count - len(found)))


def grouped(points: np.ndarray, weights: np.ndarray, count: int) -> np.ndarray:
    """(L,) group 0 … of each point: weighted k-means without chance; −1 where a point weighs nothing."""
    real = np.flatnonzero(weights > 0)
    if not len(real):
        return np.zeros(len(points), int)
    x, w = points[real], weights[real]
    seeds = [int(w.argmax())]
    nearest = ((x - x[seeds[0]]) ** 2).sum(1)
    while len(seeds) < count:
        seeds.append(int((nearest * w).argmax()))
        nearest = np.minimum(nearest, ((x - x[seeds[-1]]) ** 2).sum(1))
    centres = x[seeds]
    group = np.zeros(len(x), int)
    for _ in range(ROUNDS):
        distance = (x**2).sum(1)[:, None] - 2 * x @ centres.T + (centres**2).sum(1)
        group = distance.argmin(1)
        member = (group[:, None] == np.arange(count)) * w[:, None]
        total = member.sum(0)
        centres = np.where(total[:, None] > 0, member.T @ x / np.maximum(total, algebra.TINY)[:, None], centres)
    _, group = np.unique(group, return_inverse=True)  # no empty groups
    result = np.full(len(points), -1)
    result[real] = group
    return result


def around(places: Places, mask: np.ndarray) -> Box:
    """The box around some places, on the whole original."""
    rows, columns = np.nonzero(mask)
    left, top, *_ = places.frame.place(int(rows.min()), int(columns.min()))
    *_, right, bottom = places.frame.place(int(rows.max()), int(columns.max()))
    return left, top, right, bottom


def _described(places: Places) -> tuple[np.ndarray, np.ndarray]:
    """What k-means sees of each place, and how much the place weighs."""
    with torch.no_grad():
        what = places.scaled if places.additive else places.model.reduced(places.features)[0].double()
    values = what.cpu().numpy()
    weights = np.linalg.norm(values, axis=1)
    if places.mask is not None:
        weights = np.where(places.mask.numpy(), weights, 0.0)
    directions = values / np.maximum(weights, algebra.TINY)[:, None]
    rows, columns = np.divmod(np.arange(len(places)), places.grid[1])
    positions = np.stack([rows / places.grid[0], columns / places.grid[1]], 1)
    return np.concatenate([directions, NEARNESS * positions], 1), weights
