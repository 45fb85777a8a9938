"""Recall@1 against what a row costs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from secondsight import extras, files
from secondsight.reproduce.row_summary import RowSummary, common_folds
from secondsight.reproduce.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation

WORDS = {
    "parameters": "parameters after the backbone",
    "gflops": "GFLOPs per image after the backbone",
    "ms_head": "milliseconds per image after the backbone",
    "native": "numbers before the projection",
}
LEADER = {"arrowstyle": "-", "linewidth": 0.4, "color": "0.6", "shrinkA": 0, "shrinkB": 2}
"""From a name to its point; next to it nothing is to be seen of it."""
COLOURS = ("#3e6990", "#d64545", "#4f9d69", "#8e6c8a", "#c98b2b")


def draw(table: Table, rows: Sequence[RowSummary], path: Path) -> None:
    """An SVG, the same bytes for the same figures; rows that differ in the last axis only have one colour each.

    A point is the mean of the means of the folds that rows have in common, and a row that lacks one of them stays out:
    one that has seen the easier fold more often would look better than it is. For the same reason bars are spreads
    within a fold.
    """
    extras.require("matplotlib", extra="plots", purpose="the plot of a table")
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    panels = len(table.plot)
    figure = Figure(figsize=(9, 5.4) if panels == 1 else (5 * panels, 7.5), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots(1, panels, sharey=True, squeeze=False)[0]
    folds = common_folds(rows)
    rows = [summary for summary in rows if folds <= set(summary.by_fold)]
    names = {axis: _points(axis, table, cost, rows, folds) for axis, cost in zip(axes, table.plot, strict=True)}
    bars = " (bars: ± 1 s.d. within a fold)" if any(summary.within for summary in rows) else ""
    axes[0].set_ylabel(f"R@1 on classes never seen, %{bars}")
    figure.draw_without_rendering()  # only now is it known where everything is
    for axis in axes:
        _set_apart(axis, names[axis])
    with matplotlib.rc_context({"svg.hashsalt": table.name}), files.replacing(path) as temporary:
        figure.savefig(temporary, format="svg", metadata={"Date": None})


def _points(axis: Axes, table: Table, cost: str, rows: Sequence[RowSummary], folds: set[int]) -> list[Annotation]:
    """One panel; the names of its points, which are not in their places yet."""
    rows = [summary for summary in rows if getattr(summary, cost) is not None]
    groups = list(dict.fromkeys(_group(table, summary) for summary in rows))
    names: list[Annotation] = []
    for index, group in enumerate(groups):
        colour = COLOURS[index % len(COLOURS)]
        for summary in rows:
            if _group(table, summary) != group:
                continue
            x, y = getattr(summary, cost), statistics.mean(summary.by_fold[fold] for fold in folds)
            axis.errorbar(x, y, yerr=summary.within, fmt="o", color=colour, capsize=2, markersize=5)
            name = summary.row.cells[0]
            names.append(axis.annotate(name, (x, y), (5, 3), textcoords="offset points", fontsize=7, arrowprops=LEADER))
        axis.plot([], [], "o", color=colour, label=group)
    axis.set_xscale("log")
    axis.set_xlabel(WORDS[cost])
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.margins(x=0.1, y=0.1)
    if len(groups) > 1:
        axis.legend(frameon=False, fontsize="small")
    return names


def _set_apart(axis: Axes, names: Sequence[Annotation]) -> None:
    """Every name beside its point, as near as it can be without covering a name, a point or the axis on the left."""
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

    points = [axis.transData.transform(name.xy) for name in names]
    pixel = 72 / axis.figure.dpi  # in points, which offsets are given in
    frame = axis.get_window_extent()
    taken = [Bbox.from_bounds(x - 3, y - 3, 6, 6) for x, y in points]
    taken.append(Bbox.from_extents(-1e4, -1e4, frame.x0, 1e4))  # numbers of the axis, and its title
    for name, (x, y) in zip(names, points, strict=True):
        box = Text.get_window_extent(name)  # of the words alone, without the line to them

        def place(offset: tuple[float, float], x: float = x, y: float = y, box: Bbox = box) -> Bbox:
            return Bbox.from_bounds(x + offset[0] / pixel, y + offset[1] / pixel, box.width, box.height)

        sides = (5.0, -5 - box.width * pixel)
        ways = ((side, 3.0 + up) for far in range(0, 400, 2) for up in (far, -far) for side in sides)
        free = (way for way in ways if not any(place(way).overlaps(other) for other in taken))
        name.xyann = next(free, (5.0, 3.0))
        taken.append(place(name.xyann))


def _group(table: Table, summary: RowSummary) -> str:
    """The last axis's value, where the table has more than one axis."""
    cells = summary.row.cells
    return cells[-1] if len(table.columns) > 1 else ""
