"""``secondsight export``: a model as one ONNX file."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console

PICTURES = 16
"""Pictures of --data that file and model are compared on."""


def export(
    model: str = typer.Argument(help="A saved model: a run's directory, or its best/."),
    out: Path = typer.Option(None, "--out", "-o", help="The file; default: the model's name with .onnx, here."),
    data: str = typer.Option(None, help="Images to compare the file with torch on; drawn ones without it."),
    fixed_size: bool = typer.Option(False, help="Only images of the model's own size: a shorter graph."),
) -> None:
    """Write a model as one ONNX file: pixels in, unit vectors out, nothing left to the user.

    [bold]secondsight export runs/birds/best -o birds.onnx[/]

    The file holds preprocessing, backbone, pooling, mirror image and normalisation, and says in its metadata how
    pictures are resized. It runs without torch:

    [bold]python -c "from secondsight import inference; print(inference.load('birds.onnx').embed(['a.jpg']))"[/]
    """
    from secondsight import load
    from secondsight.export import export as write

    console = Console(stderr=True, highlight=False)
    path = out or Path(f"{_name(model)}.onnx")
    with console.status("tracing the model, writing the file, comparing it with torch (half a minute)"):
        report = write(load(model), path, pictures=_pictures(data), fixed_size=fixed_size)
    told = report.description
    sizes = f"sides that are multiples of {told.multiple}" if told.multiple else f"{told.picture.size} pixels only"
    console.print(f"[bold]{report.path}[/]  {report.bytes / 1e6:.1f} MB, {told.backbone} with {told.pooling}")
    console.print(f"uint8 RGB (batch, 3, height, width), {sizes} → {told.dim} numbers of length 1")
    console.print(f"pictures: {told.picture.name} to {told.picture.size} pixels, {told.picture.interpolation}")
    on = f"images of {data}" if data else "drawn pictures (--data takes yours)"
    console.print(f"least cosine with torch on {on}: {report.cosine:.7f}")


def _pictures(data: str | None) -> list:
    if data is None:
        return []
    import numpy as np

    from secondsight.data import open as open_images
    from secondsight.data.loading.decode import decode

    images = open_images(data)
    chosen = np.linspace(0, len(images) - 1, min(PICTURES, len(images))).round().astype(int)
    return [decode(images.path(int(i))) for i in chosen]


def _name(model: str) -> str:
    path = Path(model).resolve()
    return path.parent.name if path.name == "best" and path.parent.name else path.name
