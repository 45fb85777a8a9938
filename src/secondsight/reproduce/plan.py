"""The runs that a table consists of, which of them are still to do, and how long they will take."""

from __future__ import annotations

import fnmatch
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from secondsight.errors import ConfigError
from secondsight.reproduce.lines import Line
from secondsight.reproduce.tables import Row, Table
from secondsight.train.recipe import Recipe


@dataclass(frozen=True)
class Run:
    """One cell of the table before it is averaged."""

    row: Row
    fold: int
    seed: int

    @property
    def key(self) -> tuple[str, int, int]:
        return self.row.name, self.fold, self.seed

    @property
    def folder(self) -> str:
        return f"{self.row.slug}-f{self.fold}-s{self.seed}"

    def recipe(self) -> Recipe:
        return self.row.recipe(fold=self.fold, seed=self.seed)

    def __str__(self) -> str:
        return f"{self.row.name}, fold {self.fold}, seed {self.seed}"


def plan(
    table: Table, *, folds: Sequence[int] | None = None, seeds: Sequence[int] | None = None, rows: str = "*"
) -> list[Run]:
    """The runs of a table; the first seed of all rows and folds comes first, so that a table is whole early."""
    chosen = [row for row in table.rows if fnmatch.fnmatchcase(row.name, rows)]
    if not chosen:
        raise ConfigError(f"no row of {table.name} is called {rows!r}; rows: {', '.join(r.name for r in table.rows)}")
    runs = [
        Run(row, fold, seed)
        for row in chosen
        for fold in dict.fromkeys(row.folds if folds is None else folds)
        for seed in dict.fromkeys(row.seeds if seeds is None else seeds)
    ]
    return sorted(runs, key=lambda run: (run.seed, run.fold))


def todo(runs: Iterable[Run], fresh: Iterable[Line]) -> list[Run]:
    """The runs that no line tells of."""
    done = {line.key for line in fresh}
    return [run for run in runs if run.key not in done]


def estimate(runs: Iterable[Run], finished: Iterable[Line]) -> float | None:
    """Seconds that ``runs`` will take, from what runs of the same row took, or else of any; None before the first."""
    by_row: dict[str, list[float]] = {}
    for line in finished:
        if line.seconds is not None:
            by_row.setdefault(line.row, []).append(line.seconds)
    if not by_row:
        return None
    any_row = statistics.median(seconds for row in by_row.values() for seconds in row)
    return sum(statistics.median(by_row.get(run.row.name, [any_row])) for run in runs)
