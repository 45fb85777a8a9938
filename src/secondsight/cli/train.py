"""``secondsight train``: from a recipe, or from nothing but a folder of images, to a model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table

from secondsight import shipped, terminal
from secondsight.cli.options import missing as missing_word
from secondsight.cli.options import place_among_processes
from secondsight.cli.trouble import report
from secondsight.cli.verb import command
from secondsight.errors import ConfigError, SecondsightError
from secondsight.progress import duration

if TYPE_CHECKING:
    from secondsight.train.forecast import Forecast
    from secondsight.train.recipe import Recipe
    from secondsight.train.run import Result

DEFAULT = "photos"  # the recipe for someone's own folder


def train(
    recipe: str = typer.Argument(
        None, help="A recipe file, the name of a shipped one (see: secondsight recipes), or a run directory to resume."
    ),
    data: str = typer.Option(None, help="Images: a folder with one subfolder per class, a table, or NAME:PATH."),
    pooling: str = typer.Option(None, help="Instead of the recipe's; see: secondsight poolings."),
    backbone: str = typer.Option(None, help="Instead of the recipe's; see: secondsight backbones."),
    loss: str = typer.Option(None, help="Instead of the recipe's; see: secondsight losses."),
    override: list[str] = typer.Option([], "--set", metavar="KEY=VALUE", help="Change any key of the recipe."),
    out: Path = typer.Option(None, "--out", "-o", help="The run directory; default: runs/ and the name of the recipe."),
    missing: str = typer.Option(None, "--missing", help="If listed images are missing: error or skip."),
    resume: bool = typer.Option(False, "--resume", help="Continue the run exactly where it stopped."),
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Build everything, run two steps, and estimate time and memory."
    ),
) -> None:
    """Train a model on your own classes: a folder with one subfolder per class is enough.

    [bold]secondsight train --data ./photos[/] needs no recipe. Some classes are held out to choose the best model,
    which is kept in [bold]RUN/best[/]. Without --pooling, a quick test on some training classes decides between JCF,
    averaging and GeM. Recipes with validation.share = 0 (those for CUB) learn from all classes, and RUN/best is the
    model after the last epoch.

    Several processes: [bold]torchrun --nproc-per-node 2 -m secondsight train …[/]
    """
    rank, _ = place_among_processes()
    if missing is not None:
        override = [*override, f"data.missing={missing_word(missing)}"]
    chosen, name = _recipe(recipe, data, pooling, backbone, loss, override)
    if dry_run:
        from secondsight.train.forecast import dry_run as forecast

        _show(forecast(chosen))
        return
    result = _run(chosen, out or (Path(recipe) if _is_run(recipe) else Path("runs") / name), resume=resume)
    if rank > 0:
        return
    console = terminal.console(stderr=True, highlight=False)
    if not result.complete:
        console.print(f"interrupted and saved after step {result.step}. Continue with:")
        console.print(f"  {terminal.marked(command('train', result.directory, '--resume'))}", soft_wrap=True)
        raise typer.Exit(130)
    page = "report.json" if result.best is None else "report.html"
    if result.best is not None:
        console.print(f"best {chosen.validation.metric} on the held-out classes: [bold]{100 * result.best:.1f}[/]")
    best, report_path = terminal.marked(result.directory / "best"), terminal.marked(result.directory / page)
    console.print(f"model: {best}   report: {report_path}", soft_wrap=True)
    on = "DATA" if result.best is None else chosen.data.path
    what = "evaluate it on other classes" if result.best is None else "evaluate it on the classes held out"
    console.print(f"{what}: [bold cyan]{terminal.marked(command('evaluate', result.directory, on))}[/]", soft_wrap=True)


def _recipe(
    name: str | None, data: str | None, pooling: str | None, backbone: str | None, loss: str | None, override: list[str]
) -> tuple[Recipe, str]:
    """The recipe with all its overrides, and a name for the run."""
    from secondsight.train import recipe_file

    given = {"data.path": data, "model.pooling": pooling, "model.backbone": backbone, "loss.name": loss}
    words = [recipe_file.word(key, value) for key, value in given.items() if value is not None]
    whole = shipped.files().keys() - {DEFAULT}  # recipes that name their pictures
    if name is not None and data is None and name not in whole and Path(name).is_dir() and not _is_run(name):
        raise ConfigError(
            f"{name} is a folder, not a recipe; to learn from its pictures: secondsight train --data {name}"
        )
    if name is None and data is None:
        raise ConfigError("give a folder of pictures, secondsight train --data ./photos, or the name of a recipe")
    file = Path(name) / "config.toml" if name is not None and _is_run(name) else shipped.find(name or DEFAULT)
    wanted = recipe_file.read(file, [*words, *_fitting(recipe_file.read(file), pooling, backbone, loss), *override])
    if name is not None and _is_run(name):
        return wanted, file.parent.name
    console = terminal.console(stderr=True, highlight=False)
    if data is not None:  # which the recipe was perhaps not written for
        from secondsight.train.sets import adapted

        wanted = adapted(wanted, override, say=lambda words: console.print(words, markup=False, soft_wrap=True))
        wanted, why = _framed(wanted, override)
        if why:
            console.print(why, markup=False, soft_wrap=True)
    if name is None:
        if pooling is None and not any(word.startswith("model.") for word in override):
            from secondsight.train.candidates import suited

            wanted = suited(wanted, say=lambda words: console.print(words, markup=False, soft_wrap=True))
        return wanted, "-".join([_folder_name(data or ""), *([pooling] if pooling else [])])
    return wanted, "-".join([file.stem, *(_last_name(word) for word in (pooling, backbone, loss) if word is not None)])


def _last_name(word: str) -> str:
    """
    >>> _last_name("jcf-32-8"), _last_name("hf:facebook/dinov2-small"), _last_name("hf:./a-directory")
    ('jcf-32-8', 'dinov2-small', 'a-directory')
    """
    return Path(word.rpartition(":")[2]).name


def _framed(recipe: Recipe, override: list[str]) -> tuple[Recipe, str]:
    """The recipe with the pictures shown as suits them, and why, unless it or the user has said how."""
    from secondsight import data
    from secondsight.fit import framing

    told = any(word.startswith(("model.size", "data.transform")) for word in override)
    if told or recipe.model.size is not None or recipe.data.transform != "resize-crop":
        return recipe, ""
    size, transform, why = framing(data.open(recipe.data.path, missing=recipe.data.missing), recipe.model.backbone)
    if size is not None:
        why += "; --set model.size=224 takes 0.6 times the time"
    changes = {"model": {"size": size}, "data": {"transform": transform}}
    return recipe.model_copy(update={k: getattr(recipe, k).model_copy(update=v) for k, v in changes.items()}), why


def _folder_name(data: str) -> str:
    """
    >>> _folder_name("./photos"), _folder_name("cub200:data/CUB/"), _folder_name("list.csv"), _folder_name(".")
    ('photos', 'CUB', 'list', 'photos')
    """
    path = Path(data.partition(":")[2] or data)
    return path.stem or "photos"


def _fitting(recipe: Recipe, pooling: str | None, backbone: str | None, loss: str | None) -> list[str]:
    """What changes with them: the recipe has options for its own pooling and loss, and a stage of its own backbone."""
    from secondsight.pooling import family

    changed = []
    if pooling is not None and family(pooling) != family(recipe.model.pooling):
        changed.append("model.pooling_options={}")
        if recipe.optimizer.end_lr is not None:  # nor has it the same output matrix and gains
            changed += ["optimizer.end_lr=none", *["optimizer.head_lr=none"] * (recipe.optimizer.head_lr == 0)]
    if backbone is not None and backbone != recipe.model.backbone and recipe.model.freeze is not None:
        from secondsight.backbones.listing import freeze_like

        changed.append(f"model.freeze={freeze_like(backbone, recipe.model.freeze)}")
    if loss is not None and loss != recipe.loss.name:
        changed.append("loss.options={}")
    return changed


def _is_run(name: str | None) -> bool:
    return name is not None and (Path(name) / "config.toml").is_file()


def _run(recipe: Recipe, out: Path, *, resume: bool) -> Result:
    """Train; one of several processes that fails leaves at once: a broken group cannot be taken down."""
    from secondsight.train import train as run

    try:
        return run(recipe, out, resume=resume)
    except SecondsightError as error:
        if place_among_processes()[1] == 1:
            raise
        os._exit(report(error))


def _show(forecast: Forecast) -> None:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    for part, (count, trained) in forecast.parameters.items():
        table.add_row(part, f"{count / 1e6:,.2f}M parameters, {trained / 1e6:,.2f}M trained")
    for what, images, classes in zip(("learn from", "evaluate on"), forecast.images, forecast.classes, strict=True):
        table.add_row(what, f"{images:,} images of {classes:,} classes")
    table.add_row("loss", " → ".join(f"{loss:.4f}" for loss in forecast.losses) + " (two steps)")
    table.add_row("memory", f"{forecast.memory_bytes / 1e9:.1f} GB at its peak")
    if forecast.cache_bytes:
        needs = f"{forecast.cache_bytes / 1e9:.2f} GB on disk, {duration(forecast.cache_seconds)} to fill"
        table.add_row("cache", needs)
    each = f"{forecast.step_seconds:.2f} s a step, {duration(forecast.validation_seconds)} a validation"
    table.add_row("time", f"{duration(forecast.total_seconds)}: {forecast.steps:,} steps, {each}")
    terminal.console().print(table, highlight=False)
