"""``secondsight poolings``: what exists, and what it costs."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich import box
from rich.table import Table

from secondsight import terminal


def poolings(
    as_json: bool = typer.Option(False, "--json", help="One JSON list, for machines."),
    channels: int = typer.Option(2048, min=1, help="Channels of the backbone (ResNet-50 2048, VGG16 512, Lite0 1280)."),
    reduce: int = typer.Option(256, min=1, help="Channels after the reduction, which most poolings work on."),
    dim: int = typer.Option(512, min=1, help="Numbers per image."),
    locations: int = typer.Option(49, min=1, help="Local features per image: 49 = 7×7, 196 = 14×14."),
    compare: str = typer.Option(
        None, metavar="DATA", help="Train every pooling briefly on these images and compare them."
    ),
    only: list[str] = typer.Option(
        None, help="With --compare: a pooling to include; may be given often. Default: all."
    ),
    backbone: str = typer.Option("efficientnet-lite0", help="With --compare: whose frozen features."),
    weights: str = typer.Option("default", help="With --compare: the backbone's weights, a file or 'default'."),
    epochs: int = typer.Option(3, min=1, help="With --compare: the budget of every pooling."),
    lr: float = typer.Option(1e-3, help="With --compare: the learning rate of every pooling."),
    seeds: int = typer.Option(1, min=1, help="With --compare: runs of every pooling."),
    fold: int = typer.Option(
        0, min=0, help="With --compare: which classes are held out; 0 = the last half, 1 = the first."
    ),
    out: Path = typer.Option(
        Path("runs/poolings"), help="With --compare: where results go; what is there is not run again."
    ),
) -> None:
    """List the poolings: parameters, output size and GFLOPs per image. Or [bold]--compare[/] them on your images.

    A name carries its numbers: [bold]jcf-32-8[/] is JCF with 32 codewords that share 8 projectors; any others work too.
    Parameters and GFLOPs include the reduction of the channels and the projection to [bold]--dim[/]; the defaults are
    those of the paper's ablation table (ResNet-50). [bold]ista[/] is our reading of an abstract: more of its paper
    could not be had.

    [bold]--compare DATA[/] trains every pooling on the same frozen features with the same budget, judges it on held-out
    classes, and writes results.jsonl, table.md and plot.svg to [bold]--out[/]. It goes on where it was stopped.
    """
    if compare is not None:
        _compare(
            compare, only, out, seeds, backbone=backbone, weights=weights, epochs=epochs, lr=lr, dim=dim, fold=fold
        )
        return
    from secondsight.pooling.listing import listing  # loads torch: here, not at `secondsight --help`

    rows = listing(channels=channels, reduce=reduce, dim=dim, locations=locations)
    if as_json:
        typer.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("pooling", no_wrap=True, style="bold")
    for heading in ("params", "native", "output", "GFLOPs"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("local", justify="center")
    table.add_column("what it is")
    for row, before in zip(rows, [None, *rows], strict=False):
        again = before is not None and before["family"] == row["family"]
        table.add_row(
            row["name"],
            f"{row['parameters'] / 1e6:.1f}M",
            f"{row['native']:,}",
            str(row["output"]),
            f"{row['gflops']:.2f}",
            "✓" if row["additive"] else "",
            "" if again else row["summary"],
        )
    console = terminal.console()
    console.print(table)
    console.print(
        f"\n[dim]{channels} channels at {locations} locations, reduced to {min(reduce, channels)}; multiply-add = 2."
        "\nnative: numbers before the projection to the output size. local: a sum over locations."
        "\nPapers, and what each pooling expects: --json.[/]",
        highlight=False,
    )


def _compare(data: str, only: list[str] | None, out: Path, seeds: int, **budget) -> None:
    from secondsight import comparison, files
    from secondsight.pooling.listing import names

    chosen = only or [some[-1] for some in names().values()] + ["jcf", "jcf-32"]
    console = terminal.console(stderr=True)

    def say(words: str) -> None:
        console.print(words, markup=False, highlight=False, soft_wrap=True)

    files.check_writable(out)
    entries, given = comparison.entries(chosen), comparison.Budget(data=data, **budget)
    try:
        outcomes = comparison.compare(entries, given, out, seeds=seeds, say=say)
    except KeyboardInterrupt:
        say(f"stopped, and nothing in {out} is lost; the same command goes on from there")
        raise typer.Exit(130) from None
    comparison.plot(outcomes, out / comparison.PLOT)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for heading in ("pooling", "R@1", "±", "untrained", "params", "GFLOPs", "native"):
        table.add_column(heading, justify="left" if heading == "pooling" else "right")
    for row in comparison.summary(outcomes):
        spread = "" if row["spread"] is None else f"{row['spread']:.1f}"
        start = "" if row["untrained"] is None else f"{row['untrained']:.1f}"
        cost = (f"{row['parameters'] / 1e6:.1f}M", f"{row['gflops']:.2f}", f"{row['native']:,}")
        table.add_row(row["title"], f"{row['recall']:.1f}", spread, start, *cost)
    terminal.console().print(table)
    console.print(f"[dim]{terminal.marked(out / comparison.RESULTS)}, {comparison.TABLE}, {comparison.PLOT}[/]")
