"""``secondsight reproduce``: the tables of results, made again from nothing."""

from __future__ import annotations

import _thread
import contextlib
import importlib.util
import shlex
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import rich.table
import typer
from rich import box

from secondsight import shipped, terminal
from secondsight.cli import options
from secondsight.errors import ConfigError, UnknownName
from secondsight.progress import duration

if TYPE_CHECKING:
    from secondsight.reproduce.plan import Run
    from secondsight.reproduce.runner import RunPaths
    from secondsight.reproduce.tables import Table


def reproduce(
    name: str = typer.Argument(None, help="A shipped table, or a file of your own; without it, all are listed."),
    data: str = typer.Option(None, help="The images, instead of the recipe's."),
    weights: list[str] = typer.Option(
        [], metavar="[BACKBONE=]FILE", help="The backbone's weights; repeat it for a table with several backbones."
    ),
    seeds: str = typer.Option(None, metavar="0,1,2", help="Instead of the table's."),
    folds: str = typer.Option(None, metavar="0,1", help="Instead of the table's."),
    rows: str = typer.Option("*", metavar="GLOB", help="Only rows whose name fits, e.g. 'jcf-32*'."),
    limit: int = typer.Option(None, min=1, help="Stop after this many runs."),
    minutes: float = typer.Option(None, min=0, help="Stop after this many minutes, in the middle of a run if need be."),
    out: Path = typer.Option(Path("results"), "--out", "-o", help="Where results are kept, one line a run."),
    work: Path = typer.Option(Path("runs/reproduce"), help="Where the runs themselves live."),
    keep_models: bool = typer.Option(False, "--keep-models", help="Keep the weights of finished runs."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Print what would run and how long it would take."),
    page: Path = typer.Option(
        None, metavar="FILE", help="Run nothing; write the page of all tables (or of NAME) there."
    ),
) -> None:
    """Make a table of results: do every run that is missing, and none twice.

    [bold]secondsight reproduce ablation --data CUB_200_2011[/] runs what is missing; [bold]secondsight reproduce[/]
    lists the tables and how much of each is done. Results are written run by run, and after Ctrl-C, a crash or a power
    cut the same command continues where it stopped, even inside a run.
    """
    from secondsight import files
    from secondsight.reproduce import tables
    from secondsight.reproduce.plan import plan
    from secondsight.reproduce.runner import RunPaths

    chosen = [tables.read(file) for file in _files(name)]
    if page is not None:
        if data is not None or weights:
            raise ConfigError("--page writes what results/ has and runs nothing; leave out --data and --weights")
        files.check_writable(page, directory=False)
        words = ["secondsight", "reproduce", *([name] if name is not None else []), "--page", str(page)]
        write_page(page, chosen, out, command=shlex.join(words))
        return
    if name is None:
        _list(chosen, out)
        return
    (table,) = chosen
    runs = plan(table, folds=_numbers(folds, "--folds"), seeds=_numbers(seeds, "--seeds"), rows=rows)
    places = RunPaths(data=data, weights=_weights(weights, runs), out=out, work=work, keep_models=keep_models)
    if dry_run:
        _forecast(table, runs, places)
    else:
        make(table, runs, places, limit=limit, minutes=minutes)


def _files(name: str | None) -> list[Path]:
    return list(shipped.files(shipped.TABLES).values()) if name is None else [shipped.find(name, shipped.TABLES)]


def make(
    table: Table, runs: list[Run], places: RunPaths, *, limit: int | None = None, minutes: float | None = None
) -> None:
    """Run what is missing and say how it went; leaves with 130 where a signal stopped it, with 1 where runs failed."""
    from secondsight import files
    from secondsight.reproduce.lines import path_of
    from secondsight.reproduce.runner import run_table

    for place in (places.out, places.work):
        files.check_writable(place)
    console = terminal.console(stderr=True, highlight=False)

    def say(words: str) -> None:
        console.print(terminal.marked(words), soft_wrap=True)

    with _clock(minutes) as over:
        session = run_table(table, runs, places, limit=limit, say=say, quiet=not console.is_terminal)
    say(f"{path_of(table.name, places.out)}: {len(session.finished)} run(s) added, {session.left} left")
    for run, reason in session.failed:
        say(f"failed: {run}: {reason}")
    if session.stopped:
        say("stopped, and nothing is lost. Continue with:")
        say(f"  secondsight {shlex.join(sys.argv[1:])}")
        if not over.is_set():
            raise typer.Exit(130)
    if session.failed:
        raise typer.Exit(1)


@contextlib.contextmanager
def _clock(minutes: float | None) -> Iterator[threading.Event]:
    """After so many minutes do what Ctrl-C does, and set the event."""
    over = threading.Event()

    def ring() -> None:
        over.set()
        _thread.interrupt_main()

    timer = threading.Timer(60 * minutes, ring) if minutes is not None else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield over
    finally:
        if timer is not None:
            timer.cancel()


def _forecast(table: Table, runs: list[Run], places: RunPaths) -> None:
    from secondsight.reproduce import lines
    from secondsight.reproduce.plan import estimate, todo

    known = lines.sort(table, lines.read(lines.path_of(table.name, places.out)))
    stale, missing = {line.key: why for line, why in known.stale}, todo(runs, known.fresh)
    elsewhere = {run.key: line for run in missing if (line := lines.same_run(run.recipe(), places.out))}
    for run in missing:
        again = f"  (again, the table has changed: {stale[run.key]})" if run.key in stale else ""
        same = elsewhere.get(run.key)
        typer.echo(f"{run}{again}" + (f"  (as {same.row!r} of {same.table}, if images are the same)" if same else ""))
    seconds = estimate([run for run in missing if run.key not in elsewhere], known.fresh)
    took = "no run is finished yet to estimate from" if seconds is None else f"about {duration(seconds)}"
    typer.echo(f"{len(missing)} of {len(runs)} runs to do" + (f", {took}" if missing else ""))


def _list(tables: list[Table], out: Path) -> None:
    from secondsight.reproduce import lines

    view = rich.table.Table(box=box.SIMPLE_HEAD, show_edge=False)
    view.add_column("table", style="bold", no_wrap=True)
    view.add_column("runs done", justify="right", no_wrap=True)
    view.add_column("what it shows")
    for table in tables:
        known = lines.sort(table, lines.read(lines.path_of(table.name, out)))
        asked = sum(row.runs for row in table.rows)
        done = asked - sum(map(len, lines.missing(table, known.fresh).values()))
        old = f" [dim]({len(known.stale)} out of date)[/]" if known.stale else ""
        view.add_row(table.name, f"{done} of {asked}{old}", terminal.marked(table.title))
    terminal.console().print(view)


def write_page(path: Path, tables: list[Table], out: Path, *, command: str) -> None:
    """Write the page of some tables, and name its files and the results that belong to none of the tables."""
    from secondsight.reproduce import results_page

    known = {*shipped.files(shipped.TABLES), *(table.name for table in tables)}
    for file in sorted(out.glob("*.jsonl")):
        if file.stem not in known:
            typer.echo(f"{file} is left out: no table is called {file.stem!r}", err=True)
    written = results_page.write(path, tables, out, command=command)
    for file in written:
        typer.echo(file)
    if importlib.util.find_spec("matplotlib") is None and any(table.plot for table in tables):
        typer.echo("without plots, which need matplotlib: pip install 'secondsight[plots]'", err=True)


def _numbers(text: str | None, option: str) -> list[int] | None:
    return None if text is None else options.numbers(text, option)


def _weights(words: list[str], runs: list[Run]) -> dict[str, str]:
    """Backbone → file; a bare file is for the one backbone that all rows have."""
    backbones = sorted({run.recipe().model.backbone for run in runs})
    found = {}
    for word in words:
        backbone, equals, file = word.partition("=")
        if equals and backbone not in backbones and not Path(word).is_file():
            raise ConfigError(f"--weights {word}: {UnknownName('backbone of these rows', backbone, backbones)}")
        if not equals or backbone not in backbones:
            if len(backbones) > 1:
                some = " ".join(f"--weights {b}=FILE" for b in backbones)
                raise ConfigError(f"--weights {word}: the rows have several backbones; say which: {some}")
            backbone, file = backbones[0], word
        if not Path(file).is_file():
            raise ConfigError(f"--weights {word}: there is no file {file}; check the name")
        found[backbone] = file
    return found
