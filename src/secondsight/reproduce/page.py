"""``docs/results.md``: made of the tables and of ``results/*.jsonl``, and of nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from secondsight import files
from secondsight.reproduce import lines
from secondsight.reproduce.lines import Sorted
from secondsight.reproduce.summary import Summary, common_folds, summarise
from secondsight.reproduce.tables import Table
from secondsight.train import recipe_file

COMMON = (
    *("model.backbone", "model.freeze", "data.transform", "model.size", "model.pooling", "model.dim", "model.reduce"),
    *("loss.name", "optimizer.name", "optimizer.lr", "optimizer.head_lr", "optimizer.proxy_lr", "train.epochs"),
    *("train.classes_per_batch", "train.images_per_class"),
)
"""What a reader wants to know of a table's recipe, where it is the same in all rows."""

HEAD = """# Results

Made by `secondsight reproduce --page docs/results.md` from the files in `results/`, which [reproducing](reproducing.md)
says how to make. Do not edit.

Models are judged by retrieval among classes that they have never seen, held out of the *training* half; no test class
was looked at. R@K is the share of images, in %, that have an image of the same class among their K nearest. Figures are
those **after the last epoch**: no epoch was chosen on the classes that judge, though a recipe's settings may have been.
"Best epoch" was, and shows by how much that flatters. A figure is the mean over the runs (folds × seeds) ± their
standard deviation. Parameters, GFLOPs and "ms head" are of what comes after the backbone; times are the best of several
on one machine, and say little about another.
"""


def write(path: Path, tables: Sequence[Table], out: Path) -> list[Path]:
    """Write the page, and the plots into a folder beside it that is called like it; all files that were written."""
    from secondsight.reproduce.drawing import draw

    folder = path.with_suffix("")
    found = {table.name: lines.sort(table, lines.read(lines.path_of(table.name, out))) for table in tables}
    written = [path]
    for table in tables:
        if table.plot is not None and found[table.name].fresh:
            written.append(folder / f"{table.name}.svg")
            draw(table, summarise(table, found[table.name].fresh), written[-1])
    files.write_text(path, page([(table, found[table.name]) for table in tables], plots=folder.name))
    return written


def page(found: Sequence[tuple[Table, Sorted]], *, plots: str = "results") -> str:
    """The whole page; ``plots`` is the folder of the pictures, as seen from the page."""
    begun = [section(table, known, plots=plots) for table, known in found if known.fresh]
    rest = [f"- `{table.name}`: {table.title}" for table, known in found if not known.fresh]
    if rest:
        begun.append("\n".join(["## Not run yet", "", "There is not one result for these tables:", "", *rest, ""]))
    return "\n".join([HEAD, *begun])


def section(table: Table, known: Sorted, *, plots: str = "results") -> str:
    """One table, what it is about, and what it says in words."""
    rows = summarise(table, known.fresh)
    parts = [f"## {table.title or table.name}", table.text, _protocol(table, known), _markdown(table, rows)]
    if table.plot is not None:
        parts.append(f"![R@1 against {table.plot}, {table.name}]({plots}/{table.name}.svg)")
        parts.append(_caption(rows))
    parts += [_verdicts(table, rows), _notes(rows), _gaps(table, known), _warnings(known)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _caption(rows: Sequence[Summary]) -> str:
    """What a point is, and which rows have none."""
    folds = common_folds(rows)
    absent = ", ".join(s.row.name for s in rows if not folds <= set(s.by_fold))
    which = f"fold {min(folds)}" if len(folds) == 1 else f"the means of folds {', '.join(map(str, sorted(folds)))}"
    return f"A point is the mean of {which}" + (f"; without a run there: {absent}." if absent else ".")


def _markdown(table: Table, rows: Sequence[Summary]) -> str:
    """The figures; rows without a run stay in the table, so that a gap is seen."""
    by_name = {summary.row.name: summary for summary in rows}
    names = list(dict.fromkeys(name for summary in rows for name in summary.last))
    optional: list[tuple[str, Callable[[Summary], object]]] = [
        ("untrained R@1", lambda s: s.untrained),
        (f"against {table.baseline_words}", lambda s: None if s.against is None else _signed(s)),
    ]
    shown = [(heading, cell) for heading, cell in optional if any(cell(s) is not None for s in rows)]
    headings = [
        *(name.replace("recall@", "R@").replace("map@r", "MAP@R") for name in names),
        *(heading for heading, _ in shown),
        *("best epoch R@1", "parameters", "GFLOPs", "ms head", "ms image", "runs"),
    ]
    # Folds differ in difficulty: a row that lacks some may be the highest without being the best, and the only one that
    # lacks none is the best of nothing.
    whole = [summary for summary in rows if summary.runs == max(s.runs for s in rows)]
    whole = whole if len(whole) > 1 else []
    tops = {name: max((s.last[name].value for s in whole if name in s.last), default=None) for name in names}
    body = []
    for row in table.rows:
        cells = [*row.cells, *[""] * (len(table.columns) - len(row.cells))]
        summary = by_name.get(row.name)
        asked = len(row.folds) * len(row.seeds)
        if summary is None:
            body.append([*cells, *["–"] * (len(headings) - 1), f"none of {asked}"])
            continue
        figures = [_bold(summary, name, tops[name]) if name in summary.last else "–" for name in names]
        extra = ["–" if (value := cell(summary)) is None else str(value) for _, cell in shown]
        costs = [_millions(summary.parameters), _gflops(summary.gflops), _ms(summary.ms_head)]
        runs = str(summary.runs) if summary.runs >= asked else f"{summary.runs} of {asked}"
        body.append([*cells, *figures, *extra, str(summary.best), *costs, _ms(summary.ms_per_image), runs])
    ruler = ["---"] * len(table.columns) + ["---:"] * len(headings)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [[*table.columns, *headings], ruler, *body])


def _protocol(table: Table, known: Sorted) -> str:
    """The command, what all rows share, the images, the weights."""
    flats = [recipe_file.flat(row.recipe(fold=row.folds[0], seed=row.seeds[0])) for row in table.rows]
    same = [key for key in COMMON if flats[0][key] is not None and all(f[key] == flats[0][key] for f in flats)]
    words = ", ".join(f"{key} `{flats[0][key]}`" for key in same)
    splits = {line.fold: line.images for line in sorted(known.fresh, key=lambda line: line.fold)}
    images = "; ".join(
        f"fold {fold}: {_count(s['train'])} teach, {_count(s['validation'])} judge" for fold, s in splits.items()
    )
    weights = ", ".join(sorted({f"`{line.weights}`" for line in known.fresh}))
    threads = " or ".join(map(str, sorted({line.threads for line in known.fresh})))
    versions = ", ".join(sorted({line.version for line in known.fresh}))
    return (
        f"`secondsight reproduce {table.name} --data PATH`. All rows: {words}. Images: {images}. "
        f"Weights of the backbone: {weights}. Times with {threads} thread(s). secondsight {versions}."
    )


def _verdicts(table: Table, rows: Sequence[Summary]) -> str:
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
    asked = sum(len(row.folds) * len(row.seeds) for row in table.rows)
    told = []
    if gaps:
        lacking = sum(map(len, gaps.values()))
        told.append(f"**Missing:** {lacking} of {asked} runs: {_lacking(table, gaps)}.")
    if known.stale:
        some = "; ".join(f"{line.row}, fold {line.fold}, seed {line.seed}: {why}" for line, why in known.stale[:3])
        more = f"; and {len(known.stale) - 3} more" if len(known.stale) > 3 else ""
        told.append(
            f"**Out of date, not shown:** {len(known.stale)} runs of an earlier form of the table ({some}{more})."
        )
    if known.strangers:
        rows = ", ".join(sorted({line.row for line in known.strangers}))
        told.append(f"Not shown: {len(known.strangers)} runs of rows that the table no longer has ({rows}).")
    return "\n\n".join(told)


def _lacking(table: Table, gaps: dict[str, list[tuple[int, int]]]) -> str:
    """Runs, and the rows that lack them; runs that the same rows lack are told together."""
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
    told = [
        f"- {line.row}, fold {line.fold}, seed {line.seed}: {words.partition(';')[0]}"
        for line in known.fresh
        for words in line.warnings
    ]
    return "Warnings of the runs:\n\n" + "\n".join(told) if told else ""


def _notes(rows: Iterable[Summary]) -> str:
    return "\n".join(f"- {summary.row.name}: {summary.row.note}" for summary in rows if summary.row.note)


def _signed(summary: Summary) -> str:
    assert summary.against is not None
    value = summary.against.difference
    return f"{'+' if value.value >= 0 else '−'}{str(value).lstrip('-')}"


def _bold(summary: Summary, name: str, top: float | None) -> str:
    value = summary.last[name]
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
