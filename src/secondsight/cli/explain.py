"""``secondsight explain``: why two images match."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from secondsight import terminal
from secondsight.cli import options
from secondsight.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from secondsight.model import Embedder


def explain(
    a: Path = typer.Argument(help="One image."),
    b: Path = typer.Argument(help="The other image."),
    model: str = typer.Option(..., "--model", "-m", help="A saved model, a run, or the name of a backbone."),
    out: Path = typer.Option(Path("why.html"), "--out", "-o", help="The file to write: .png, or .html to explore."),
    kind: str = typer.Option(
        None,
        help="Which map: share (what the similarity consists of), effect (what removing a place would do), 'left out', "
        "distinct (what other pictures would not get; needs --among).",
    ),
    among: Path = typer.Option(None, help="An index by the same model: what sets the match apart from its pictures."),
    weights: str = typer.Option("default", help="Of a backbone: default, random, or a file."),
    device: str = typer.Option("cpu", help="Where the network runs."),
) -> None:
    """Show why two images match: which places of one match which places of the other, and which speak against it.

    [bold]secondsight explain a.jpg b.jpg --model runs/birds -o why.png[/]

    For every additive pooling (jcf, average, bp …) the links between places add up to the similarity; for the others
    the map is an approximation, and its error is printed.
    """
    from secondsight import explain as explaining
    from secondsight import files
    from secondsight.explain.explanation import check_target
    from secondsight.model import open_model

    check_target(out, kind)
    files.check_writable(out, directory=False)
    if kind == "distinct" and among is None:
        raise ConfigError("--kind distinct compares with other pictures: name an index that holds some with --among")
    opened = open_model(model, weights=weights)
    others = None if among is None else _others(among, opened, [a, b])
    why = explaining.pair(opened, a, b, others=others, device=options.device(device))
    why.save(out, kind=kind)
    console = terminal.console()
    for line in why.words():
        console.print(terminal.marked(line), highlight=False)
    console.print(f"[dim]{why.method}; cancellation {why.cancellation:.1f}[/]", highlight=False)
    console.print(f"[bold]{terminal.marked(out)}[/]")


def _others(path: Path, model: Embedder, pictures: list[Path]) -> np.ndarray:
    from secondsight import index as room
    from secondsight.index.regions import FEW, others

    index = room.open(path)
    index.check_fingerprint(model.fingerprint(), "the model")
    found = others(index, [index.find(picture) for picture in pictures])
    if found is None:
        raise ConfigError(f"{path}: too few other pictures to say what is usual; {FEW} are needed")
    return found
