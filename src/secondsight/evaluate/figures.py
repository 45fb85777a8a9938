"""The figures that an embedding is judged by: one list for training, tables, comparisons, the terminal and the page.

A figure is the mean of a number that every query has. To add one, add an entry to ``FIGURES``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class QueryRanks(NamedTuple):
    """What a figure is computed from, one entry a query that has a positive; see ``functional.ranking.ranks``."""

    first: np.ndarray  # rank of the best positive, counted from 1
    r_precision: np.ndarray
    map_at_r: np.ndarray


@dataclass(frozen=True)
class Figure:
    name: str  # in files and recipes
    title: str  # for people
    of: Callable[[QueryRanks], np.ndarray]
    meaning: str  # for the page


def recall(k: int) -> Figure:
    """1 for a query that has a positive among its K nearest."""
    return Figure(f"recall@{k}", f"Recall@{k}", lambda ranks: ranks.first <= k, "")


FIGURES = {
    figure.name: figure
    for figure in (
        Figure("map@r", "MAP@R", lambda ranks: ranks.map_at_r, "R-precision that also asks for the right ones first"),
        Figure("r-precision", "R-precision", lambda ranks: ranks.r_precision, "right ones among the R nearest"),
        Figure("mrr", "MRR", lambda ranks: 1 / ranks.first, "mean of 1 / rank of the first right item"),
    )
}
"""Those that have no K, in the order in which they are shown, after Recall@K."""

WHOLE = {"nmi": "NMI"}
"""Figures of all items together, computed where they are asked for."""


def figures(ks: Sequence[int]) -> list[Figure]:
    """Recall at each K, and the others."""
    return [*(recall(k) for k in ks), *FIGURES.values()]


def figure_names(ks: Sequence[int]) -> list[str]:
    return [figure.name for figure in figures(ks)]


def is_figure(name: str) -> bool:
    """Whether a key of a log is a figure.

    >>> is_figure("recall@4"), is_figure("map@r"), is_figure("epoch")
    (True, True, False)
    """
    return name in FIGURES or name in WHOLE or re.fullmatch(r"recall@\d+", name) is not None


def title(name: str) -> str:
    """The name of a figure as people write it."""
    return FIGURES[name].title if name in FIGURES else WHOLE.get(name, name.capitalize())
