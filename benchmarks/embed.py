"""From JPEG files to vectors on disk, against the bare network on a batch that is in memory already.

    python benchmarks/embed.py                          # EfficientNet-Lite0 and VGG16
    python benchmarks/embed.py --backbones vgg16 --images 96 --repeats 3

Both run in turns in one process. The target is 95 %: decoding, resizing, collecting and writing may cost 5 %.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from rich.table import Table

from measure import console, interleaved
from secondsight import data
from secondsight.embed.directory import embed_to, finish
from secondsight.model import Embedder


def photographs(folder: Path, count: int) -> None:
    """JPEGs of 500×375 pixels with as much detail as photographs have: smooth noise of several sizes."""
    rng = np.random.default_rng(0)
    for i in range(count):
        layers = [rng.integers(0, 256, (375 // s + 1, 500 // s + 1, 3), dtype=np.uint8) for s in (64, 16, 4)]
        images = [np.asarray(Image.fromarray(layer).resize((500, 375)), np.float32) for layer in layers]
        mixed = 0.6 * images[0] + 0.3 * images[1] + 0.1 * images[2]
        Image.fromarray(mixed.clip(0, 255).astype(np.uint8)).save(folder / f"{i:05d}.jpg", quality=90)


@torch.no_grad()
def bare(model: Embedder, batch: torch.Tensor, count: int) -> None:
    for _ in range(count // len(batch)):
        model(batch)


def road(model: Embedder, images: data.ImageSet, batch_size: int) -> None:
    with tempfile.TemporaryDirectory() as out:
        embed_to(out, model, images, batch_size=batch_size)
        finish(out, images, batch_size=batch_size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=256, help="JPEGs; rounded to whole batches")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--backbones", default="efficientnet-lite0,vgg16")
    options = parser.parse_args()
    count = max(1, options.images // options.batch) * options.batch
    table = Table("network", "bare, images/s", "files to vectors, images/s", "share")
    with tempfile.TemporaryDirectory() as folder:
        photographs(Path(folder), count)
        images = data.open(folder)
        for name in options.backbones.split(","):
            torch.manual_seed(0)
            model = Embedder.build(backbone=name, weights="random", pooling="jcf-32-8", size=224).eval()
            batch = torch.randint(0, 256, (options.batch, 3, 224, 224), dtype=torch.uint8)
            batch = batch.contiguous(memory_format=torch.channels_last)
            variants = {
                "bare": lambda model=model, batch=batch: bare(model, batch, count),
                "road": lambda model=model: road(model, images, options.batch),
            }
            seconds = interleaved(variants, repeats=options.repeats, most=600.0)
            share = seconds["bare"] / seconds["road"]
            table.add_row(name, f"{count / seconds['bare']:.1f}", f"{count / seconds['road']:.1f}", f"{share:.1%}")
    console.print(table)


if __name__ == "__main__":
    main()
