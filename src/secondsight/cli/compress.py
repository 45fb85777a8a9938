"""``secondsight compress``: a trained model made smaller, with what that costs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal

import typer

from secondsight import terminal
from secondsight.cli import options
from secondsight.cli.options import MISSING
from secondsight.errors import ConfigError


def compress(
    model: Path = typer.Argument(help="A saved model: a run's best/ directory."),
    projectors: int = typer.Option(None, min=1, help="Shared projectors R: turns jcf-32 into jcf-32-R in closed form."),
    dim: int = typer.Option(None, min=1, help="Numbers per image to keep: principal axes of the embeddings."),
    data: str = typer.Option(
        None,
        help="Images, to weigh codewords by their use and find the principal axes; with labels also to measure recall.",
    ),
    split: str = typer.Option(
        "all", help="Which part of DATA: all, train, validation, test. The last two are used for the recall only."
    ),
    images: int = typer.Option(
        1000,
        min=1,
        help="Sample images used to compress; with --split validation or test they are of training classes.",
    ),
    steps: int = typer.Option(
        0, min=0, help="Steps of fine-tuning towards the large model's embeddings; no labels needed."
    ),
    out: Path = typer.Option(
        None,
        "--out",
        "-o",
        help="Where the small model goes; default: beside MODEL, with a name that says what was done.",
    ),
    seed: int = typer.Option(0, min=0, help="Random seed for the sample and the fine-tuning."),
    missing: str = MISSING,
) -> None:
    """Make a trained model smaller, and measure what that costs.

    [bold]--projectors 8[/] replaces the projectors of a trained jcf-32 by the best 8 shared ones (a jcf-32-8), in
    closed form and without training. [bold]--dim 128[/] keeps 128 numbers per image. With labelled [bold]--data[/] the
    recall before and after is measured, and also with embeddings stored as int8 (a quarter of the bytes) and as bits (a
    thirty-second).

    Choose by figures of validation images, and report those of test images once.
    """
    from secondsight import compress as compression
    from secondsight import files, load

    if projectors is None and dim is None:
        raise ConfigError("nothing was asked to be smaller; give --dim 128, --projectors 8, or both")
    console = terminal.console()
    target = out or model.with_name(model.name + "".join(_suffixes(projectors, dim)))
    if target.exists() and target.resolve() == model.resolve():
        raise ConfigError(f"--out {target} is the model itself; choose another place")
    files.check_writable(target)
    large = load(model)
    pictures = sample = None
    if data is not None:
        seen, pictures = _open(data, split, options.missing(missing))
        sample = compression.Sample.of(large, seen, count=images, seed=seed)
    small, change = compression.compress(large, projectors=projectors, dim=dim, sample=sample, steps=steps, seed=seed)
    small.save(target)

    names = [terminal.marked(m.config.pooling) for m in (large, small)]
    console.print(f"[bold]{names[0]}[/] → [bold]{names[1]}[/], {terminal.marked(target)}")
    before, after = change.parameters
    console.print(f"parameters after the backbone: {before / 1e6:.2f}M → {after / 1e6:.2f}M")
    console.print(f"numbers per image: {change.dim[0]} → {change.dim[1]}")
    if change.lost:
        console.print(f"energy that the closed form gives up: U {change.lost['u']:.1%}, V {change.lost['v']:.1%}")
    if change.cosine is not None:
        console.print(f"mean cosine between embeddings before and after: {change.cosine:.4f}")
    if pictures is not None and pictures.labels is not None:
        figures = _recalls(large, small, pictures)
        _show(console, figures)
        files.write_text(
            target / "compression.json", json.dumps({"lost": change.lost, "figures": figures}, indent=1) + "\n"
        )


def _suffixes(projectors: int | None, dim: int | None) -> list[str]:
    return [f"-r{projectors}"] * (projectors is not None) + [f"-d{dim}"] * (dim is not None)


def _open(data: str, split: str, missing: Literal["error", "skip"]):
    """Images to measure, and images to evaluate on: training classes and held-out ones where the split has both."""
    from secondsight.data import open as open_images
    from secondsight.data import splits

    if split not in ("validation", "test"):
        images = open_images(data, split=split, missing=missing)
        return images, images
    cut = splits(data, "validation" if split == "validation" else "standard", missing=missing)
    return cut.train, cut.eval


def _recalls(large, small, pictures) -> list[dict]:
    """Recall of the large model, of the small one, and of the small one's embeddings as int8 and as bits."""
    import torch

    from secondsight.embed import embed
    from secondsight.evaluate import retrieval
    from secondsight.functional.pooling.compression import from_bits, to_bits, to_int8

    def row(name: str, vectors, labels, size: int) -> dict:
        return {"embeddings": name, "bytes": size, **retrieval(vectors, labels, bootstrap=0).figures}

    rows = []
    for name, model in (("before, float32", large), ("after, float32", small)):
        found = embed(model, pictures)
        rows.append(row(name, found.vectors, found.labels, 4 * model.dim))
    z = torch.from_numpy(found.vectors)  # the small model's
    rows.append(row("after, int8", to_int8(z).float().numpy(), found.labels, small.dim))
    rows.append(row("after, bits", from_bits(to_bits(z), small.dim).numpy(), found.labels, -(-small.dim // 8)))
    return rows


def _show(console, figures: list[dict]) -> None:
    names = [re.sub("^recall@", "R@", name).replace("map@r", "MAP@R").replace("mrr", "MRR") for name in figures[0]]
    table = terminal.columns("embeddings", right=names[1:])
    for row in figures:
        table.add_row(*(f"{100 * v:.1f}" if isinstance(v, float) else str(v) for v in row.values()))
    console.print(table)
