"""Re-ranking: a second look at the first answers, in memory that does not grow with the collection.

    alpha-qe       q' = q + Σ_{i ≤ n} sᵢ^α xᵢ over the n nearest (Radenović et al. 2018), then a second search
    dba            the same for every item of the collection, in advance (Arandjelović and Zisserman 2012)
    k-reciprocal   who is among whose nearest: Jaccard distance of the neighbours' neighbours (Zhong et al. 2017),
                   within the first 200 hits

Whether it helps depends on the collection: ``gain`` measures it on labels. It is off unless asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

METHODS = ("alpha-qe", "dba", "k-reciprocal")

FIRST = 200
"""Hits that k-reciprocal looks at."""

_BLOCK = 256


def expanded(
    queries: Float[np.ndarray, "q d"],
    neighbours: Float[np.ndarray, "q n d"],
    scores: Float[np.ndarray, "q n"],
    *,
    alpha: float = 3.0,
) -> Float[np.ndarray, "q d"]:
    """α query expansion: q + Σ max(s, 0)^α x, of unit length."""
    weight = np.maximum(scores, 0.0) ** alpha
    out = queries + np.einsum("qn,qnd->qd", weight, neighbours)
    return (out / np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-12)).astype(np.float32)


def augmented(
    vectors: Float[np.ndarray, "m d"], *, neighbours: int = 5, alpha: float = 3.0
) -> Float[np.ndarray, "m d"]:
    """Database-side augmentation: every vector expanded by its nearest. One block of scores is in memory at a time."""
    out = np.empty_like(vectors, np.float32)
    for start in range(0, len(vectors), _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, len(vectors)))
        scores, found = _nearest(vectors[rows], vectors, neighbours, own=rows)
        out[rows] = expanded(vectors[rows], vectors[found], scores, alpha=alpha)
    return out


def k_reciprocal(
    query: Float[np.ndarray, " d"],
    candidates: Float[np.ndarray, "m d"],
    *,
    k1: int = 20,
    k2: int = 6,
    weight: float = 0.3,
) -> Int[np.ndarray, " m"]:
    """The order of the candidates by (1 − weight) · Jaccard distance + weight · distance, among themselves alone.

    Distances are 1 − cosine. Neighbours are sought among the candidates and the query only, (m + 1)² numbers in all:
    the whole collection's, as published, are its square.
    """
    x = np.concatenate([query[None], candidates]).astype(np.float64)
    distance = np.clip(1 - x @ x.T, 0, None)
    order = np.argsort(distance, axis=1, kind="stable")
    near = _reciprocal(order, min(k1, len(x) - 1))
    half = _reciprocal(order, max(1, round(min(k1, len(x) - 1) / 2)))
    # i takes over the nearest of its j where more than two thirds of these are its own already.
    shared = near.astype(np.float32) @ half.T.astype(np.float32)
    taken = near & (3 * shared > 2 * half.sum(1)[None])
    grown = near | (taken.astype(np.float32) @ half.astype(np.float32) > 0)
    v = np.where(grown, np.exp(-distance), 0.0)
    v /= np.maximum(v.sum(1, keepdims=True), 1e-12)
    if k2 > 1:
        v = v[order[:, :k2]].mean(1)
    overlap = np.minimum(v[0], v[1:]).sum(1)
    jaccard = 1 - overlap / (2 - overlap)
    return np.argsort((1 - weight) * jaccard + weight * distance[0, 1:], kind="stable")


def _reciprocal(order: np.ndarray, k: int) -> np.ndarray:
    """(n, n) bool: whether i and j are among each other's k nearest (an item is its own nearest)."""
    n = len(order)
    forward = np.zeros((n, n), bool)
    forward[np.arange(n)[:, None], order[:, : k + 1]] = True
    return forward & forward.T


@dataclass(frozen=True)
class Gain:
    """Recall@1 and mean average precision at R, without and with re-ranking."""

    method: str
    recall: tuple[float, float]
    map_at_r: tuple[float, float]

    @property
    def helps(self) -> bool:
        return self.map_at_r[1] > self.map_at_r[0] and self.recall[1] >= self.recall[0]


def gain(vectors: Float[np.ndarray, "m d"], labels: Int[np.ndarray, " m"], method: str) -> Gain:
    """What ``method`` brings when every item asks for others of its class; vectors of unit length."""
    plain = _ranking(vectors, vectors)
    if method == "dba":
        after = _ranking(augmented(vectors), augmented(vectors))
    elif method == "alpha-qe":
        after = np.concatenate([_second(vectors, rows) for rows in _rows(len(vectors))])
    else:
        after = np.stack([found[k_reciprocal(vectors[i], vectors[found])] for i, found in enumerate(plain)])
    return Gain(method, *(zip(_figures(plain, labels), _figures(after, labels), strict=True)))


def _second(vectors: np.ndarray, rows: np.ndarray, neighbours: int = 5) -> np.ndarray:
    scores, found = _nearest(vectors[rows], vectors, neighbours, own=rows)
    return _nearest(expanded(vectors[rows], vectors[found], scores), vectors, FIRST, own=rows)[1]


def _ranking(queries: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    return np.concatenate([_nearest(queries[rows], vectors, FIRST, own=rows)[1] for rows in _rows(len(queries))])


def _rows(n: int) -> list[np.ndarray]:
    return [np.arange(start, min(start + _BLOCK, n)) for start in range(0, n, _BLOCK)]


def _nearest(queries: np.ndarray, vectors: np.ndarray, k: int, *, own: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores and rows (q, ≤ k) of the nearest others, best first."""
    scores = queries @ vectors.T
    scores[np.arange(len(own)), own] = -np.inf
    k = min(k, len(vectors) - 1)
    found = np.argpartition(-scores, k - 1, axis=1)[:, :k]
    part = np.take_along_axis(scores, found, 1)
    order = np.argsort(-part, axis=1, kind="stable")
    return np.take_along_axis(part, order, 1), np.take_along_axis(found, order, 1)


def _figures(ranking: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Recall@1 and MAP@R (Musgrave et al. 2020) over queries that have another item of their class."""
    counts = np.bincount(labels)[labels] - 1
    asked = counts > 0
    right = labels[ranking] == labels[:, None]
    precision = right.cumsum(1) / np.arange(1, ranking.shape[1] + 1)
    within = np.arange(ranking.shape[1]) < counts[:, None]
    average = (precision * right * within).sum(1) / np.maximum(np.minimum(counts, ranking.shape[1]), 1)
    return float(right[asked, 0].mean()), float(average[asked].mean())
