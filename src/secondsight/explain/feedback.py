"""What a user likes and dislikes becomes a query vector; nothing is indexed again.

Examples: Rocchio, "Relevance feedback in information retrieval", 1971: q + a · mean of the liked − b · mean of the
disliked. Places and codewords: since z = Σ_l p_l, weighing them only changes the query, q = Σ_l w_l p_l with
w_l = Σ_n h_ln w_n for codewords. Weights of codewords fitted to liked and disliked examples bring next to nothing
beside Rocchio's rule (benchmarks/explain_parts.py), so there is no such fit here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from secondsight.errors import ConfigError, ShapeError

if TYPE_CHECKING:
    from secondsight.explain.places import Places

TOWARDS, AWAY = 2.0, 0.5
"""a and b: chosen among four pairs on CUB's classes 1–50 (benchmarks/explain_parts.py)."""


def refined(
    query: np.ndarray,
    liked: np.ndarray | None = None,
    disliked: np.ndarray | None = None,
    *,
    towards: float = TOWARDS,
    away: float = AWAY,
) -> np.ndarray:
    """The query (D,) after examples: vectors (k, D) of images that are what was meant, and of images that are not.

    >>> refined(np.array([1.0, 0.0]), liked=np.array([[0.0, 1.0]]), towards=1.0).round(3)
    array([0.707, 0.707], dtype=float32)
    """
    moved = query.astype(np.float64)
    for examples, weight in ((liked, towards), (disliked, -away)):
        if examples is not None and len(examples):
            if examples.ndim != 2 or examples.shape[1] != len(query):
                raise ShapeError(f"examples are vectors (k, {len(query)}), got {examples.shape}")
            moved += weight * examples.astype(np.float64).mean(0)
    return (moved / max(float(np.linalg.norm(moved)), 1e-12)).astype(np.float32)


def weighed(places: Places, *, codewords: np.ndarray | None = None, where: np.ndarray | None = None) -> np.ndarray:
    """A query (D,) of unit length in which codewords or places count more, less, or against; 1 changes nothing.

    Args:
        places: Of the query image.
        codewords: (N,) weights.
        where: (h, w) weights of places.
    """
    import torch

    from secondsight.explain import algebra

    weights = torch.ones(len(places), dtype=torch.float64)
    if codewords is not None:
        if places.assignment is None:
            raise ConfigError(
                f"{places.name}: the model has no codewords to weigh; poolings such as jcf-32-8 have them"
            )
        if codewords.shape != (places.assignment.shape[1],):
            raise ShapeError(f"the model has {places.assignment.shape[1]} codewords, got weights {codewords.shape}")
        weights = weights * (places.assignment @ torch.from_numpy(codewords.astype(np.float64)))
    if where is not None:
        if where.shape != places.grid:
            raise ShapeError(f"the image has {places.grid[0]}×{places.grid[1]} places, got weights {where.shape}")
        weights = weights * torch.from_numpy(where.astype(np.float64)).flatten()
    z = weights @ places.required()
    return (algebra.unit_scale(z, places.model.config.normalise) * z).float().numpy()
