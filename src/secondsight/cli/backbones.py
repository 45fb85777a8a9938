"""``secondsight backbones``: what turns an image into local features, and what each costs."""

from __future__ import annotations

import json
import re

import typer
from rich import box
from rich.table import Table

from secondsight import terminal


def backbones(as_json: bool = typer.Option(False, "--json", help="One JSON list, for machines.")) -> None:
    """List the backbones: parameters, local features, GFLOPs per image, and the stages to freeze at.

    Every number is computed from the network itself, at its own input size.

    The last rows are adapters: any model of timm or transformers can be a backbone.
    """
    from secondsight.backbones.listing import listing  # torch loads here, not at `secondsight --help`

    rows = listing()
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("backbone", no_wrap=True, style="bold")
    for heading in ("params", "input", "features", "GFLOPs"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("freeze at")
    table.add_column("weights", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row))
    console = terminal.console()
    console.print(table)
    console.print(_NOTES, highlight=False)


_NOTES = """
[dim]features: rows × columns × dimension of the local features. GFLOPs: per image, a multiply-add is two.
weights: where they come from by default; hub needs the extra \\[hf], package the extra \\[lite], file is one you give.
freeze at: that stage and all before it; "all" freezes everything.[/]"""


def _cells(row: dict) -> list[str]:
    name, stages, weights = row["name"], _runs(row["stages"]), row["weights"].partition(":")[0]
    if row["parameters"] is None:
        return [name, "", "", "", "", stages, weights]
    features = "×".join(str(number) for number in (*row["grid"], row["out_dim"]))
    return [
        name,
        f"{row['parameters'] / 1e6:.1f}M",
        str(row["size"]),
        features,
        f"{row['gflops']:.1f}",
        stages,
        weights,
    ]


def _runs(stages: list[str]) -> str:
    """``stem, layer1, layer2, layer3`` as ``stem, layer1…3``."""
    runs: list[tuple[str, list[str]]] = []
    for stage in stages:
        word, number = re.fullmatch(r"(.*?)(\d*)", stage).groups()  # pyright: ignore[reportOptionalMemberAccess]
        if runs and runs[-1][0] == word:
            runs[-1][1].append(number)
        else:
            runs.append((word, [number]))
    return ", ".join(word + "…".join(dict.fromkeys((numbers[0], numbers[-1]))) for word, numbers in runs)
