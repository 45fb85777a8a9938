"""Runs become rows: mean and spread over folds and seeds, and the difference to the baseline, run by run."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from secondsight.reproduce.lines import Line
from secondsight.reproduce.tables import Row, Table


@dataclass(frozen=True)
class Mean:
    """A mean and the standard deviation of what it is the mean of; None of a single value."""

    value: float
    spread: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        return cls(statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None)

    def __str__(self) -> str:
        return f"{self.value:.1f}" + ("" if self.spread is None else f" ± {self.spread:.1f}")


@dataclass(frozen=True)
class Against:
    """A row held against the baseline: Recall@1 of runs with the same fold and seed, row minus baseline, in points."""

    difference: Mean
    runs: int
    wins: int
    losses: int

    @property
    def verdict(self) -> str:
        """Better or worse where every run says so; what the runs do not agree on is not clear, nor is a single one."""
        if self.runs == 1:
            return "single"
        if self.wins == self.runs:
            return "better"
        return "worse" if self.losses == self.runs else "unclear"


@dataclass(frozen=True)
class RowSummary:
    """A row of the page. Figures are in per cent."""

    row: Row
    runs: int
    last: dict[str, Mean]  # recall@K, map@r after the last epoch
    by_fold: dict[int, float]  # mean Recall@1 of each fold's runs
    within: float | None  # standard deviation of Recall@1 around each fold's own mean: what chance does, not difficulty
    best: Mean  # Recall@1 of the best epoch, chosen on the classes that are judged
    untrained: Mean | None
    parameters: int
    gflops: float
    ms_head: float | None
    ms_per_image: float | None
    native: int | None
    against: Against | None


def summarise(table: Table, fresh: Sequence[Line]) -> list[RowSummary]:
    """The rows that have at least one run, in the table's order."""
    by_row = {row.name: [line for line in fresh if line.row == row.name] for row in table.rows}
    return [
        _summary(row, mine, against(mine, by_row[baseline.name]) if (baseline := table.baseline_of(row)) else None)
        for row in table.rows
        if (mine := by_row[row.name])
    ]


def common_folds(rows: Sequence[RowSummary]) -> set[int]:
    """The folds in which rows can be compared: as many as half of the rows that ask for them have."""
    for folds in sorted({frozenset(summary.by_fold) for summary in rows}, key=len, reverse=True):
        asking = [summary for summary in rows if folds <= set(summary.row.folds)]
        if 2 * sum(folds <= set(summary.by_fold) for summary in asking) >= len(asking):
            return set(folds)
    return set()


def _summary(row: Row, mine: Sequence[Line], held: Against | None) -> RowSummary:
    names = [name for name in mine[0].last if name != "epoch" and all(name in line.last for line in mine)]
    starts = [line.history[0] for line in mine if line.history and line.history[0]["epoch"] == 0]
    return RowSummary(
        row=row,
        runs=len(mine),
        last={name: _mean(line.last[name] for line in mine) for name in names},
        by_fold={fold: statistics.mean(recalls) for fold, recalls in _by_fold(mine).items()},
        within=_within(mine),
        best=_mean(line.best["recall@1"] for line in mine),
        untrained=_mean(start["recall@1"] for start in starts) if starts else None,
        parameters=mine[0].parameters,
        gflops=mine[0].gflops,
        ms_head=_least(line.ms_head for line in mine),
        ms_per_image=_least(line.ms_per_image for line in mine),
        native=mine[-1].native,
        against=held,
    )


def against(mine: Iterable[Line], baseline: Iterable[Line]) -> Against | None:
    """None where no run of the two has the same fold and seed."""
    theirs = {(line.fold, line.seed): line.last["recall@1"] for line in baseline}
    pairs = [
        100 * (line.last["recall@1"] - theirs[line.fold, line.seed])
        for line in mine
        if (line.fold, line.seed) in theirs
    ]
    if not pairs:
        return None
    return Against(Mean.of(pairs), len(pairs), sum(d > 0 for d in pairs), sum(d < 0 for d in pairs))


def _within(mine: Sequence[Line]) -> float | None:
    """√(Σ (r − r̄_fold)² / (runs − folds)); None where no fold has two runs."""
    folds = _by_fold(mine)
    if len(folds) == len(mine):
        return None
    squares = sum((r - statistics.mean(recalls)) ** 2 for recalls in folds.values() for r in recalls)
    return (squares / (len(mine) - len(folds))) ** 0.5


def _by_fold(mine: Sequence[Line]) -> dict[int, list[float]]:
    return {
        fold: [100 * line.last["recall@1"] for line in mine if line.fold == fold] for fold in {m.fold for m in mine}
    }


def _mean(values: Iterable[float]) -> Mean:
    return Mean.of([100 * value for value in values])


def _least(times: Iterable[float | None]) -> float | None:
    """The shortest, because noise can only lengthen; None where none was measured."""
    return min((time for time in times if time is not None), default=None)
