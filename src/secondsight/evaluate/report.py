"""What an evaluation found: averages, how sure they are, and the queries behind them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from rich import box
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from secondsight.evaluate.figures import title

Label = int | str


class Interval(NamedTuple):
    """Where the figure would be in ``Report.level`` of the repetitions, see ``bootstrap``."""

    low: float
    high: float


@dataclass(frozen=True)
class ClassFigures:
    """Averages over the queries of one class that have a positive."""

    queries: int
    figures: dict[str, float]

    @property
    def recall(self) -> dict[int, float]:
        return recalls(self.figures)

    @property
    def map_at_r(self) -> float:
        return self.figures["map@r"]


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """Retrieval figures, from 0 to 1. Averages are over the queries that have a positive in the gallery.

    ``first`` and ``average_precision`` have one entry a query, in the order of ``query_indices``: the rank of its best
    positive counted from 1 (0 without a positive), and its MAP@R (NaN without).
    """

    figures: dict[str, float]  # every average by its name, see ``evaluate.figures``; ``nmi`` if asked for
    intervals: dict[str, Interval]  # by the names of ``figures``; empty with bootstrap=0
    level: float
    resample: str
    per_class: dict[Label, ClassFigures]
    queries: int
    gallery: int
    classes: int
    without_positives: int
    chance: float  # expected Recall@1 of a random order
    metric: str
    query_indices: np.ndarray
    first: np.ndarray
    average_precision: np.ndarray

    @property
    def recall(self) -> dict[int, float]:
        """Recall@K by K."""
        return recalls(self.figures)

    @property
    def map_at_r(self) -> float:
        return self.figures["map@r"]

    @property
    def r_precision(self) -> float:
        return self.figures["r-precision"]

    @property
    def mrr(self) -> float:
        return self.figures["mrr"]

    @property
    def nmi(self) -> float | None:
        return self.figures.get("nmi")

    def worst(self, count: int = 10) -> list[tuple[Label, ClassFigures]]:
        """The classes with the lowest recall at the smallest K, and among equals the lowest MAP@R."""
        k = min(self.recall)
        return sorted(self.per_class.items(), key=lambda item: (item[1].recall[k], item[1].map_at_r))[:count]

    def to_dict(self) -> dict[str, Any]:
        """Everything but the figures of single queries, as JSON takes it."""
        return {
            "figures": self.figures,
            "intervals": {name: list(interval) for name, interval in self.intervals.items()},
            "level": self.level,
            "resample": self.resample,
            "chance": self.chance,
            "metric": self.metric,
            "queries": self.queries,
            "without_positives": self.without_positives,
            "gallery": self.gallery,
            "classes": self.classes,
            "per_class": {
                str(label): {"queries": one.queries, "figures": one.figures} for label, one in self.per_class.items()
            },
        }

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(self.to_dict(), indent=1, ensure_ascii=False)

    def __rich__(self) -> Group:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False)
        table.add_column("figure")
        table.add_column("%", justify="right", style="bold")
        if self.intervals:
            table.add_column(f"{100 * self.level:g} % interval", justify="right")
        for name, value in self.figures.items():
            interval = self.intervals.get(name)
            between = "" if interval is None else f"{100 * interval.low:.1f} – {100 * interval.high:.1f}"
            table.add_row(title(name), f"{100 * value:.1f}", *([between] if self.intervals else []))
        return Group(table, Text(self.summary, style="dim"))

    @property
    def empty_ks(self) -> tuple[int, ...]:
        """The K that say nothing: the gallery holds no more, so any embedding at all has recall 1."""
        return tuple(k for k in self.recall if k >= self.gallery)

    @property
    def summary(self) -> str:
        """What was judged, in one line."""
        left_out = f", {self.without_positives:,} without a positive left out" if self.without_positives else ""
        empty = f"; K = {', '.join(map(str, self.empty_ks))} is the whole gallery: always 100" if self.empty_ks else ""
        size = f"{self.queries:,} queries{left_out}; gallery {self.gallery:,}, {self.classes:,} classes; {self.metric}"
        return size + empty

    def __str__(self) -> str:
        console = Console(width=100, no_color=True, color_system=None)
        with console.capture() as capture:
            console.print(self)
        return "\n".join(line.rstrip() for line in capture.get().rstrip().splitlines())

    def __repr__(self) -> str:
        k = min(self.recall)
        return f"Report(recall@{k}={self.recall[k]:.4f}, map_at_r={self.map_at_r:.4f}, queries={self.queries})"


def recalls(figures: Mapping[str, float]) -> dict[int, float]:
    """The Recall@K among some figures, by K."""
    return {int(name.partition("@")[2]): value for name, value in figures.items() if name.startswith("recall@")}
