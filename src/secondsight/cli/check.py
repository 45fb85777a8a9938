"""``secondsight check``: whether an index is intact."""

from __future__ import annotations

from pathlib import Path

import typer

from secondsight.terminal import console as terminal
from secondsight.terminal import marked


def check(
    path: Path = typer.Argument(help="An index."),
    repair: bool = typer.Option(
        False, "--repair", help="Remove what is damaged, so that update embeds it again; rebuild what can be rebuilt."
    ),
) -> None:
    """Check that an index is whole: every checksum, and its catalogue against its vectors.

    [bold]secondsight check photos.index[/] exits with 0 if all is well, with 1 if something is damaged.
    [bold]secondsight check photos.index --repair[/] removes what is damaged and keeps the rest.
    """
    from secondsight import index as room

    found = room.open(path).check(repair=repair)
    console = terminal(highlight=False)
    for problem in found.problems:
        console.print(f"[red]✗[/] {marked(problem)}", soft_wrap=True)
    for words in found.mended:
        console.print(f"[green]✓[/] {marked(words)}", soft_wrap=True)
    if not found.problems:
        segments = "1 segment" if found.segments == 1 else f"{found.segments:,} segments"
        console.print(f"[green]✓[/] {found.vectors:,} vectors in {segments}: every checksum is right")
    elif found.mendable and not repair:
        console.print(f"repair it with: secondsight check {marked(path)} --repair", soft_wrap=True)
    raise typer.Exit(0 if found.sound else 1)
