"""``secondsight duplicates``: groups of pictures in an index that are the same, in three senses."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from secondsight.cli import options
from secondsight.errors import ConfigError, require_known
from secondsight.terminal import console as terminal
from secondsight.terminal import from_here, named, print_json

MEANING = {
    "bytes": "the same file",
    "picture": "the same picture: resized, re-encoded, mirrored or cropped",
    "subject": "the same subject",
}


def duplicates(
    path: Path = typer.Argument(help="An index."),
    tier: list[str] = typer.Option(
        None, help="bytes, picture or subject; may be repeated. Default: bytes and picture."
    ),
    subject: float = typer.Option(
        None,
        min=-1.0,
        max=1.0,
        help="The cosine above which two pictures show the same subject; default: the index's cut.",
    ),
    dismiss: str = typer.Option(None, help="Ids separated by commas that are not duplicates; this is remembered."),
    most: int = typer.Option(20, min=1, help="Groups of each kind to print; --json prints all."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of text."),
) -> None:
    """Find pictures that an index holds more than once.

    [bold]secondsight duplicates photos.index[/] prints groups: the same bytes, then the same picture again (resized,
    re-encoded, mirrored, cropped). [bold]--tier subject[/] adds pictures that show the same thing.
    [bold]secondsight duplicates photos.index --dismiss 17,23[/] records that these two are not duplicates.
    """
    from secondsight import index as room

    found = room.open(path)
    console = terminal(highlight=False)
    if dismiss is not None:
        ids = options.numbers(dismiss, "--dismiss", least=2)
        if len(set(ids)) < len(ids):
            raise ConfigError(f"--dismiss {dismiss!r}: an id is there twice; give those of different pictures")
        for number in ids:
            found.item(number)
        found.dismiss(ids)
        console.print(f"remembered: {', '.join(map(str, ids))} are not duplicates of each other")
        return
    for name in tier or []:
        require_known("tier", name, MEANING)
    groups = found.duplicates(tier or ["bytes", "picture"], subject=subject)
    if as_json:
        rows = [
            {"tier": g.tier, "score": g.score, "items": [{"id": i, "path": found.item(i).path} for i in g.ids]}
            for g in groups
        ]
        print_json(rows)
        return
    for name in dict.fromkeys(tier or ["bytes", "picture"]):
        mine = [group for group in groups if group.tier == name]
        extra = sum(len(group.ids) - 1 for group in mine)
        groups_of = "1 group" if len(mine) == 1 else f"{len(mine):,} groups"
        too_many = f", {extra:,} more than needed" if mine else ""
        console.print(f"[bold]{MEANING[name]}[/]: {groups_of}{too_many}", soft_wrap=True)
        for group in mine[:most]:
            console.print(
                f"  {len(group.ids)} pictures" + (f", cosine from {group.score:.3f}" if name != "bytes" else "")
            )
            for number in group.ids:
                place = found.item(number).path or ""
                link = "  [dim](a link)[/]" if os.path.islink(place) else ""  # to remove what it leads to loses both
                console.print(f"    {number:>8}  {named(from_here(place))}{link}", soft_wrap=True)
        if len(mine) > most:
            console.print(f"  … and {len(mine) - most:,} groups more")
