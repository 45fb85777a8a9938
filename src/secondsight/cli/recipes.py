"""``secondsight recipes``: the recipes that come with secondsight."""

from __future__ import annotations

import json as jsonlib

import typer
from rich import box
from rich.table import Table

from secondsight import shipped, terminal
from secondsight.errors import ConfigError


def recipes(
    name: str = typer.Argument(None, help="Print this one, to start a recipe of your own from."),
    json: bool = typer.Option(False, "--json", help="One JSON list, for machines."),
) -> None:
    """List the shipped recipes; with a name, print one.

    [bold]secondsight recipes photos > mine.toml[/] is how a recipe of one's own begins.
    """
    if name is not None:
        file = shipped.find(name)
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{file}: not a recipe: it is no text in UTF-8; name another file") from error
        typer.echo(text, nl=False)
        return
    rows = [
        {"name": n, "description": shipped.describe(file), "path": str(file)} for n, file in shipped.files().items()
    ]
    if json:
        typer.echo(jsonlib.dumps(rows, indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    table.add_column("recipe", no_wrap=True, style="bold")
    table.add_column("what it is for")
    for row in rows:
        table.add_row(row["name"], row["description"])
    terminal.console().print(table)
