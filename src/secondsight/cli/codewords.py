"""``secondsight codewords``: what each codeword of a model looks at."""

from __future__ import annotations

from pathlib import Path

import typer

from secondsight import terminal
from secondsight.cli import options
from secondsight.cli.options import MISSING


def codewords(
    model: str = typer.Argument(help="A saved model with a codebook, or a run."),
    data: str = typer.Argument(help="Images to look at: a folder, a table, or NAME:PATH."),
    out: Path = typer.Option(Path("codewords.html"), "--out", "-o", help="The page to write."),
    split: str = typer.Option("all", help="Which part of DATA: all, train, validation, test."),
    images: int = typer.Option(300, min=2, help="How many images to look at."),
    seed: int = typer.Option(0, min=0, help="Random seed for the choice of images."),
    device: str = typer.Option("cpu", help="Where the network runs."),
    missing: str = MISSING,
) -> None:
    """Show what each codeword looks at.

    [bold]secondsight codewords runs/birds ./photos -o codewords.html[/]

    For every codeword: its most typical patches, how often it is used, how much of the similarity it carries between
    images of one class and of different classes, and its map on a few images.
    """
    from secondsight import explain, files
    from secondsight.data import open as open_images
    from secondsight.model import open_model

    files.check_writable(out, directory=False)
    device = options.device(device)
    options.check_order("codewords", model, data)
    pictures = open_images(data, split=split, missing=options.missing(missing))
    loaded = open_model(model)
    survey = explain.codewords(loaded, pictures, sample=images, seed=seed, device=device)
    survey.save(out, title=f"Codewords of {Path(model).name} on {Path(str(pictures.root)).name}")
    console = terminal.console()
    table = terminal.columns(right=("codeword", "of all places", "within a class", "between classes"))
    for word in survey.words[:8]:
        pair = [word.carried, None] if word.within is None else [word.within, word.between]
        table.add_row(
            str(word.number), f"{word.usage:.1%}", *("" if value is None else f"{value:+.4f}" for value in pair)
        )
    console.print(table)
    console.print(f"[bold]{terminal.marked(out)}[/]  {len(survey.words)} codewords, {survey.images} images")
