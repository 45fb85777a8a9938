"""``secondsight poolings``: what exists, and what it costs."""

from __future__ import annotations

import typer

EXAMPLES = {
    "average": ["average"],
    "bp": ["bp", "bp-4"],
    "jcf": ["jcf", "jcf-4", "jcf-16-4", "jcf-32", "jcf-32-8"],
}
"""Names shown for a family that takes numbers; the others are shown by their bare name."""


def poolings(
    as_json: bool = typer.Option(False, "--json", help="Print JSON for machines instead of a table."),
    channels: int = typer.Option(
        2048, min=1, help="Channels of the backbone (ResNet-50: 2048, VGG16: 512, Lite0: 1280)."
    ),
    reduce: int = typer.Option(256, min=1, help="Channels after the reduction, which most poolings work on."),
    dim: int = typer.Option(512, min=1, help="Numbers per image."),
    locations: int = typer.Option(49, min=1, help="Local features per image: 49 = 7×7, 196 = 14×14."),
) -> None:
    """List the poolings: parameters (with the reduction), output size and GFLOPs per image.

    Names carry numbers: [bold]jcf-32-8[/] is JCF with 32 codewords that share 8 projectors; any other numbers work too.
    The defaults are the columns of the paper's ablation table.
    """
    rows = [_row(name, channels, reduce, dim, locations) for name in _names()]
    if as_json:
        import json

        typer.echo(json.dumps(rows, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Poolings of {channels} channels at {locations} locations", title_justify="left")
    for heading, justify in (("name", "left"), ("parameters", "right"), ("output", "right"), ("GFLOPs/image", "right")):
        table.add_column(heading, justify=justify)  # pyright: ignore[reportArgumentType]
    table.add_column("what it is")
    for row in rows:
        size = f"{row['parameters'] / 1e6:.2f}M"
        table.add_row(row["name"], size, str(row["output"]), f"{row['gflops']:.3f}", row["summary"])
    Console().print(table)


def _names() -> list[str]:
    from secondsight.pooling import POOLINGS

    return [name for family in POOLINGS for name in EXAMPLES.get(family, [family])]


def _row(name: str, channels: int, reduce: int, dim: int, locations: int) -> dict:
    import torch

    from secondsight.pooling import POOLINGS, build, family

    cls = POOLINGS[family(name)]
    reduced = channels if cls.takes_all_channels else min(reduce, channels)
    with torch.device("meta"):
        pool = build(name, in_dim=reduced, out_dim=dim)
    reduction = 0 if cls.takes_all_channels else channels * reduced
    return {
        "name": name,
        "family": family(name),
        "parameters": reduction + sum(p.numel() for p in pool.parameters()),
        "output": pool.out_dim,
        "gflops": (2 * locations * reduction + pool.flops(locations)) / 1e9,
        "additive": cls.additive,
        "summary": (cls.__doc__ or "").strip().splitlines()[0],
    }
