"""``secondsight update``: an index follows what changed on the disk."""

from __future__ import annotations

from pathlib import Path

import typer

from secondsight.cli import options
from secondsight.cli.index import report, say_engine
from secondsight.cli.runtime import OPTION_HELP, use
from secondsight.terminal import console as terminal


def update(
    path: Path = typer.Argument(help="An index."),
    gone: bool = typer.Option(False, "--gone", help="If a folder is missing, its pictures are gone, too: remove them."),
    compact: bool = typer.Option(False, "--compact", help="Also free the space of removed pictures."),
    memory: str = typer.Option(None, help="Rebuild the search structure within this much memory: 4GB."),
    recall: float = typer.Option(None, min=0.0, max=1.0, help="Rebuild it, tuned to this recall."),
    structure: str = typer.Option(None, help="Rebuild it as: exact, ivf-sq8, bits, ivf-pq or hnsw."),
    engine: str = typer.Option(None, help="Move searches to milvus://HOST:PORT/COLLECTION, or back to faiss."),
    device: str = typer.Option("cpu", help="Where the model runs."),
    runtime: str = typer.Option("auto", help=OPTION_HELP),
    model: Path = typer.Option(None, help="An exported file to embed with instead of the model; needs no torch."),
) -> None:
    """Bring an index up to date with its folders.

    [bold]secondsight update photos.index[/] embeds what is new or changed, renames what moved, and removes what is
    gone. What has not changed (size and time) is not read. It can be interrupted at any moment.
    """
    from secondsight import index as room
    from secondsight.index.structures import parse_bytes

    found = room.open(path, device=options.device(device))
    use(found, runtime, model)
    grown = found.update(gone=gone)
    if compact:
        found.compact()
    wish = {
        "memory": parse_bytes(memory) if memory else None,
        "recall": recall,
        "structure": structure,
        "engine": engine,
    }
    if any(value is not None for value in wish.values()):
        found.build(**wish)
    console = terminal(highlight=False)
    report(console, grown, found)
    say_engine(console, found)
