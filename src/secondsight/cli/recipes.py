"""``secondsight recipes``: the recipes that come with secondsight."""

from __future__ import annotations

import json

import typer
from rich import box
from rich.table import Table

from secondsight import shipped, terminal
from secondsight.errors import ConfigError


def recipes(
    name: str = typer.Argument(None, help="Print this one, to start a recipe of your own from."),
    as_json: bool = typer.Option(False, "--json", help="One JSON list, for machines."),
) -> None:
    """List the shipped recipes; with a name, print one.

    [bold]secondsight recipes photos > mine.toml[/] starts a recipe of your own.
    """
    if name is not None:
        file = shipped.find(name)
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{file}: not a recipe: it is not UTF-8 text; name another file") from error
        typer.echo(text, nl=False)
        return
    rows = [
        {"name": n, "description": shipped.describe(file), "path": str(file)} for n, file in shipped.files().items()
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    table.add_column("recipe", no_wrap=True, style="bold")
    table.add_column("what it is for")
    for row in rows:
        table.add_row(row["name"], row["description"])
    terminal.console().print(table)
