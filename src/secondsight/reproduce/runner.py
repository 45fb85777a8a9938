"""Run what a table still lacks, one run after the other, writing every result as it comes."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from secondsight import files
from secondsight.errors import ConfigError, DataError, RunError
from secondsight.evaluate.figures import is_figure
from secondsight.progress import duration
from secondsight.reproduce import lines
from secondsight.reproduce.input_digests import input_digests
from secondsight.reproduce.lines import Line
from secondsight.reproduce.plan import Run, estimate, todo
from secondsight.reproduce.tables import Table
from secondsight.train import recipe_file
from secondsight.train.recipe import FREE_KEYS, Recipe
from secondsight.train.run_directory import read_metrics
from secondsight.version import __version__


@dataclass(frozen=True)
class RunPaths:
    """Where images and weights are, and where everything goes. No figure depends on it."""

    data: str | None = None  # None: where the recipe says
    weights: Mapping[str, str] = field(default_factory=dict)  # backbone → file
    out: Path = Path("results")
    work: Path = Path("runs/reproduce")
    keep_models: bool = False


@dataclass
class Session:
    """How far one call got."""

    finished: list[Line] = field(default_factory=list)
    failed: list[tuple[Run, str]] = field(default_factory=list)
    left: int = 0
    stopped: bool = False  # by a signal

    @property
    def started(self) -> int:
        return len(self.finished) + len(self.failed)


def run_table(
    table: Table,
    wanted: Sequence[Run],
    places: RunPaths,
    *,
    limit: int | None = None,
    say: Callable[[str], None] = print,
    quiet: bool = True,
) -> Session:
    """Run what is missing of ``wanted``; results that are no longer the table's are run again.

    A run that cannot be built or finished (its loss became NaN, say) is told and passed over. A signal stops after the
    step that is under way; the same call goes on from there. Several processes may work on one table: a run is one's.
    """
    path, session = lines.path_of(table.name, places.out), Session()
    known = lines.sort(table, lines.read(path))
    for line, reason in known.stale:
        if any(run.key == line.key for run in wanted):
            say(f"{line.row}, fold {line.fold}, seed {line.seed} is run again, the table has changed: {reason}")
    rest = todo(wanted, known.fresh)
    while rest and not session.stopped and (limit is None or session.started < limit):
        run, *rest = rest
        where = places.work / table.name / run.folder
        with _stopping(session), contextlib.ExitStack() as held:
            try:
                held.enter_context(files.locked(where.with_name(f".{where.name}.lock")))
            except BlockingIOError:
                say(f"{run}: another process is at it")
                continue
            fresh = lines.sort(table, lines.read(path)).fresh  # another process may have added to it
            if todo([run], fresh):
                ahead = todo([run, *rest], fresh)[: None if limit is None else limit - session.started]
                number, total = session.started + 1, session.started + len(ahead)
                say(f"[{number}/{total}] {run}{_time_left(ahead, fresh)}")
                _attempt(table, run, places, fresh, session, say=say, quiet=quiet)
    failed = {run.key for run, _ in session.failed}
    session.left = sum(run.key not in failed for run in todo(wanted, lines.sort(table, lines.read(path)).fresh))
    return session


def _attempt(
    table: Table,
    run: Run,
    places: RunPaths,
    fresh: Sequence[Line],
    session: Session,
    *,
    say: Callable[[str], None],
    quiet: bool,
) -> None:
    """One run, and how it ended."""
    try:
        line, asked = run_one(table, run, places, fresh, say=say, quiet=quiet)
    except (RunError, ConfigError) as error:
        session.failed.append((run, str(error)))
        say(f"    failed: {error}")
        return
    session.stopped = asked or line is None
    if line is None:
        return
    lines.add(lines.path_of(table.name, places.out), line)
    tidy(places.work / table.name / run.folder, places)
    session.finished.append(line)
    say(result_line(line))


@contextlib.contextmanager
def _stopping(session: Session) -> Iterator[None]:
    """Ctrl-C outside of training, which has its own way with it, ends the session as well and not with a traceback."""
    try:
        yield
    except KeyboardInterrupt:
        session.stopped = True


def run_one(
    table: Table, run: Run, places: RunPaths, fresh: Sequence[Line], *, say: Callable[[str], None], quiet: bool = True
) -> tuple[Line | None, bool]:
    """Train and measure; None where a signal stopped it, and whether one asked to stop, be it too late for this run.

    A run that was stopped before goes on where it stood. One that another table has made already is taken from there.
    """
    from secondsight.train import train
    from secondsight.train.sets import open_sets

    recipe, where = placed(run.recipe(), places), places.work / table.name / run.folder
    sets = open_sets(recipe)
    if sets.validation is None:
        raise ConfigError(f"{run.row.source}: validation.share is 0, so there is nothing to report; hold classes out")
    images = {"train": sets.train, "validation": sets.validation}
    counts = {k: {"images": len(v), "classes": len(v.classes)} for k, v in images.items()}
    given = input_digests(recipe, sets)
    _same_inputs(table, run, counts, given, fresh, places)
    known = None if places.keep_models else lines.same_run(run.recipe(), places.out, inputs=given)
    if known is not None:
        say(f"    the same run as {known.row!r} of {known.table}: taken from there")
        return replace(known, table=table.name, row=run.row.name, seconds=None), False
    resumed = _make_ready(where, recipe, say)
    start = time.perf_counter()
    result = train(recipe, where, resume=resumed, quiet=quiet)
    if not result.complete:
        return None, True
    line = _line(table, run, recipe, where, counts, given)
    return line if resumed else replace(line, seconds=round(time.perf_counter() - start, 1)), result.asked


def placed(recipe: Recipe, places: RunPaths) -> Recipe:
    """The recipe with this machine's paths."""
    words = [recipe_file.word("data.path", places.data)] if places.data is not None else []
    if recipe.model.backbone in places.weights:
        words.append(recipe_file.word("model.weights", places.weights[recipe.model.backbone]))
    return recipe_file.make(recipe.model_dump(mode="python"), words)


def tidy(where: Path, places: RunPaths) -> None:
    """Leave the figures of a finished run; its weights are what takes the room."""
    if not places.keep_models:
        for part in ("checkpoints", "best"):
            shutil.rmtree(where / part, ignore_errors=True)


def _make_ready(where: Path, recipe: Recipe, say: Callable[[str], None]) -> bool:
    """Whether there is a run to go on with; one of another recipe is cleared away."""
    config = where / "config.toml"
    if not config.is_file():
        return where.exists()
    try:
        differing = [
            d for d in recipe_file.differences(recipe_file.read(config), recipe) if d.split(" ")[0] not in FREE_KEYS
        ]
    except ConfigError as error:  # of a version that had other keys
        differing = [str(error)]
    if differing:
        say(f"{where} holds a run of another recipe ({', '.join(differing)}): starting it again from the beginning")
        shutil.rmtree(where)
        return False
    return True


def _same_inputs(
    table: Table, run: Run, counts: dict, given: dict[str, str], fresh: Sequence[Line], places: RunPaths
) -> None:
    """Figures on different images do not belong in one table, nor those of a backbone that began with other weights."""
    path = lines.path_of(table.name, places.out)
    for line in fresh:
        before = line.inputs or given
        others = line.images not in (None, counts) or any(before[k] != given[k] for k in counts)
        if line.fold == run.fold and others:
            raise DataError(
                f"{path} has figures on other images (fold {run.fold}: {line.images} there, {counts} here; names or "
                "sizes of files may differ, too); choose another --out, or give the images that it was made with"
            )
        if line.recipe["model.backbone"] == run.recipe().model.backbone and before["weights"] != given["weights"]:
            raise DataError(
                f"{path} has figures with other weights of {line.recipe['model.backbone']} ({line.weights}); choose "
                "another --out, or give the weights that it was made with: --weights FILE"
            )


def _line(table: Table, run: Run, recipe: Recipe, where: Path, counts: dict, given: dict[str, str]) -> Line:
    from secondsight.model import load
    from secondsight.reproduce.cost import measure

    report = json.loads((where / "report.json").read_text(encoding="utf-8"))
    history = [_figures(row) for row in report["history"]]
    losses = [row["loss"] for row in read_metrics(where / "metrics.jsonl") if row["kind"] == "train"]
    validated = [row for row in history if row["epoch"] > 0]  # epoch 0 is what was there before anything was learned
    return Line(
        table=table.name,
        row=run.row.name,
        fold=run.fold,
        seed=run.seed,
        last=validated[-1],
        best=max(validated, key=lambda row: row[recipe.validation.metric]),
        history=history,
        loss=round(losses[-1], 6) if losses else None,
        **asdict(measure(load(where / "best"))),
        images=counts,
        weights=_weights_name(recipe),
        seconds=None,
        version=__version__,
        warnings=[row["message"] for row in report["warnings"]],
        recipe=lines.choices(run.recipe()),
        inputs=given,
    )


def _weights_name(recipe: Recipe) -> str:
    """What a backbone starts from, without this machine's paths."""
    weights = recipe.model.weights
    return Path(weights).name if Path(weights).is_file() else weights


def _figures(row: dict) -> dict[str, float]:
    kept = {key: round(value, 6) for key, value in row.items() if is_figure(key)}
    return {"epoch": row["epoch"], **kept}


def result_line(line: Line) -> str:
    figures = "  ".join(f"{k} {100 * v:.1f}" for k, v in line.last.items() if k != "epoch")
    took = "" if line.seconds is None else f"  {duration(line.seconds)}"
    return f"    {figures}{took}"


def _time_left(runs: Sequence[Run], finished: Sequence[Line]) -> str:
    seconds = estimate(runs, finished)
    return "" if seconds is None else f", about {duration(seconds)} left"
