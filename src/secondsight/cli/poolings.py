"""``secondsight poolings``: what exists, and what it costs."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich import box
from rich.console import Console
from rich.table import Table

SHOWN = {
    "average": (["average"], "mean, then a linear map: the first-order baseline"),
    "max": (["max"], "maximum a channel (MAC), projected"),
    "gem": (["gem"], "generalised mean, its power learned, projected"),
    "bp": (["bp", "bp-4"], "all products of two channels; N: by codeword"),
    "cbp-ts": (["cbp-ts-8192"], "bp sketched by FFT (Tensor Sketch) to N numbers"),
    "cbp-rm": (["cbp-rm-8192"], "bp sketched by random signs (Random Maclaurin)"),
    "lrbp": (["lrbp"], "low-rank bilinear scores, with a hinge classifier"),
    "fbn": (["fbn"], "linear term plus ‖Fx‖², with DropFactor"),
    "mlb": (["mlb"], "Hadamard low-rank product under attention glimpses"),
    "grassmann": (["grassmann"], "the subspace that an image's features span"),
    "grassmann-full": (["grassmann-full"], "the same, its whole projector UUᵀ"),
    "mpn-cov": (["mpn-cov"], "square root of the covariance, by eigenvectors"),
    "isqrt-cov": (["isqrt-cov"], "square root of the covariance, by Newton–Schulz"),
    "vlad": (["vlad-32"], "residuals to k-means centres"),
    "netvlad": (["netvlad-32"], "VLAD with a learned soft assignment"),
    "fisher": (["fisher-16"], "Fisher vector of a diagonal Gaussian mixture"),
    "fishernet": (["fishernet-16"], "Fisher vector, learned end to end"),
    "mfa-fv": (["mfa-fv-8-8"], "Fisher vector of a mixture of factor analysers"),
    "mfafvnet": (["mfafvnet-8-8"], "the same, learned end to end"),
    "vlat": (["vlat-16"], "second-order residuals to k-means centres"),
    "sta": (["sta-4"], "correlations of neighbouring locations, by codeword"),
    "ista": (["ista-4"], "STA with the improved projection"),
    "jcf": (
        ["jcf", "jcf-4", "jcf-16-4", "jcf-32", "jcf-32-8"],
        "joint codebook and factorisation: N codewords, R projectors",
    ),
}
"""Family → the names to show and what it is, in a line. Any other numbers work too."""


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
    those of the paper's ablation table (ResNet-50).

    [bold]--compare DATA[/] trains every pooling on the same frozen features with the same budget, judges it on held-out
    classes, and writes results.jsonl, table.md and plot.svg to [bold]--out[/]. It goes on where it was stopped.
    """
    if compare is not None:
        _compare(
            compare, only, out, seeds, backbone=backbone, weights=weights, epochs=epochs, lr=lr, dim=dim, fold=fold
        )
        return
    rows = [_row(name, channels, reduce, dim, locations) for names, _ in SHOWN.values() for name in names]
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
    console = Console()
    console.print(table)
    console.print(
        f"\n[dim]{channels} channels at {locations} locations, reduced to {min(reduce, channels)}; multiply-add = 2."
        "\nnative: numbers before the projection to the output size. local: exact contributions of locations.[/]",
        highlight=False,
    )


def _compare(data: str, only: list[str] | None, out: Path, seeds: int, **budget) -> None:
    from secondsight import comparison

    names = only or [names[-1] for names, _ in SHOWN.values()] + ["jcf", "jcf-32"]
    console = Console(stderr=True)
    entries, given = comparison.entries(names), comparison.Budget(data=data, **budget)
    try:
        outcomes = comparison.compare(entries, given, out, seeds=seeds, say=console.print)
    except KeyboardInterrupt:
        console.print(f"stopped, and nothing in {out} is lost; the same command goes on from there", soft_wrap=True)
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
    Console().print(table)
    console.print(f"[dim]{out / comparison.RESULTS}, {comparison.TABLE}, {comparison.PLOT}[/]")


def _row(name: str, channels: int, reduce: int, dim: int, locations: int) -> dict:
    import torch  # loads here, not at `secondsight --help`

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
        "native": getattr(pool, "pooling", pool).out_dim,
        "output": pool.out_dim,
        "gflops": (2 * locations * reduction + pool.flops(locations)) / 1e9,
        "additive": pool.additive,
        "summary": SHOWN[family(name)][1],
    }
