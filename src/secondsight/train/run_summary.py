"""Runs side by side: what differs between their recipes, and what came out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secondsight import extras, files
from secondsight.errors import RunError
from secondsight.evaluate.figures import is_figure
from secondsight.train import recipe_file
from secondsight.train.recipe import FREE_KEYS
from secondsight.train.run_directory import read_metrics


@dataclass(frozen=True)
class RunSummary:
    """One run: its recipe, flat, its validations, and its training losses."""

    path: Path
    recipe: dict[str, Any]
    validations: list[dict[str, Any]]
    losses: list[tuple[int, float]]

    @property
    def best(self) -> dict[str, Any]:
        """The validation that best/ was chosen by; empty before the first."""
        return next((row for row in reversed(self.validations) if row["best"]), {})


def summarise(path: str | Path) -> RunSummary:
    """Read a run directory, finished or not."""
    run = Path(path)
    if not (run / "config.toml").is_file():
        raise RunError(f"{run} is not a run directory: it has no config.toml; name one, such as runs/birds")
    rows = read_metrics(run / "metrics.jsonl")
    return RunSummary(
        run,
        recipe_file.flat(recipe_file.read(run / "config.toml")),
        [row for row in rows if row["kind"] == "validation"],
        [(row["step"], row["loss"]) for row in rows if row["kind"] == "train"],
    )


def differing_keys(runs: Sequence[RunSummary]) -> list[str]:
    """The keys of the recipes that are not the same in all runs."""
    keys = dict.fromkeys(key for run in runs for key in run.recipe if key not in FREE_KEYS)
    return [key for key in keys if any(run.recipe.get(key) != runs[0].recipe.get(key) for run in runs)]


def metrics_of(runs: Sequence[RunSummary]) -> list[str]:
    """The figures that at least one run has, in their own order."""
    names = dict.fromkeys(name for run in runs for row in run.validations for name in row)
    return [name for name in names if is_figure(name)]


def plot(runs: Sequence[RunSummary], path: Path) -> None:
    """Draw the chosen metric and the training loss over the steps, into a PNG, SVG or PDF."""
    extras.require("matplotlib", extra="plots", purpose="drawing runs")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    for run in runs:
        metric = run.recipe["validation.metric"]
        left.plot(
            [v["step"] for v in run.validations],
            [100 * v[metric] for v in run.validations],
            marker="o",
            markersize=3,
            label=run.path.name,
        )
        right.plot(*zip(*run.losses, strict=True) if run.losses else ((), ()), linewidth=1, label=run.path.name)
    left.set(xlabel="step", ylabel=f"{runs[0].recipe['validation.metric']} on held-out classes, %")
    right.set(xlabel="step", ylabel="training loss")
    for axis in (left, right):
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    left.legend(frameon=False, fontsize="small")
    with files.replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.lstrip(".") or "png", dpi=130)
