"""Images a second of every runtime, with the JCF head and without: what a head costs where it is used.

    python benchmarks/inference.py                                   # lite0 and vit, batches of 1 and 8
    python benchmarks/inference.py --backbones efficientnet-lite0 resnet50 vgg16 vit --batches 1 8 64 --compile
    python benchmarks/inference.py --data cub200:CUB_200_2011        # 8 bits too, and Recall@1 of every runtime

All runtimes of a network take turns in one run, so read ratios: `to torch` is the speed beside eager torch with the
same head, `head` the time that jcf-32-8 adds to the same network with its features averaged, in the same runtime.
Weights are random unless a file is given, `--weights resnet50=FILE`; EfficientNet-Lite0 has its package's.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from measure import console, interleaved, table
from secondsight import embed, inference
from secondsight.data import open as open_images
from secondsight.data.imageset import ImageSet
from secondsight.evaluate import retrieval
from secondsight.export import export
from secondsight.inference.runtimes import keep_int8
from secondsight.memory import keep_freed
from secondsight.model import Embedder

VIT = {
    "model_type": "vit",
    "hidden_size": 192,
    "num_hidden_layers": 12,
    "num_attention_heads": 3,
    "intermediate_size": 768,
    "image_size": 224,
    "patch_size": 16,
}
"""ViT-Tiny: the architecture alone, its weights are random."""

HEADS: dict[str, dict[str, Any]] = {
    "average": {"pooling": "average"},
    "jcf-32-8": {
        "pooling": "jcf-32-8",
        "norm_exponent": 0.0,
        "pooling_options": {"start": "saliency", "power": 0.5, "whiten": 0.125},
    },
}


def build(name: str, head: str, size: int | None, weights: str | None, images: ImageSet | None) -> Embedder:
    """A network with a head, fitted to the images or to noise."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"backbone": name, "weights": weights, "size": size, **HEADS[head]}
    if name == "vit":
        pixels = {"mean": [0.5] * 3, "std": [0.5] * 3, "size": 224}
        options |= {
            "backbone": "hf:vit-tiny",
            "backbone_options": {"architecture": json.dumps(VIT), "preprocessing": pixels},
        }
    model = Embedder.build(**options).eval()
    with torch.no_grad():
        if images is not None:
            features = embed.features(model, images, count=64)
        else:
            noise = torch.randint(0, 256, (16, 3, model.size, model.size), dtype=torch.uint8)
            features = [model.backbone(noise)]
        model.fit(features, grid=model.backbone.grid(model.size, model.size))
    return model


def runtimes(model: Embedder, names: list[str], folder: Path, images: ImageSet | None) -> dict[str, Callable]:
    """The runtimes by name; 8 bits are calibrated on the images first."""
    if "onnx-int8" in names and images is not None:
        export(model, folder / "int8.onnx", precision="int8", images=images, fixed_size=True)
        keep_int8(model, folder / "int8.onnx", beside=folder)
    return {name: inference.runtime(model, name, beside=folder) for name in names}


def recall(model: Embedder, run: Callable[[Tensor], Tensor], images: ImageSet) -> float:
    found = embed.embed(model, images, run=run)
    assert found.labels is not None
    return retrieval(found.vectors, found.labels, ks=(1,)).recall[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbones", nargs="+", default=["efficientnet-lite0", "vit"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--size", type=int, help="pixels a side; default: each network's own")
    parser.add_argument("--data", help="labelled images: 8 bits are calibrated on them, and recall is measured")
    parser.add_argument("--images", type=int, default=400, help="images of --data to use")
    parser.add_argument("--weights", nargs="*", default=[], metavar="BACKBONE=FILE")
    parser.add_argument("--compile", action="store_true", help="torch.compile too: minutes for each network")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    keep_freed()
    torch.set_num_threads(arguments.threads)
    images = None
    if arguments.data:
        images = open_images(arguments.data)
        chosen = np.unique(np.linspace(0, len(images) - 1, arguments.images).round().astype(int))
        images = images.subset(chosen)
    names = ["torch", "onnx", *(["onnx-int8"] if images else []), *(["compile"] if arguments.compile else [])]
    files = dict(pair.split("=", 1) for pair in arguments.weights)
    for backbone in arguments.backbones:
        weights = files.get(backbone, "default" if backbone == "efficientnet-lite0" else None)
        with tempfile.TemporaryDirectory() as folder:
            measure(backbone, weights, names, Path(folder), images, arguments)


def measure(
    backbone: str, weights: str | None, names: list[str], folder: Path, images: ImageSet | None, arguments: Any
) -> None:
    """One network: a table of batches and runtimes, and one of recalls."""
    built, ready = {}, {}
    for head in HEADS:
        (folder / head).mkdir()
        built[head] = build(backbone, head, arguments.size, weights, images)
        ready[head] = runtimes(built[head], names, folder / head, images)
    speeds = table(
        f"{backbone}, {built['average'].size} pixels, jcf-32-8", "batch", "runtime", "images/s", "to torch", "head"
    )
    for batch in arguments.batches:
        size = built["average"].size
        pixels = torch.randint(0, 256, (batch, 3, size, size), dtype=torch.uint8)
        variants = {(head, name): lambda h=head, n=name, x=pixels: ready[h][n](x) for head in HEADS for name in names}
        seconds = interleaved(variants, repeats=arguments.repeats)  # pyright: ignore[reportArgumentType] any key does
        for name in names:
            with_head, bare = seconds["jcf-32-8", name], seconds["average", name]  # pyright: ignore[reportArgumentType]
            eager = seconds["jcf-32-8", "torch"]  # pyright: ignore[reportArgumentType]
            figures = f"{batch / with_head:.1f}", f"{eager / with_head:.2f}×", f"{with_head / bare - 1:+.1%}"
            speeds.add_row(str(batch), name, *figures)
    console.print(speeds)
    if images is not None and images.labels is not None:
        recalls = table(f"{backbone}: Recall@1 among {len(images)} images", "runtime", "R@1")
        for name, run in ready["jcf-32-8"].items():
            recalls.add_row(name, f"{recall(built['jcf-32-8'], run, images):.2%}")
        console.print(recalls)


if __name__ == "__main__":
    main()
