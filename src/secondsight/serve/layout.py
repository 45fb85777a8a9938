"""The map: where openTSNE puts the items, so that similar pictures are near each other. Computed once, then kept."""

from __future__ import annotations

import contextlib

import numpy as np
from jaxtyping import Float

from secondsight.errors import DataError
from secondsight.extras import require
from secondsight.index import Index

AXES = 50  # principal axes that are enough to tell neighbours
MOST = 20_000  # items that are laid out by themselves; the others go where their nearest ones are


def layout(vectors: Float[np.ndarray, "n d"], *, seed: int = 0) -> Float[np.ndarray, "n 2"]:
    """Places in the unit square for vectors of unit length."""
    n = len(vectors)
    if n < 8:
        angles = 2 * np.pi * np.arange(n) / max(n, 1)
        return (0.5 + 0.35 * np.stack([np.cos(angles), np.sin(angles)], 1)).astype(np.float32)
    tsne = require("openTSNE", extra="serve", purpose="the map")
    reduced = principal(vectors, min(AXES, n - 1, vectors.shape[1]), seed=seed)
    chosen = np.sort(np.random.default_rng(seed).permutation(n)[:MOST])
    perplexity, jobs = min(30, (len(chosen) - 1) / 3), 1 if n < 5000 else -1  # threads would only wait for each other
    made = tsne.TSNE(perplexity=perplexity, initialization="pca", random_state=seed, n_jobs=jobs).fit(reduced[chosen])
    places = np.zeros((n, 2))
    places[chosen] = np.asarray(made)
    rest = np.setdiff1d(np.arange(n), chosen)
    if len(rest):
        import faiss

        nearest = faiss.IndexFlatL2(reduced.shape[1])
        nearest.add(np.ascontiguousarray(reduced[chosen]))
        _, found = nearest.search(np.ascontiguousarray(reduced[rest]), 5)
        places[rest] = places[chosen][found].mean(1)
    return squared(places)


def principal(vectors: Float[np.ndarray, "n d"], axes: int, *, seed: int = 0) -> Float[np.ndarray, "n k"]:
    """Along the axes in which a sample of the vectors differs most."""
    some = vectors[np.sort(np.random.default_rng(seed).permutation(len(vectors))[:5000])].astype(np.float64)
    mean = some.mean(0)
    _, directions = np.linalg.eigh(np.cov(some - mean, rowvar=False))
    return ((vectors - mean) @ directions[:, ::-1][:, :axes]).astype(np.float32)


def squared(places: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"]:
    """Into the unit square, without changing the proportions."""
    low, high = places.min(0), places.max(0)
    side = max(float((high - low).max()), 1e-9)
    return ((places - (low + high) / 2) / side * 0.96 + 0.5).astype(np.float32)


def current(index: Index) -> tuple[np.ndarray, np.ndarray] | None:
    """The map that is kept, if it still fits: most items have a place."""
    ids, places = index.map()
    alive = np.isin(ids, index.ids())
    return (ids[alive], places[alive]) if len(ids) and alive.sum() >= 0.95 * len(index) else None


def computed(index: Index) -> tuple[np.ndarray, np.ndarray]:
    """A new map, kept in the index where that can be written."""
    ids = index.ids()
    places = layout(index.vectors(ids)) if len(ids) else np.zeros((0, 2), np.float32)
    with contextlib.suppress(DataError, OSError):  # a read-only index has its map as long as the server runs
        index.set_map(ids, places)
    return ids, places
