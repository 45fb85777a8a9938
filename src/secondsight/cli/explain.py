"""``secondsight explain``: why two images match."""

from __future__ import annotations

from pathlib import Path

import typer

from secondsight import terminal
from secondsight.cli import options


def explain(
    a: Path = typer.Argument(help="One image."),
    b: Path = typer.Argument(help="The other image."),
    model: str = typer.Option(..., "--model", "-m", help="A saved model, a run, or the name of a backbone."),
    out: Path = typer.Option(Path("why.html"), "--out", "-o", help="The file to write: .png, or .html to explore."),
    kind: str = typer.Option(
        None,
        help="Which map: share (what the similarity consists of), effect (what removing a place would do), 'left out'.",
    ),
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
    why = explaining.pair(open_model(model, weights=weights), a, b, device=options.device(device))
    why.save(out, kind=kind)
    console = terminal.console()
    for line in why.words():
        console.print(terminal.marked(line), highlight=False)
    console.print(f"[dim]{why.method}; cancellation {why.cancellation:.1f}[/]", highlight=False)
    console.print(f"[bold]{terminal.marked(out)}[/]")
