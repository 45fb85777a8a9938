"""Images a second of every runtime, with the JCF head and without: what a head costs where it is used.

    python benchmarks/inference.py                                   # lite0 and vit, batches of 1 and 8
    python benchmarks/inference.py --backbones efficientnet-lite0 resnet50 vgg16 vit --batches 1 8 64 --compile
    python benchmarks/inference.py --data cub200:CUB_200_2011        # 8 bits too, and Recall@1 of every runtime
    python benchmarks/inference.py --results r.jsonl --folder made … # what is there is not measured, or made, again

All runtimes of a network take turns in one run, so read ratios: `to torch` is the speed beside eager torch with the
same head, `head` the time that the head adds to the same network with its features averaged, in the same runtime;
`auto` is what the runtime that `auto` chooses takes beside the faster of torch and onnx. With --data the pixels are
photographs', the first half of the classes fits the head and calibrates 8 bits, and the second half is searched.
Weights are random unless a file is given, `--weights vgg16=FILE`; EfficientNet-Lite0 has its package's.
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
from secondsight.data.loading.batches import BatchLoader
from secondsight.data.loading.picture_rows import Pictures
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

BACKBONES: dict[str, dict[str, Any]] = {
    "vit": {
        "backbone": "hf:vit-tiny",
        "backbone_options": {
            "architecture": json.dumps(VIT),
            "preprocessing": {"mean": [0.5] * 3, "std": [0.5] * 3, "size": 224},
        },
    },
    "resnet50-v1": {"backbone": "resnet50", "backbone_options": {"version": "v1"}},
}
"""Names of this benchmark's own."""

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
    named = BACKBONES.get(name, {"backbone": name})
    model = Embedder.build(**named, weights=weights, size=size, **HEADS[head]).eval()
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


def halves(images: ImageSet, judged: int) -> tuple[ImageSet, ImageSet]:
    """Images of the first half of the classes; and of the second, as many as are judged, spread over all of it."""
    labels = np.asarray(images.require_labels())
    first = labels < np.median(np.unique(labels))
    rest = np.flatnonzero(~first)
    spread = np.unique(np.linspace(0, len(rest) - 1, min(judged, len(rest))).round().astype(int))
    return images.subset(np.flatnonzero(first)), images.subset(rest[spread])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbones", nargs="+", default=["efficientnet-lite0", "vit"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--size", type=int, help="pixels a side; default: each network's own")
    parser.add_argument("--data", help="labelled images: 8 bits are calibrated on them, and recall is measured")
    parser.add_argument("--images", type=int, default=600, help="images of --data that Recall@1 is of")
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
    images = halves(open_images(arguments.data), arguments.images) if arguments.data else None
    names = ["torch", "onnx", *(["onnx-int8"] if images else []), *(["compile"] if arguments.compile else [])]
    files = dict(pair.split("=", 1) for pair in arguments.weights)
    with tempfile.TemporaryDirectory() as passing:
        results = Results(arguments.results)
        for backbone in arguments.backbones:
            weights = files.get(backbone, "default" if backbone == "efficientnet-lite0" else None)
            folder = (arguments.folder or Path(passing)) / f"{backbone}-{arguments.size or 'own'}"
            measure(backbone, weights, names, folder, images, results, arguments)
            results.show(backbone)


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


class Results:
    """Figures, each beside what it is of; in a file, so that a run goes on where another was stopped."""

    def __init__(self, path: Path | None):
        self.path = path
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def add(self, **row: Any) -> None:
        self.rows.append(row)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")

    def has(self, **of: Any) -> bool:
        return any(of.items() <= row.items() for row in self.rows)

    def show(self, backbone: str) -> None:
        columns = ("pixels", "head", "batch", "runtime", "images/s", "to torch", "head adds", "auto")
        speeds, recalls = table(backbone, *columns), table(f"{backbone}: Recall@1", "pixels", "head", "runtime", "R@1")
        for row in self.rows:
            of = str(row["size"]), row["head"]
            if row["backbone"] == backbone and "recall@1" in row:
                recalls.add_row(*of, row["runtime"], f"{row['recall@1']:.2%} of {row['images']}")
            elif row["backbone"] == backbone:
                auto = f"{row['auto']:.2f}× {row['chosen']}" if row["runtime"] == "onnx" else ""
                figures = f"{row['images/s']:.1f}", f"{row['to torch']:.2f}×", f"{row['adds']:+.1%}", auto
                speeds.add_row(*of, str(row["batch"]), row["runtime"], *figures)
        console.print(speeds, *([recalls] if recalls.row_count else []))


def measure(
    backbone: str,
    weights: str | None,
    names: list[str],
    folder: Path,
    images: tuple[ImageSet, ImageSet] | None,
    results: Results,
    arguments: Any,
) -> None:
    """One network: speeds at every number of images and in every runtime, then recalls."""
    teach, judge = images or (None, None)
    heads = ["average", *arguments.heads]
    built = {h: build(backbone, h, arguments.size, weights, teach, folder / h) for h in heads}
    ready = {h: runtimes(built[h], names, folder / h, teach) for h in heads}
    chosen = {h: inference.runtime(built[h], "auto", beside=folder / h).name for h in heads}
    size = built["average"].size
    for batch in arguments.batches:
        of = {"backbone": backbone, "size": size, "batch": batch}
        if all(results.has(**of, head=h, runtime=n) for h in arguments.heads for n in names):
            continue
        pixels = _pixels(built["average"], judge, batch)
        variants = {(h, n): lambda run=run, x=pixels: run(x) for h in ready for n, run in ready[h].items()}
        clock = time.process_time if arguments.cpu else time.perf_counter
        seconds = interleaved(variants, repeats=arguments.repeats, rest=REST, clock=clock)
        for h in arguments.heads:
            eager, auto = seconds[h, "torch"], seconds[h, chosen[h]] / min(seconds[h, "torch"], seconds[h, "onnx"])
            for n in names:
                mine = seconds[h, n]
                figures = {"images/s": batch / mine, "to torch": eager / mine, "adds": mine / seconds["average", n] - 1}
                results.add(**of, head=h, runtime=n, **figures, auto=auto, chosen=chosen[h])
    if judge is None:
        return
    for h in arguments.heads:
        for n in names:
            of = {"backbone": backbone, "size": size, "head": h, "runtime": n, "images": len(judge)}
            if n in ("onnx", "onnx-int8") and not results.has(**of):  # torch and compile agree with onnx
                results.add(**of, **{"recall@1": recall(built[h], ready[h][n], judge)})


def _pixels(model: Embedder, images: ImageSet | None, count: int) -> Tensor:
    """Photographs where there are some: how many codewords they have, a routed head's cost depends on."""
    if images is None:
        return torch.randint(0, 256, (count, 3, model.size, model.size), dtype=torch.uint8)
    spread = np.linspace(0, len(images) - 1, count).round().astype(int)
    loader = BatchLoader(Pictures(images.subset(spread), model.transform), batch_size=count, strict=True)
    return next(iter(loader)).images.clone()


if __name__ == "__main__":
    main()
