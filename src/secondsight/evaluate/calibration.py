"""What a score means: how likely a hit is a match, learned from pairs of a collection, or of validation pictures.

With labels, pairs of items say how often a pair this similar is of one class,

    P(same | s) = (pairs of one class with score s) / (all pairs with score s),

made monotone (isotonic regression, pool adjacent violators: Ayer et al. 1955). How far off it is, is measured on
classes that it was not fitted on.

Without labels nobody knows what a match is, but the collection's own pairs say how often pictures are so similar: with
t(s) the share of pairs with a score of s or more, a query meets e(s) = n·t(s) pictures of that similarity in any case.
If one of them is the match that was looked for, a hit is it with a chance of

    1 / (1 + e(s)).

That is careful where a collection has many pictures of each subject, for these are among its pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from secondsight.calibration import Calibration

QUERIES, GALLERY = 1000, 20_000
"""Items that are compared to learn from: every one of the first with every one of the second."""

BINS = 400
LIKELY = 0.5
"""With labels: a hit is shown as a match if it is more likely one than not."""

EXPECTED = 3.0
"""Without labels: a hit is shown as a match if a query meets no more than so many pictures that are as similar."""


def isotonic(x: np.ndarray, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The non-decreasing values at ascending ``x`` that are nearest to ``y`` in weighted squares."""
    from scipy.optimize import isotonic_regression

    return isotonic_regression(y, weights=weight, increasing=True).x


@dataclass(frozen=True)
class Pairs:
    """How many pairs of one class and of two fall into each bin of scores."""

    edges: np.ndarray  # (bins + 1,)
    same: np.ndarray  # (bins,)
    other: np.ndarray

    @classmethod
    def count(
        cls, vectors: np.ndarray, labels: np.ndarray, queries: np.ndarray, parts: np.ndarray | None = None
    ) -> Pairs:
        """Of every row in ``queries`` with every other row of ``vectors`` (n, dim) and ``labels`` (n,); with ``parts``
        (p, n, dim) a pair has the best of its scores.
        """
        edges = np.linspace(-1, 1, BINS + 1)
        same, other = np.zeros(BINS), np.zeros(BINS)
        for part in np.array_split(queries, max(1, len(queries) // 100)):
            scores = vectors[part] @ vectors.T
            for others in () if parts is None else parts:
                np.maximum(scores, vectors[part] @ others.T, out=scores)
            alike = labels[part][:, None] == labels[None]
            own = np.zeros_like(alike)
            own[np.arange(len(part)), part] = True
            bins = np.clip(((scores + 1) * (BINS / 2)).astype(np.int64), 0, BINS - 1)
            same += np.bincount(bins[alike & ~own], minlength=BINS)
            other += np.bincount(bins[~alike], minlength=BINS)
        return cls(edges, same, other)

    @property
    def middles(self) -> np.ndarray:
        return (self.edges[:-1] + self.edges[1:]) / 2

    def fitted(self) -> tuple[np.ndarray, np.ndarray]:
        """Scores and P(same | score) at the bins that have pairs."""
        total = self.same + self.other
        used = total > 0
        return self.middles[used], isotonic(self.middles[used], self.same[used] / total[used], total[used])


def from_labels(
    vectors: np.ndarray, labels: np.ndarray, *, seed: int = 0, parts: np.ndarray | None = None
) -> Calibration | None:
    """P(same class | cosine) from vectors (n, dim) of unit length and labels (n,); ``parts`` (p, n, dim): as ``Pairs``.

    None where there is nothing to learn: fewer than two classes, or no class with two items.
    """
    classes, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if len(classes) < 2 or counts.max() < 2:
        return None
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.permutation(len(vectors))[:GALLERY])
    vectors, codes = vectors[chosen], codes[chosen]
    parts = None if parts is None else parts[:, chosen]
    queries = rng.permutation(len(vectors))[:QUERIES]
    pairs = Pairs.count(vectors, codes, queries, parts)
    if not pairs.same.sum():
        return None
    x, p = pairs.fitted()
    return Calibration(
        "labels",
        *_polygon(x, p, LIKELY),
        "how often pictures of this collection that are so similar have the same label",
        int(pairs.same.sum() + pairs.other.sum()),
        _error(vectors, codes, queries, rng, parts),
    )


def _polygon(x: np.ndarray, p: np.ndarray, level: float) -> tuple[tuple[float, ...], tuple[float, ...], float]:
    """Scores, probabilities, and the score at which the line through them reaches ``level``: what is shown as a match
    and the number beside it agree, between the points, too.
    """
    x, p = np.round(x, 5), np.round(p, 6)
    first = int(np.searchsorted(p, level))
    if first == len(p):
        cut = 1.01
    elif first == 0:
        cut = -1.0
    else:
        cut = float(np.interp(level, p[first - 1 : first + 1], x[first - 1 : first + 1]))
    return tuple(x.tolist()), tuple(p.tolist()), math.ceil(1e6 * cut) / 1e6


def _error(
    vectors: np.ndarray, codes: np.ndarray, queries: np.ndarray, rng: np.random.Generator, parts: np.ndarray | None
) -> float | None:
    """Fitted on the queries of half of the classes, judged on those of the other half, and the other way round: the
    mean of |said − so| over the pairs that are said to have a chance of 2 % or more.
    """
    first = rng.permutation(codes.max() + 1)[: (codes.max() + 1) // 2]
    half = np.isin(codes[queries], first)
    off = weight = 0.0
    for mine, theirs in ((half, ~half), (~half, half)):
        fitted, others = (Pairs.count(vectors, codes, queries[m], parts) for m in (mine, theirs))
        if not fitted.same.sum() or not others.same.sum():
            continue
        said = np.interp(others.middles, *fitted.fitted())
        total = others.same + others.other
        seen = (total > 0) & (said >= 0.02)
        # Neighbouring bins are joined until each has pairs enough to say something.
        for group in np.array_split(np.flatnonzero(seen), max(1, min(20, int(seen.sum())))):
            if total[group].sum():
                gap = abs((said[group] * total[group]).sum() - others.same[group].sum())
                off, weight = off + gap, weight + total[group].sum()
    return round(off / weight, 4) if weight else None


def from_chance(
    vectors: np.ndarray, count: int, *, seed: int = 0, parts: np.ndarray | None = None
) -> Calibration | None:
    """How likely a hit is the match, if there is one, among ``count`` items like ``vectors`` (n, dim); see above."""
    if len(vectors) < 20:
        return None
    rng = np.random.default_rng(seed)
    chosen = np.sort(rng.permutation(len(vectors))[:GALLERY])
    vectors, parts = vectors[chosen], None if parts is None else parts[:, chosen]
    queries = rng.permutation(len(vectors))[:QUERIES]
    pairs = Pairs.count(vectors, np.arange(len(vectors)), queries, parts)
    total = pairs.other.sum()
    expected = count * np.cumsum(pairs.other[::-1])[::-1] / total  # at the lower edge of each bin
    return Calibration(
        "chance",
        *_polygon(pairs.edges[:-1], 1 / (1 + expected), 1 / (1 + EXPECTED)),
        "if one picture here is what was looked for: how likely it is this one and not another that is as similar",
        int(total),
    )
