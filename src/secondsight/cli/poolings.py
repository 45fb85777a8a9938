"""``secondsight poolings``: what exists, and what it costs."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import typer
from rich import box
from rich.table import Table

from secondsight import files, terminal


def poolings(
    as_json: bool = typer.Option(False, "--json", help="One JSON list, for machines."),
    channels: int = typer.Option(2048, min=1, help="Channels of the backbone (ResNet-50 2048, VGG16 512, Lite0 1280)."),
    reduce: int = typer.Option(256, min=1, help="Channels after the reduction, which most poolings work on."),
    dim: int = typer.Option(512, min=1, help="Numbers per image."),
    locations: int = typer.Option(49, min=1, help="Local features per image: 49 = 7×7, 196 = 14×14."),
    compare: str = typer.Option(None, metavar="DATA", help="Train every pooling on these images and compare them."),
    only: list[str] = typer.Option([], help="With --compare: a pooling to include; may be repeated. Default: all."),
    backbone: str = typer.Option(
        "efficientnet-lite0", help="With --compare: the network that gives the frozen features."
    ),
    weights: str = typer.Option(
        "default", help="With --compare: the backbone's weights: a file, 'default' or 'random'."
    ),
    epochs: int = typer.Option(3, min=1, help="With --compare: epochs that every pooling gets."),
    seeds: int = typer.Option(1, min=1, help="With --compare: runs per pooling."),
    out: Path = typer.Option(Path("runs/poolings"), "--out", "-o", help="With --compare: where results and models go."),
) -> None:
    """List the poolings: parameters, output size and GFLOPs per image. Or [bold]--compare[/] them on your images.

    A name carries its numbers: [bold]jcf-32-8[/] is JCF with 32 codewords that share 8 projectors; any others work too.
    Parameters and GFLOPs include the reduction of the channels and the projection to [bold]--dim[/]; the defaults are
    those of the paper's ablation table (ResNet-50). [bold]ista[/] is our reading of an abstract: the full
    paper was not available.

    [bold]secondsight poolings --compare ./photos[/] is the table [bold]poolings[/] of [bold]secondsight reproduce[/] on
    your images: every pooling learns on the same frozen features with the same budget and is evaluated on other
    classes. It writes poolings.jsonl, compared.md and compared.svg to [bold]--out[/]; run again, it continues.
    """
    if compare is not None:
        model = {"backbone": backbone, "dim": dim} | ({} if Path(weights).is_file() else {"weights": weights})
        changes = {"model": model, "train": {"epochs": epochs}, "validation": {"every": epochs}}
        given = {backbone: weights} if Path(weights).is_file() else {}
        _compare(compare, only, changes, given, range(seeds), out)
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


def _compare(
    data: str, only: list[str], changes: dict[str, dict], weights: dict[str, str], seeds: range, out: Path
) -> None:
    from secondsight.cli.reproduce import make, write_page
    from secondsight.reproduce import lines
    from secondsight.reproduce.plan import plan
    from secondsight.reproduce.pooling_table import pooling_table
    from secondsight.reproduce.row_summary import summarise
    from secondsight.reproduce.runner import RunPaths, placed
    from secondsight.train.sets import adapted

    command = f"secondsight {shlex.join(sys.argv[1:])}"
    files.check_writable(out)
    places = RunPaths(data=data, weights=weights, out=out, work=out / "runs", keep_models=True)
    first = placed(pooling_table(only[:1], changes=changes).rows[0].recipe(fold=0, seed=0), places)
    batches = adapted(first, ["validation.share"], say=terminal.console(stderr=True, highlight=False).print).train
    changes["train"] |= batches.model_dump(include={"classes_per_batch", "images_per_class"})
    table = pooling_table(only, seeds=seeds, changes=changes, command=command)
    make(table, plan(table), places)
    view = terminal.columns("pooling", right=("R@1", "untrained", "params", "GFLOPs", "native"))
    found = summarise(table, lines.sort(table, lines.read(lines.path_of(table.name, out))).fresh)
    for row in sorted(found, key=lambda row: -row.last["recall@1"].value):
        costs = (f"{row.parameters / 1e6:.1f}M", f"{row.gflops:.2f}", f"{row.native:,}")
        view.add_row(row.row.name, str(row.last["recall@1"]), str(row.untrained), *costs)
    terminal.console().print(view)
    write_page(out / "compared.md", [table], out, command=command)
