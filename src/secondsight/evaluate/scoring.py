"""``retrieval``: from embeddings and labels to a report. ``functional.ranks`` gives ranks; here they are averaged.

The protocol. Every query is compared with the whole gallery but itself (left out by its index, never by its rank: a
duplicate of the query is an item like any other). Items of the query's class are positives. Ties count against the
query, so that an embedding that has collapsed to a point scores near zero, not near one. A query without a positive
cannot be answered by anyone: it is left out of every average, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from secondsight.errors import ConfigError, require_known
from secondsight.evaluate.bootstrap import Resample, intervals
from secondsight.evaluate.figures import QueryRanks, figures
from secondsight.evaluate.report import ClassFigures, Interval, Label, Report
from secondsight.evaluate.retrieval_arguments import Array, as_indices, as_ks, as_labels, as_vectors, check_classes
from secondsight.functional.ranking.ranks import positive_ranks
from secondsight.functional.ranking.similarity import METRICS, Metric
from secondsight.progress import bar


def retrieval(
    embeddings: Array,
    labels: Array | Sequence[Label],
    *,
    queries: Array | Sequence[int] | None = None,
    gallery: Array | Sequence[int] | None = None,
    ks: Sequence[int] = (1, 2, 4, 8),
    metric: Metric = "cosine",
    nmi: bool = False,
    bootstrap: int = 1000,
    level: float = 0.95,
    resample: Resample = "queries",
    seed: int = 0,
    progress: Callable[[float], None] | None = None,
) -> Report:
    """Recall@K, MAP@R, R-precision and MRR of every query against the gallery, exactly.

    Args:
        embeddings: (n, d), numpy or torch, any real type; they need not be normalised.
        labels: n integers or names.
        queries, gallery: Indices or masks; all items unless given. They may overlap: a query never finds itself.
        ks: The K of Recall@K, in any order. A K of the gallery's size or more is allowed: every positive is then found.
        metric: ``cosine``, ``dot`` or ``euclidean``.
        nmi: Also cluster the items (k-means, as many clusters as classes) and compare with the classes; slow.
        bootstrap: Resamples behind the intervals; 0 for none.
        level: Of the intervals.
        resample: Whether ``queries`` or whole ``classes`` are drawn again, see ``bootstrap``.
        seed: Of the resampling and of the clustering.
        progress: Called with the share of the work done since its last call; None shows a bar on a terminal.

    >>> x = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> report = retrieval(x, ["cat", "cat", "dog", "dog"])
    >>> report.recall[1], report.map_at_r
    (1.0, 1.0)
    """
    require_known("metric", metric, METRICS)
    if isinstance(bootstrap, bool) or bootstrap < 0:
        raise ConfigError(f"bootstrap is a number of resamples ≥ 0, got {bootstrap!r}")
    kept = as_ks(ks)
    vectors = as_vectors(embeddings)
    names, numbers = as_labels(labels, len(vectors))
    asked = as_indices(queries, len(vectors), "queries")
    there = as_indices(gallery, len(vectors), "gallery")
    check_classes(names, numbers, asked, there)
    with _advancing(progress, len(asked)) as advance:
        ranks = positive_ranks(
            vectors,
            *(torch.from_numpy(i).to(vectors.device) for i in (numbers, asked, there)),
            metric=metric,
            progress=advance,
        )
    first, average = ranks.first.cpu().numpy(), ranks.map_at_r.cpu().numpy()
    found = first > 0
    of_queries = QueryRanks(*(field.cpu().numpy()[found] for field in (ranks.first, ranks.r_precision, ranks.map_at_r)))
    chosen = figures(kept)
    scores = np.stack([figure.of(of_queries) for figure in chosen], axis=1, dtype=np.float64)
    columns = [figure.name for figure in chosen]
    means = dict(zip(columns, scores.mean(0).tolist(), strict=True))
    if nmi:
        means["nmi"] = _nmi(vectors, numbers, np.union1d(asked, there), metric, seed)
    own = numbers[asked][found]
    bounds = (
        intervals(scores, own, times=bootstrap, level=level, resample=resample, seed=seed).tolist() if bootstrap else []
    )
    return Report(
        figures=means,
        intervals={name: Interval(*pair) for name, pair in zip(columns, bounds, strict=False)},
        level=level,
        resample=resample,
        per_class=_per_class(names, own, scores, columns),
        queries=len(asked),
        gallery=len(there),
        classes=len(np.union1d(numbers[asked], numbers[there])),
        without_positives=int((~found).sum()),
        chance=_chance(ranks.positives.cpu().numpy()[found], np.isin(asked, there)[found], len(there)),
        metric=metric,
        query_indices=asked,
        first=first,
        average_precision=average,
    )


@contextmanager
def _advancing(progress: Callable[[float], None] | None, queries: int) -> Iterator[Callable[[float], None]]:
    if progress is not None:
        yield progress
        return
    with bar(unit="queries") as display:
        task = display.add_task("ranking", total=queries, note="")
        yield lambda share: display.advance(task, share * queries)


def _chance(positives: np.ndarray, inside: np.ndarray, gallery: int) -> float:
    """Recall@1 of a gallery in random order: the share of positives among what a query is compared with."""
    return float((positives / (gallery - inside)).mean())


def _per_class(
    names: list[Label], own: np.ndarray, scores: np.ndarray, columns: Sequence[str]
) -> dict[Label, ClassFigures]:
    used, number, count = np.unique(own, return_inverse=True, return_counts=True)
    rows = np.stack([np.bincount(number, column) / count for column in scores.T], axis=1).tolist()
    return {
        names[label]: ClassFigures(queries=n, figures=dict(zip(columns, row, strict=True)))
        for label, n, row in zip(used.tolist(), count.tolist(), rows, strict=True)
    }


def _nmi(vectors: torch.Tensor, labels: np.ndarray, items: np.ndarray, metric: Metric, seed: int) -> float:
    from secondsight.evaluate.clustering import cluster, normalised_mutual_information

    x = vectors[torch.from_numpy(items).to(vectors.device)].float().cpu()
    if metric == "cosine":
        x = torch.nn.functional.normalize(x, dim=1)
    clusters = cluster(x.numpy(), len(np.unique(labels[items])), seed=seed)
    return normalised_mutual_information(clusters, labels[items])
