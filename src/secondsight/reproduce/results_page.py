"""The page of one table or of several: made of the tables and of ``results/*.jsonl``, and of nothing else."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from secondsight import files
from secondsight.reproduce import lines
from secondsight.reproduce.lines import Sorted
from secondsight.reproduce.row_summary import RowSummary, common_folds, summarise
from secondsight.reproduce.tables import Table
from secondsight.train import recipe_file

COMMON = (
    *("model.backbone", "model.freeze", "data.transform", "model.size", "model.pooling", "model.dim", "model.reduce"),
    *("loss.name", "optimizer.name", "optimizer.lr", "optimizer.head_lr", "optimizer.proxy_lr", "train.epochs"),
    *("train.classes_per_batch", "train.images_per_class"),
)
"""What a reader wants to know of a table's recipe, where it is the same in all rows."""

HEAD = """# {title}

Made by `{command}` from the lines in `{out}/`, one a run. Do not edit.

Models are evaluated by retrieval among classes that they have never seen, held out of the *training* half; no test
class was opened. R@K is the share of images, in %, that have an image of the same class among their K nearest. Figures
are those **after the last epoch**: no epoch was chosen on the evaluated classes, though a recipe's settings may have
been. "Best epoch" was chosen on them, and is flattering. A figure is the mean over the runs (folds × seeds) ± their
standard deviation. Parameters, GFLOPs and "ms head" are of what comes after the backbone; times are the best of several
on one machine, and say little about another.
"""


def write(path: Path, tables: Sequence[Table], out: Path, *, command: str) -> list[Path]:
    """Write the page and its plots: beside a page of one table, in a folder beside one of several.

    Without matplotlib there are no plots, and the page says nothing of them.

    Returns all files that were written.
    """
    from secondsight.reproduce.cost_plot import draw

    found = [(table, lines.sort(table, lines.read(lines.path_of(table.name, out)))) for table in tables]
    plots = {table.name: path.with_suffix("") / f"{table.name}.svg" for table, _ in found}
    if len(found) == 1:
        plots = dict.fromkeys(plots, path.with_suffix(".svg"))
    written = [path]
    drawing = importlib.util.find_spec("matplotlib") is not None
    for table, known in found:
        if drawing and table.plot and known.fresh:
            written.append(plots[table.name])
            draw(table, summarise(table, known.fresh), written[-1])
    relative = {name: plot.relative_to(path.parent).as_posix() for name, plot in plots.items() if drawing}
    files.write_text(path, page(found, relative, command=command, out=out))
    return written


def page(
    found: Sequence[tuple[Table, Sorted]], plots: Mapping[str, str], *, command: str, out: Path = Path("results")
) -> str:
    """The whole page; ``plots`` are the pictures that there are, by the table's name, as seen from the page."""
    alone = found[0][0].title if len(found) == 1 else ""
    begun = [
        ("" if alone else f"## {table.title or table.name}\n\n") + section(table, known, plots.get(table.name))
        for table, known in found
        if known.fresh
    ]
    rest = [f"- `{table.name}`: {table.title}" for table, known in found if not known.fresh]
    if rest:
        begun.append("\n".join(["## Not run yet", "", "There is not one result for these tables:", "", *rest, ""]))
    return "\n".join([HEAD.format(title=alone or "Results", command=command, out=out.as_posix()), *begun])


def section(table: Table, known: Sorted, plot: str | None) -> str:
    """One table, what it is about, and what it says in words."""
    rows = summarise(table, known.fresh)
    parts = [table.text, _protocol(table, known), _markdown(table, rows)]
    if table.plot and plot:
        parts.append(f"![R@1 against {', '.join(table.plot)}, {table.name}]({plot})")
        parts.append(_caption(rows))
    parts += [_verdicts(table, rows), _notes(rows), _gaps(table, known), _warnings(known)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _caption(rows: Sequence[RowSummary]) -> str:
    """What a point is, and which rows have none."""
    folds = common_folds(rows)
    absent = ", ".join(s.row.name for s in rows if not folds <= set(s.by_fold))
    which = f"fold {min(folds)}" if len(folds) == 1 else f"the means of folds {', '.join(map(str, sorted(folds)))}"
    return f"A point is the mean of {which}" + (f"; without a run there: {absent}." if absent else ".")


def _markdown(table: Table, rows: Sequence[RowSummary]) -> str:
    """The figures; rows without a run stay in the table, so that a gap is seen."""
    by_name = {summary.row.name: summary for summary in rows}
    names = list(dict.fromkeys(name for summary in rows for name in summary.last))
    # Folds differ in difficulty: a row that lacks some may be the highest without being the best, and the only one that
    # lacks none is the best of nothing.
    whole = [summary for summary in rows if summary.runs == max(s.runs for s in rows)]
    whole = whole if len(whole) > 1 else []
    tops = {name: max((s.last[name].value for s in whole if name in s.last), default=None) for name in names}
    columns: dict[str, Callable[[RowSummary], str | None]] = {
        name.replace("recall@", "R@").replace("map@r", "MAP@R"): partial(_figure, name=name, top=tops[name])
        for name in names
    }
    columns |= {
        "untrained R@1": lambda s: None if s.untrained is None else str(s.untrained),
        f"against {table.baseline_words}": lambda s: None if s.against is None else _signed(s),
        "best epoch R@1": lambda s: str(s.best),
        "parameters": lambda s: _millions(s.parameters),
        "GFLOPs": lambda s: _gflops(s.gflops),
        "ms head": lambda s: None if s.ms_head is None else _ms(s.ms_head),
        "ms image": lambda s: None if s.ms_per_image is None else _ms(s.ms_per_image),
        "native size": lambda s: None if s.native is None else f"{s.native:,}",
        "runs": lambda s: str(s.runs) if s.runs >= s.row.runs else f"{s.runs} of {s.row.runs}",
    }
    # What fewer than half of the rows have, such as a figure that is newer than their runs, compares nothing.
    columns = {
        heading: cell
        for heading, cell in columns.items()
        if 2 * sum(cell(s) is not None for s in rows) >= len(rows) > 0
    }
    order = list(table.rows)
    if table.best_first:
        order.sort(key=lambda row: -by_name[row.name].last["recall@1"].value if row.name in by_name else 0.0)
    body = []
    for row in order:
        cells = [*row.cells, *[""] * (len(table.columns) - len(row.cells))]
        if (summary := by_name.get(row.name)) is None:
            body.append([*cells, *["–"] * (len(columns) - 1), f"none of {row.runs}"])
        else:
            body.append([*cells, *(cell(summary) or "–" for cell in columns.values())])
    ruler = ["---"] * len(table.columns) + ["---:"] * len(columns)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [[*table.columns, *columns], ruler, *body])


def _protocol(table: Table, known: Sorted) -> str:
    """The command, what all rows share, the images, the weights."""
    flats = [recipe_file.flat(row.recipe(fold=row.folds[0], seed=row.seeds[0])) for row in table.rows]
    same = [key for key in COMMON if flats[0][key] is not None and all(f[key] == flats[0][key] for f in flats)]
    words = ", ".join(f"{key} `{flats[0][key]}`" for key in same)
    parts = [f"`{table.command}`", f"All rows: {words}"]
    splits = {line.fold: line.images for line in sorted(known.fresh, key=lambda line: line.fold) if line.images}
    if splits:
        images = (
            f"fold {f}: {_count(s['train'])} to learn from, {_count(s['validation'])} to evaluate on"
            for f, s in splits.items()
        )
        parts.append(f"Images: {'; '.join(images)}")
    parts.append(f"Weights of the backbone: {', '.join(sorted({f'`{line.weights}`' for line in known.fresh}))}")
    if threads := sorted({line.threads for line in known.fresh if line.threads}):
        parts.append(f"Times with {' or '.join(map(str, threads))} thread(s)")
    if versions := sorted({line.version for line in known.fresh if line.version}):
        parts.append(f"secondsight {', '.join(versions)}")
    return ". ".join(parts) + "."


def _verdicts(table: Table, rows: Sequence[RowSummary]) -> str:
    """Who beats the baseline and who does not, in words; only where every run agrees is it called so."""
    held = [summary for summary in rows if summary.against is not None]
    if not held:
        return ""
    say = {
        "better": "better in every run",
        "worse": "**worse in every run**",
        "unclear": "**no clear difference** (the runs disagree)",
        "single": "one run each, which decides nothing",
    }
    found = []
    for verdict, words in say.items():
        names = [f"{s.row.name} ({_signed(s)})" for s in held if s.against and s.against.verdict == verdict]
        if names:
            found.append(f"- {words}: {', '.join(names)}")
    runs = sorted({s.against.runs for s in held if s.against})
    alike = ", all else equal" if isinstance(table.baseline, dict) else ""
    counts = f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
    return f"R@1 against `{table.baseline_words}`{alike}, same folds and seeds, {counts} run(s) a row:\n\n" + "\n".join(
        found
    )


def _gaps(table: Table, known: Sorted) -> str:
    """What is not there, plainly."""
    gaps = lines.missing(table, known.fresh)
    asked = sum(row.runs for row in table.rows)
    notes = []
    if gaps:
        lacking = sum(map(len, gaps.values()))
        notes.append(f"**Missing:** {lacking} of {asked} runs: {_lacking(table, gaps)}.")
    if known.stale:
        some = "; ".join(f"{line.row}, fold {line.fold}, seed {line.seed}: {why}" for line, why in known.stale[:3])
        more = f"; and {len(known.stale) - 3} more" if len(known.stale) > 3 else ""
        notes.append(
            f"**Out of date, not shown:** {len(known.stale)} runs of an earlier form of the table ({some}{more})."
        )
    if known.strangers:
        rows = ", ".join(sorted({line.row for line in known.strangers}))
        notes.append(f"Not shown: {len(known.strangers)} runs of rows that the table does not have ({rows}).")
    return "\n\n".join(notes)


def _lacking(table: Table, gaps: dict[str, list[tuple[int, int]]]) -> str:
    """Runs, and the rows that lack them; runs that the same rows lack are named together."""
    by_run: dict[tuple[int, int], list[str]] = {}
    for name, runs in gaps.items():
        for run in runs:
            by_run.setdefault(run, []).append(name)
    together: dict[str, list[tuple[int, int]]] = {}
    for (fold, seed), names in sorted(by_run.items()):
        asking = [row.name for row in table.rows if fold in row.folds and seed in row.seeds]
        together.setdefault("all rows" if names == asking else ", ".join(f"`{n}`" for n in names), []).append(
            (fold, seed)
        )
    return "; ".join(f"{_runs(runs)} ({rows})" for rows, runs in together.items())


def _warnings(known: Sorted) -> str:
    """What the runs themselves complained of."""
    notes = [
        f"- {line.row}, fold {line.fold}, seed {line.seed}: {words.partition(';')[0]}"
        for line in known.fresh
        for words in line.warnings
    ]
    return "Warnings of the runs:\n\n" + "\n".join(notes) if notes else ""


def _notes(rows: Iterable[RowSummary]) -> str:
    return "\n".join(f"- {summary.row.name}: {summary.row.note}" for summary in rows if summary.row.note)


def _signed(summary: RowSummary) -> str:
    assert summary.against is not None
    value = summary.against.difference
    return f"{'+' if value.value >= 0 else '−'}{str(value).lstrip('-')}"


def _figure(summary: RowSummary, *, name: str, top: float | None) -> str | None:
    if (value := summary.last.get(name)) is None:
        return None
    return f"**{value}**" if value.value == top else str(value)


def _millions(count: int) -> str:
    return f"{count / 1e6:.1f}M" if count >= 50_000 else f"{count:,}"


def _gflops(value: float) -> str:
    return f"{value:.2f}" if value >= 0.01 else f"{value:.1g}"


def _ms(value: float) -> str:
    return f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _count(part: dict[str, int]) -> str:
    return f"{part['images']:,} images of {part['classes']:,} classes"


def _runs(runs: Iterable[tuple[int, int]]) -> str:
    """
    >>> _runs([(0, 1), (1, 1)])
    'fold 0 seed 1, fold 1 seed 1'
    """
    return ", ".join(f"fold {fold} seed {seed}" for fold, seed in runs)
