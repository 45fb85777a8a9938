"""``secondsight export``: a model as one ONNX file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from secondsight import terminal
from secondsight.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from secondsight.export import PrecisionCost

PICTURES = 16
"""Pictures of --data that file and model are compared on."""


def export(
    model: Path = typer.Argument(help="A saved model: a run's directory, or its best/."),
    out: Path = typer.Option(None, "--out", "-o", help="The file; default: the model's name with .onnx, here."),
    int8: bool = typer.Option(False, "--int8", help="8-bit weights and activations, calibrated on --data."),
    half: bool = typer.Option(False, "--half", help="The backbone in half precision, for GPUs."),
    data: str = typer.Option(
        None, help="Images to check against torch and to calibrate 8 bits; with labels also for recall."
    ),
    split: str = typer.Option("all", help="Which part of DATA: all, train, validation, test."),
    fixed_size: bool = typer.Option(False, help="Only images of the model's own size: a shorter graph."),
) -> None:
    """Write a model as one ONNX file: pixels in, unit vectors out, with everything between inside.

    [bold]secondsight export runs/birds/best -o birds.onnx[/]

    [bold]secondsight export runs/birds/best -o birds8.onnx --int8 --data photos/[/]

    The file holds preprocessing, backbone, pooling, mirror image and normalisation, and says in its metadata how
    pictures are resized. It runs without torch:

    [bold]python -c "from secondsight import inference; print(inference.load('birds.onnx').embed(['a.jpg']))"[/]
    """
    if int8 and half:
        raise ConfigError("--int8 and --half exclude each other: choose one")
    from secondsight import files, load
    from secondsight.data import open as open_images
    from secondsight.export import export as write
    from secondsight.inference.runtimes import keep_int8
    from secondsight.model.directory import model_folder

    console = terminal.console(stderr=True, highlight=False, soft_wrap=True)
    precision = "int8" if int8 else "float16" if half else "float32"
    path = out or Path(f"{_name(model)}{'-int8' if int8 else '-half' if half else ''}.onnx")
    files.check_writable(path, directory=False)
    embedder = load(model)
    images = None if data is None else open_images(data, split=split)
    console.print("tracing the model, writing the file, comparing it with torch (half a minute) …", style="dim")
    report, cost = write(
        embedder, path, precision=precision, images=images, pictures=_pictures(images), fixed_size=fixed_size
    )
    file = report.description
    sizes = f"sides that are multiples of {file.multiple}" if file.multiple else f"{file.picture.size} pixels only"
    console.print(
        f"[bold]{terminal.marked(report.path)}[/]  {report.bytes / 1e6:.1f} MB, {file.backbone} with {file.pooling}"
    )
    console.print(f"uint8 RGB (batch, 3, height, width), {sizes} → {file.dim} numbers of length 1")
    console.print(f"pictures: {file.picture.name} to {file.picture.size} pixels, {file.picture.interpolation}")
    on = f"images of {terminal.marked(data)}" if data else "drawn pictures (--data takes yours)"
    console.print(f"least cosine {'of the float32 file ' if int8 else ''}with torch on {on}: {report.cosine:.7f}")
    if cost is not None:
        _say(console, cost, precision)
    if int8:
        kept = keep_int8(embedder, path, beside=model_folder(model))
        console.print(f"for --runtime onnx-int8: {terminal.marked(kept)}")


def _say(console: Console, cost: PrecisionCost, precision: str) -> None:
    (size, small), (slow, fast) = cost.bytes, cost.images_per_second
    console.print(f"{precision} beside float32, on {cost.images} images:")
    console.print(f"  size    {size / 1e6:.1f} → {small / 1e6:.1f} MB")
    console.print(f"  speed   {slow:.1f} → {fast:.1f} images/s ({fast / slow:.2f}×)")
    console.print(f"  cosine  {cost.cosine:.5f} between the vectors of both, on average")
    if cost.recall is not None:
        before, after = cost.recall
        console.print(f"  R@1     {before:.2%} → {after:.2%}")
    else:
        console.print("  R@1     not measured: the images have no labels")
    if cost.quantised is not None and cost.quantised.kept:
        names = ", ".join(f"{name} ({loss:.3f})" for name, loss in cost.quantised.kept[:5])
        console.print(
            f"  {cost.quantised.layers} layers in 8 bits; {len(cost.quantised.kept)} stay in float32: {names}"
        )


def _pictures(images) -> list:
    if images is None:
        return []
    import numpy as np

    from secondsight.data.loading.decode import decode

    chosen = np.linspace(0, len(images) - 1, min(PICTURES, len(images))).round().astype(int)
    return [decode(images.path(int(i))) for i in chosen]


def _name(model: Path) -> str:
    path = model.resolve()
    return path.parent.name if path.name == "best" and path.parent.name else path.name
