"""``secondsight update``: an index follows what changed on the disk."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

from secondsight.cli.index import report


def update(
    path: Path = typer.Argument(help="An index."),
    gone: bool = typer.Option(
        False, "--gone", help="A folder that is not there any more means that its pictures are gone, too."
    ),
    compact: bool = typer.Option(
        False, "--compact", help="Also rewrite the vectors without those of removed pictures."
    ),
    device: str = typer.Option("cpu", help="Where the model runs."),
) -> None:
    """Bring an index up to date with its folders.

    [bold]secondsight update photos.index[/] embeds what is new or changed, renames what moved, and removes what is
    gone. What has not changed (size and time) is not read. It can be interrupted at any moment.
    """
    from secondsight import index as room

    found = room.open(path, device=device)
    grown = found.update(gone=gone)
    if compact:
        found.compact()
    report(Console(highlight=False), grown, found)
