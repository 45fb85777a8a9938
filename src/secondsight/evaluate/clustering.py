"""Do clusters found without labels agree with the classes? k-means, then normalised mutual information."""

from __future__ import annotations

import numpy as np

from secondsight.progress import track

ITERATIONS = 20


def cluster(x: np.ndarray, k: int, *, seed: int = 0) -> np.ndarray:
    """The cluster of each row of ``x`` (n, d): Lloyd's k-means from k rows drawn at random, ``ITERATIONS`` rounds."""
    import faiss

    x = np.ascontiguousarray(x, np.float32)
    centres = x[np.random.default_rng(seed).choice(len(x), size=k, replace=False)]
    engine = faiss.Kmeans(
        x.shape[1], k, niter=1, seed=seed, min_points_per_centroid=1, max_points_per_centroid=max(len(x), 1)
    )
    for _ in track(range(ITERATIONS), "clustering"):
        engine.train(x, init_centroids=centres)  # one round at a time, for the bar's sake
        assert engine.centroids is not None
        centres = engine.centroids
    nearest = faiss.IndexFlatL2(x.shape[1])
    nearest.add(np.ascontiguousarray(centres))
    return nearest.search(x, 1)[1][:, 0]


def normalised_mutual_information(a: np.ndarray, b: np.ndarray) -> float:
    """2 I(a; b) / (H(a) + H(b)): 1 where two partitions are the same, near 0 where they have nothing to do.

    >>> normalised_mutual_information(np.array([0, 0, 1, 1]), np.array([5, 5, 3, 3]))
    1.0
    """
    pairs, n = np.unique(np.stack([a, b]), axis=1, return_counts=True)[1], len(a)
    joint = _entropy(pairs / n)
    of_a, of_b = (_entropy(np.unique(x, return_counts=True)[1] / n) for x in (a, b))
    return 1.0 if of_a + of_b == 0 else max(0.0, 2 * (of_a + of_b - joint) / (of_a + of_b))


def _entropy(p: np.ndarray) -> float:
    return float(-(p * np.log(p)).sum())
