"""``secondsight losses``: the losses to train with, and what each expects of a batch."""

from __future__ import annotations

import json

import typer
from rich import box
from rich.table import Table

from secondsight import terminal


def losses(as_json: bool = typer.Option(False, "--json", help="One JSON list, for machines.")) -> None:
    """List the losses: their options with default values, what each expects of a batch, and where it comes from.

    Use the name and the options in a recipe. The formulas are in docs/losses.md.
    """
    from secondsight.losses.listing import listing  # torch loads here, not at `secondsight --help`

    rows = listing()
    if as_json:
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    table = Table(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
        caption="* computed by pytorch-metric-learning, the others by secondsight",
        caption_justify="left",
    )
    table.add_column("name", no_wrap=True, style="bold")
    for heading, width in (("options and their defaults", 20), ("expects of a batch", 17), ("paper", 14)):
        table.add_column(heading, overflow="fold", min_width=width)
    for row in rows:
        star = "" if row["provider"] == "secondsight" else "*"
        options = ", ".join(f"{key}={_shown(value)}" for key, value in row["options"].items())
        table.add_row(f"{row['name']}{star}", options, row["expects"]["words"], row["paper"])
    terminal.console().print(table)


def _shown(value: object) -> str:
    """A default in few letters."""
    if value is None:
        return "automatic"
    if isinstance(value, tuple):
        return "/".join(f"{item:g}" for item in value)
    return str(value).lower() if isinstance(value, bool) else f"{value}"
