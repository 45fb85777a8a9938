"""``secondsight losses``: what an embedding can be taught with, and what each expects of a batch."""

from __future__ import annotations

import json as jsonlib

import typer
from rich.console import Console
from rich.table import Table


def losses(json: bool = typer.Option(False, "--json", help="One JSON list, for machines.")) -> None:
    """List the losses: their options with default values, what each expects of a batch, and where it comes from.

    Use the name as [bold]loss.name[/] in a recipe and the options beside it. [dim]docs/losses.md[/] has the formulas.
    """
    from secondsight.losses.listing import listing  # torch loads here, not at `secondsight --help`

    rows = listing()
    if json:
        typer.echo(jsonlib.dumps(rows, indent=2))
        return
    table = Table(title="Losses", title_justify="left", show_lines=True)
    for heading in ("name", "options", "expects of a batch", "from", "computed by"):
        table.add_column(heading, no_wrap=heading == "name", overflow="fold")
    for row in rows:
        options = "\n".join(f"{key} = {_toml(value)}" for key, value in row["options"].items())
        table.add_row(f"[bold]{row['name']}[/]", options, row["expects"]["words"], row["paper"], row["provider"])
    Console().print(table)


def _toml(value: object) -> str:
    """A default as a recipe would write it; what is not set is said in words."""
    return "(automatic)" if value is None else jsonlib.dumps(value)
