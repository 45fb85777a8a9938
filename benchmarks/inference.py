"""Images a second of every runtime, with the JCF head and without: what a head costs where it is used.

    python benchmarks/inference.py                                   # lite0 and vit, batches of 1 and 8
    python benchmarks/inference.py --backbones efficientnet-lite0 resnet50 vgg16 vit --batches 1 8 64 --compile
    python benchmarks/inference.py --data cub200:CUB_200_2011        # 8 bits too, and Recall@1 of every runtime
    python benchmarks/inference.py --results r.jsonl --folder made … # what is there is not measured, or made, again

All runtimes of a network take turns in one run, so read ratios: `to torch` is the speed beside eager torch with the
same head, `head` the time that the head adds to the same network with its features averaged, in the same runtime.
Weights are random unless a file is given, `--weights resnet50=FILE`; EfficientNet-Lite0 has its package's.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import secondsight
from measure import console, interleaved, table
from secondsight import embed, inference
from secondsight.data import open as open_images
from secondsight.data.imageset import ImageSet
from secondsight.evaluate import retrieval
from secondsight.export import export
from secondsight.inference.exported import session
from secondsight.inference.graph import translated
from secondsight.inference.runtimes import REST, keep_int8
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

JCF = {"reduce": 256, "norm_exponent": 0.0}
SQUARE = {"start": "square", "power": 0.5, "whiten": 0.25, "width": 640}
HEADS: dict[str, dict[str, Any]] = {
    "average": {"pooling": "average"},
    "jcf-32-8": {"pooling": "jcf-32-8", **JCF, "pooling_options": SQUARE},
    "jcf-32-8, top-1": {"pooling": "jcf-32-8", **JCF, "pooling_options": {**SQUARE, "assign": "top-1"}},
}
"""Averaging, and JCF as recipes/photos.toml has it: with every codeword at every location, and with the nearest."""


def build(
    name: str, head: str, size: int | None, weights: str | None, images: ImageSet | None, folder: Path
) -> Embedder:
    """A network with a head, fitted to the images or to noise; kept in ``folder``, or found there."""
    if (folder / "config.toml").is_file():
        return secondsight.load(folder)
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
    model.save(folder)
    return model


def runtimes(model: Embedder, names: list[str], folder: Path, images: ImageSet | None) -> dict[str, Callable]:
    """The runtimes by name; 8 bits are calibrated on the images first."""
    if "onnx-int8" in names and images is not None and not (folder / "int8.onnx").is_file():
        export(model, folder / "int8.onnx", precision="int8", images=images, fixed_size=True)
        keep_int8(model, folder / "int8.onnx", beside=folder)
    there = [name for name in names if name != "onnx-int8" or images is not None]
    return {name: inference.runtime(model, name, beside=folder) for name in there}


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
    parser.add_argument("--alone", action="store_true", help="the heads alone, without networks")
    parser.add_argument("--cpu", action="store_true", help="seconds of the processor, for a busy machine; one thread")
    parser.add_argument("--results", type=Path, help="a JSON line for every figure; those that are there are kept")
    parser.add_argument("--folder", type=Path, help="models and exported files are kept there for the next run")
    parser.add_argument("--heads", nargs="+", default=["jcf-32-8"], choices=[h for h in HEADS if h != "average"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    keep_freed()
    torch.set_num_threads(arguments.threads)
    if arguments.alone:
        alone(list(HEADS), arguments.batches)
        return
    images = None
    if arguments.data:
        images = open_images(arguments.data)
        chosen = np.unique(np.linspace(0, len(images) - 1, arguments.images).round().astype(int))
        images = images.subset(chosen)
    names = ["torch", "onnx", "auto", *(["onnx-int8"] if images else []), *(["compile"] if arguments.compile else [])]
    files = dict(pair.split("=", 1) for pair in arguments.weights)
    for backbone in arguments.backbones:
        weights = files.get(backbone, "default" if backbone == "efficientnet-lite0" else None)
        with tempfile.TemporaryDirectory() as passing:
            folder = (arguments.folder or Path(passing)) / f"{backbone}-{arguments.size or 'own'}"
            measure(backbone, weights, names, folder, images, arguments)


class Head(nn.Module):
    """What follows the backbone, alone."""

    def __init__(self, model: Embedder):
        super().__init__()
        self.model = model

    def forward(self, features: Tensor) -> Tensor:
        return self.model.normalise(self.model.pool(features))


def alone(heads: list[str], batches: list[int], *, places: int = 81, repeats: int = 15) -> None:
    """Heads without a network, on one thread of onnxruntime and of torch: seconds of the processor."""
    torch.manual_seed(0)
    features = torch.randn(max(8, *batches), places, 1280).relu()
    models = {head: Embedder.build(backbone="efficientnet-lite0", weights=None, **HEADS[head]).eval() for head in heads}
    files = {}
    for head, model in models.items():
        model.fit(features[:8])
        shapes = ({0: torch.export.Dim("batch", min=1, max=1 << 20)},)
        proto = translated(Head(model), (features[:3],), shapes, inputs=["x"], outputs=["z"])
        files[head] = session(proto.SerializeToString(), threads=1)
    shown = table(f"Heads alone: {places} places, CPU ms, one thread", "head", "batch", "torch", "onnx")
    for batch in batches:
        x = features[:batch]
        runs: dict[Any, Callable[[], object]] = {}
        for head in heads:
            runs[head, "torch"] = lambda model=models[head], x=x: Head(model)(x)
            runs[head, "onnx"] = lambda file=files[head], x=x.numpy(): file.run(None, {"x": x})
        with torch.no_grad():
            seconds = interleaved(runs, repeats=repeats, clock=time.process_time)
        for head in heads:
            shown.add_row(head, str(batch), *(f"{1e3 * seconds[head, name]:.1f}" for name in ("torch", "onnx")))
    console.print(shown)


def measure(
    backbone: str, weights: str | None, names: list[str], folder: Path, images: ImageSet | None, arguments: Any
) -> None:
    """One network: a table of batches and runtimes, and one of recalls."""
    known = _known(arguments.results)
    size = arguments.size or 0
    todo = [b for b in arguments.batches if not all(_key(backbone, size, h, b) in known for h in arguments.heads)]
    if not todo:
        console.print(f"{backbone}: measured before, see {arguments.results}")
        return
    built, ready = {}, {}
    for head in ("average", *arguments.heads):
        built[head] = build(backbone, head, arguments.size, weights, images, folder / head)
        ready[head] = runtimes(built[head], names, folder / head, images if head != "average" else None)
    speeds = table(
        f"{backbone}, {built['average'].size} pixels, {arguments.threads} threads",
        *("head", "batch", "runtime", "images/s", "to torch", "adds"),
    )
    for batch in todo:
        pixels = torch.randint(0, 256, (batch, 3, *[built["average"].size] * 2), dtype=torch.uint8)
        variants = {(h, n): lambda run=run, x=pixels: run(x) for h in ready for n, run in ready[h].items()}
        clock = time.process_time if arguments.cpu else time.perf_counter
        seconds = interleaved(variants, repeats=arguments.repeats, rest=REST, clock=clock)
        for head in arguments.heads:
            for name in names:
                mine, bare = seconds[head, name], seconds.get(("average", name))
                eager = seconds[head, "torch"]
                adds = None if bare is None else mine / bare - 1
                shown = "" if adds is None else f"{adds:+.1%}"
                speeds.add_row(head, str(batch), name, f"{batch / mine:.1f}", f"{eager / mine:.2f}×", shown)
                line = {"runtime": name, "images/s": batch / mine, "to torch": eager / mine, "adds": adds}
                _keep(arguments.results, {**_key_words(backbone, size, head, batch), **line})
    console.print(speeds)
    if images is not None and images.labels is not None:
        recalls = table(f"{backbone}: Recall@1 among {len(images)} images", "head", "runtime", "R@1")
        for head in arguments.heads:
            for name, run in ready[head].items():
                found = recall(built[head], run, images)
                recalls.add_row(head, name, f"{found:.2%}")
                _keep(arguments.results, {"backbone": backbone, "head": head, "runtime": name, "recall@1": found})
        console.print(recalls)


def _key_words(backbone: str, size: int, head: str, batch: int) -> dict[str, Any]:
    return {"backbone": backbone, "size": size, "head": head, "batch": batch}


def _key(backbone: str, size: int, head: str, batch: int) -> str:
    return json.dumps(_key_words(backbone, size, head, batch))


def _known(path: Path | None) -> set[str]:
    """The networks, heads and batches that were measured before."""
    if path is None or not path.exists():
        return set()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {_key(row["backbone"], row["size"], row["head"], row["batch"]) for row in rows if "batch" in row}


def _keep(path: Path | None, row: dict[str, Any]) -> None:
    if path is not None:
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
