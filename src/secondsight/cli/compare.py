"""``secondsight compare``: runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.table import Table

from secondsight import terminal
from secondsight.errors import ConfigError

if TYPE_CHECKING:
    from secondsight.train.run_summary import RunSummary


def compare(
    runs: list[Path] = typer.Argument(..., help="Run directories, e.g. runs/*; anything else is ignored."),
    plot: Path = typer.Option(None, help="Also draw the curves into this file (.png, .svg, .pdf)."),
    as_json: bool = typer.Option(False, "--json", help="One JSON list, for machines."),
) -> None:
    """Print runs side by side: what differs between their recipes, and the best figures on the held-out classes."""
    from secondsight import files
    from secondsight.data.readers.paths import require_path
    from secondsight.train.run_summary import differing_keys, metrics_of, summarise
    from secondsight.train.run_summary import plot as draw

    if plot is not None:
        if plot.suffix.lower() not in (".png", ".svg", ".pdf"):
            raise ConfigError(f"--plot {plot}: curves are drawn as a picture; name it .png, .svg or .pdf")
        files.check_writable(plot, directory=False)
    found = [summarise(run) for run in map(require_path, runs) if len(runs) == 1 or (run / "config.toml").is_file()]
    if not found:
        raise ConfigError("none of these is the directory of a run; name some, such as runs/*")
    keys, metrics = differing_keys(found), metrics_of(found)
    rows = [_row(run, keys, metrics) for run in found]
    if as_json:
        terminal.print_json(rows)
    else:
        terminal.console().print(_table(rows, keys, metrics))
    if plot is not None:
        draw(found, plot)
        terminal.console(stderr=True).print(f"curves: {terminal.marked(plot)}", soft_wrap=True)


NAME = 16
"""Letters of a run's name that stay on one line, whatever stands beside them."""


def _row(run: RunSummary, keys: list[str], metrics: list[str]) -> dict[str, Any]:
    best = run.best
    return {
        "run": str(run.path),
        **{key: run.recipe.get(key) for key in keys},
        "epoch": best.get("epoch"),
        **{metric: best.get(metric) for metric in metrics},
    }


def _table(rows: list[dict[str, Any]], keys: list[str], metrics: list[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, collapse_padding=True, pad_edge=False)
    paths = [Path(row["run"]) for row in rows]
    names = [path.name if len({path.parent for path in paths}) == 1 else str(path) for path in paths]
    table.add_column("run", style="bold", overflow="fold", min_width=min(max(map(len, names)), NAME))
    for key in keys:
        table.add_column(key.replace(".", ".\n"), overflow="fold")  # sections above, so that columns stay narrow
    for name in ("epoch", *metrics):
        table.add_column(name.replace("@", "\n@").replace("-", "-\n"), justify="right", no_wrap=True)
    tops = {metric: max((row[metric] for row in rows if row[metric] is not None), default=None) for metric in metrics}
    for name, row in zip(names, rows, strict=True):
        cells = ["–" if row[key] is None else terminal.marked(row[key]) for key in keys]
        figures = [_figure(row[metric], tops[metric]) for metric in metrics]
        table.add_row(terminal.marked(name), *cells, "–" if row["epoch"] is None else str(row["epoch"]), *figures)
    return table


def _figure(value: float | None, top: float | None) -> str:
    if value is None:
        return "–"
    return f"[bold green]{100 * value:.1f}[/]" if value == top else f"{100 * value:.1f}"
