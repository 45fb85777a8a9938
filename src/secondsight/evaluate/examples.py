"""The retrievals that teach most: confident errors, and hard cases that were found all the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from secondsight.evaluate.report import Label, Report
from secondsight.evaluate.retrieval_arguments import Array, as_labels
from secondsight.evaluate.survey import EmbeddingSurvey, nearest


@dataclass(frozen=True)
class Neighbour:
    index: int
    similarity: float
    label: Label
    right: bool


@dataclass(frozen=True)
class Example:
    """A query, the rank of its best positive, and the items nearest to it."""

    index: int
    label: Label
    rank: int
    neighbours: tuple[Neighbour, ...]


@dataclass(frozen=True)
class Examples:
    """``errors``: the nearest negative beats the best positive by most. ``rescued``: right at the first place, though
    the nearest negative is nearer than the class is on average, by most. At most one query a class in each.
    """

    errors: tuple[Example, ...]
    rescued: tuple[Example, ...]


def instructive(
    embeddings: Array,
    labels,
    report: Report,
    survey: EmbeddingSurvey,
    *,
    gallery=None,
    count: int = 6,
    neighbours: int = 5,
) -> Examples:
    """The most instructive retrievals among the queries that ``survey`` looked at."""
    names, numbers = as_labels(labels, len(embeddings))
    first = report.first[survey.queries]
    item = report.query_indices[survey.queries]
    lead = survey.best_negative - np.where(first > 0, survey.best_positive, np.nan)
    hardness = survey.best_negative - survey.mean_positive
    wrong = _one_a_class(np.where(first > 1, lead, np.nan), numbers[item], count)
    right = _one_a_class(np.where(first == 1, hardness, np.nan), numbers[item], count)
    chosen = np.concatenate([wrong, right])
    if not len(chosen):
        return Examples((), ())
    indices, values = nearest(embeddings, item[chosen], gallery=gallery, metric=report.metric, count=neighbours)

    def example(row: int, position: int) -> Example:
        own = numbers[item[position]]
        around = (
            Neighbour(int(i), float(s), names[numbers[i]], bool(numbers[i] == own))
            for i, s in zip(indices[row], values[row], strict=True)
            if s > -np.inf
        )
        return Example(int(item[position]), names[own], int(first[position]), tuple(around))

    made = [example(row, position) for row, position in enumerate(chosen)]
    return Examples(tuple(made[: len(wrong)]), tuple(made[len(wrong) :]))


def confusions(labels, report: Report, survey: EmbeddingSurvey) -> dict[Label, tuple[Label, int]]:
    """For each class with errors at the first place: the class that was found instead most often, and how often."""
    names, numbers = as_labels(labels, len(labels))
    wrong = report.first[survey.queries] > 1
    counts: dict[int, Counter[int]] = {}
    for own, other in zip(
        numbers[report.query_indices[survey.queries[wrong]]], numbers[survey.confused_with[wrong]], strict=True
    ):
        counts.setdefault(int(own), Counter())[int(other)] += 1
    top = {own: counter.most_common(1)[0] for own, counter in counts.items()}
    return {names[own]: (names[other], times) for own, (other, times) in top.items()}


def _one_a_class(score: np.ndarray, classes: np.ndarray, count: int) -> np.ndarray:
    """Positions of the highest scores that are not NaN, each of another class."""
    order = np.argsort(-score, kind="stable")  # NaN comes last
    order = order[np.isfinite(score[order])]
    _, seen = np.unique(classes[order], return_index=True)
    return order[np.sort(seen)][:count]
