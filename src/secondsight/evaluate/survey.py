"""What the report page draws: how similar positives and negatives are, and the nearest items of each query.

The figures of a report need counts only; a page also wants to show the pairs. Up to ``PAIRS`` pairs all queries are
used, above that as many queries as fit, drawn at random, each against the whole gallery, block by block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from secondsight.evaluate.report import Report
from secondsight.evaluate.retrieval_arguments import Array, as_indices, as_labels, as_vectors
from secondsight.functional.ranking.similarity import Metric

PAIRS = 100_000_000
BLOCK = 8_000_000  # similarities that are held at once
FINE = 4000  # bins while counting; those with something in them are merged to what can be drawn


@dataclass(frozen=True, eq=False)
class EmbeddingSurvey:
    """Similarities of ``queries`` to the gallery: higher is nearer for every metric (euclidean: minus the distance)."""

    queries: np.ndarray  # positions in the report's queries, ascending
    of: int  # queries that the report has
    edges: np.ndarray  # (bins + 1,)
    positive: np.ndarray  # (bins,) pairs of the same class
    negative: np.ndarray  # (bins,) the other pairs
    best_positive: np.ndarray  # (q,) −inf where there is none
    mean_positive: np.ndarray  # (q,) NaN where there is none
    best_negative: np.ndarray  # (q,)
    confused_with: np.ndarray  # (q,) index of the nearest negative

    @property
    def sampled(self) -> bool:
        return len(self.queries) < self.of

    @property
    def collapsed(self) -> bool:
        """Whether every pair is as similar as every other, to a thousandth: all items have become one point."""
        return len(self.positive) <= 2  # fine bins are merged only where there are more than can be drawn


@torch.no_grad()
def survey(
    embeddings: Array, labels, report: Report, *, gallery=None, pairs: int = PAIRS, bins: int = 60, seed: int = 0
) -> EmbeddingSurvey:
    """Look at the pairs behind ``report``, which ``retrieval`` made of the same embeddings, labels and gallery."""
    vectors = as_vectors(embeddings)
    classes = torch.from_numpy(as_labels(labels, len(vectors))[1])
    there = torch.from_numpy(as_indices(gallery, len(vectors), "gallery"))
    count = max(1, min(len(report.query_indices), pairs // len(there)))
    chosen = np.sort(np.random.default_rng(seed).choice(len(report.query_indices), count, replace=False))
    asked = torch.from_numpy(report.query_indices[chosen])
    low, high = _range(vectors, report.metric)
    fine = torch.zeros(2, FINE, dtype=torch.float64)
    rows: list[tuple[Tensor, ...]] = []
    for query, s in _blocks(vectors, asked, there, report.metric):
        positive = classes[query, None] == classes[there]
        everything = torch.histc(s, FINE, low, high)
        same = torch.histc(s[positive], FINE, low, high)
        fine += torch.stack([same, everything - same])
        itself = s == -torch.inf
        number = (positive & ~itself).sum(1)
        mean = s.masked_fill(~positive | itself, 0).sum(1) / number
        best = s.masked_fill(~positive, -torch.inf).amax(1)
        worst, which = s.masked_fill_(positive, -torch.inf).max(1)
        rows.append((best, mean, worst, there[which]))
    edges, positive, negative = _merged(fine.numpy(), low, high, bins)
    columns = [torch.cat(column).numpy() for column in zip(*rows, strict=True)]
    return EmbeddingSurvey(chosen, len(report.query_indices), edges, positive, negative, *columns)


@torch.no_grad()
def nearest(embeddings: Array, queries: np.ndarray, *, gallery=None, metric: str = "cosine", count: int = 5):
    """Indices and similarities (q, count) of the items nearest to some queries, which do not find themselves."""
    vectors = as_vectors(embeddings)
    there = torch.from_numpy(as_indices(gallery, len(vectors), "gallery"))
    found = [
        (there[(top := s.topk(min(count, len(there)), dim=1)).indices], top.values)
        for _, s in _blocks(vectors, torch.from_numpy(queries), there, metric)
    ]
    return tuple(torch.cat(part).numpy() for part in zip(*found, strict=True))


def _blocks(vectors: Tensor, queries: Tensor, gallery: Tensor, metric: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Some queries and their float32 similarities to the gallery; that of a query to itself is −inf."""
    b = _prepared(vectors, gallery, metric)
    column = torch.full((len(vectors),), -1)
    column[gallery] = torch.arange(len(gallery))
    for some in queries.split(max(1, BLOCK // len(gallery))):
        a = _prepared(vectors, some, metric)
        s = -torch.cdist(a, b) if metric == "euclidean" else a @ b.T
        own = column[some]
        inside = (own >= 0).nonzero().view(-1)
        s[inside, own[inside]] = -torch.inf
        yield some, s


def _prepared(vectors: Tensor, index: Tensor, metric: str) -> Tensor:
    x = vectors[index.to(vectors.device)].double()
    if metric == "cosine":
        x = torch.nn.functional.normalize(x, dim=1)
    return x.float().cpu()


def _range(vectors: Tensor, metric: Metric | str) -> tuple[float, float]:
    """Bounds that no similarity leaves, a little wider than exact ones."""
    if metric == "cosine":
        return -1.0001, 1.0001
    longest = max(float(part.double().norm(dim=1).max()) for part in vectors.split(4096)) * 1.0001 or 1.0
    return (-2 * longest, 1e-4 * longest) if metric == "euclidean" else (-(longest**2), longest**2)


def _merged(fine: np.ndarray, low: float, high: float, bins: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """At most ``bins`` bins over the part of the range where there is something."""
    used = np.flatnonzero(fine.sum(0))
    start, stop = int(used[0]), int(used[-1]) + 1
    width = -(-(stop - start) // bins)
    number = -(-(stop - start) // width)
    padded = np.zeros((2, number * width))
    padded[:, : stop - start] = fine[:, start:stop]
    step = (high - low) / fine.shape[1]
    edges = low + step * (start + width * np.arange(number + 1))
    positive, negative = padded.reshape(2, number, width).sum(2)
    return edges, positive, negative
