"""Links that agree in space: one displacement and flip explains them all, or they are scattered.

Every link (place l of a, place m of b) votes with its value, negative ones too, for the displacement m − l, and for the
displacement after a flip of a. The best displacement's sum, its eight neighbours counted less, is the part of the
similarity that one movement of the image explains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from secondsight.errors import ConfigError

if TYPE_CHECKING:
    from secondsight.explain.explanation import Explanation
    from secondsight.explain.places import Places

KERNEL = np.array([[0.25, 0.5, 0.25], [0.5, 1.0, 0.5], [0.25, 0.5, 0.25]])
"""How much a neighbouring displacement counts: objects turn, and places are coarse."""


WEIGHT = 1.0
"""Of agreement beside similarity, for re-ranking."""


class Agreement(NamedTuple):
    """The best movement from a to b, and how much of the similarity it explains."""

    score: float
    rows: int  # displacement, in places
    columns: int
    flipped: bool


def agreement(why: Explanation) -> Agreement:
    """The movement that most evidence agrees on. ``similarity + WEIGHT · score`` re-ranks results by it: that helps to
    find the same object elsewhere in an image, and does not help to find birds of one species (docs/explaining.md).
    """
    if why.links is None:
        raise ConfigError("an approximated explanation has no links that could agree in space")
    return best_movement(why.links, why.places_a.grid, why.places_b.grid)


def rerank_score(a: Places, b: Places) -> float:
    """Similarity and ``WEIGHT`` times agreement: what results are re-ranked by, without the rest of an explanation."""
    links = (a.scaled @ b.scaled.mT).numpy()
    return float(links.sum()) + WEIGHT * best_movement(links, a.grid, b.grid).score


def best_movement(links: np.ndarray, grid_a: tuple[int, int], grid_b: tuple[int, int]) -> Agreement:
    """As ``agreement``, from links (L_a, L_b) and the two grids."""
    found = []
    for flipped in (False, True):
        votes, (row, column) = movements(links, grid_a, grid_b, flipped=flipped)
        padded, smooth = np.pad(votes, 1), np.zeros_like(votes)
        for i, j in np.ndindex(3, 3):
            smooth += KERNEL[i, j] * padded[i : i + votes.shape[0], j : j + votes.shape[1]]
        y, x = np.unravel_index(int(np.argmax(smooth)), votes.shape)
        found.append(Agreement(float(smooth[y, x]), int(y) - row, int(x) - column, flipped))
    return max(found)


def movements(
    links: np.ndarray, grid_a: tuple[int, int], grid_b: tuple[int, int], *, flipped: bool
) -> tuple[np.ndarray, tuple[int, int]]:
    """The sum of links of each displacement, and the row and column that stand for none; it sums to the similarity."""
    (h, w), (high, wide) = grid_a, grid_b
    rows_a, columns_a = np.divmod(np.arange(h * w), w)
    rows_b, columns_b = np.divmod(np.arange(high * wide), wide)
    if flipped:
        columns_a = w - 1 - columns_a
    down = rows_b[None, :] - rows_a[:, None] + h - 1
    right = columns_b[None, :] - columns_a[:, None] + w - 1
    shape = (h + high - 1, w + wide - 1)
    votes = np.bincount((down * shape[1] + right).ravel(), links.ravel(), minlength=shape[0] * shape[1])
    return votes.reshape(shape), (h - 1, w - 1)
