"""What fitting to the images themselves brings, without labels and without training, over several kinds of images.

    python benchmarks/fit.py emoji birds=CUB_200_2011 cars=cars196/train icons=icons:/usr/share/icons --most 1500

Recall@1 of every image among all others of its kind, labels used to judge only. The network's features are computed
once (``--cache``) and pooled in every way; all rows have 512 numbers but the three that are the network's own channels.
The rivals are simpler sums with the same kind of ending. ``benchmarks/kinds.py`` says which kinds there are.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinds import open_kind
from measure import console, table
from secondsight import backbones
from secondsight.data import ImageSet
from secondsight.data.cache.feature_cache import FeatureCache, default_directory
from secondsight.data.loading import transforms
from secondsight.evaluate import retrieval
from secondsight.fit import JCF, SETTINGS, framing
from secondsight.memory import keep_freed
from secondsight.model import Embedder
from secondsight.pooling.feature_samples import Mapped

NETWORK = "efficientnet-lite0"
HEAD = 1280  # channels of the network's last layer
ENDED = {"power": 0.5, "whiten": 0.25}
BOTH = {"backbone_options": {"both": True}}

ROWS: dict[str, dict[str, Any]] = {
    "average": {"pooling": "average", "dim": HEAD},
    "average, root, half whitened": {"pooling": "average", "pooling_options": ENDED},
    "gem 2": {"pooling": "gem-2", "dim": HEAD},
    "gem 3": {"pooling": "gem-3", "dim": HEAD},
    "gem 2, half whitened": {"pooling": "gem-2", "pooling_options": {"whiten": 0.25}},
    "gem 3, half whitened": {"pooling": "gem-3", "pooling_options": {"whiten": 0.25}},
    "gem 3, whitened": {"pooling": "gem-3", "pooling_options": {"whiten": 0.5}},
    "gem 3 of both layers, half whitened": {"pooling": "gem-3", "pooling_options": {"whiten": 0.25}, **BOTH},
    "average of both layers, root, half whitened": {"pooling": "average", "pooling_options": ENDED, **BOTH},
    "jcf": {"pooling": "jcf", **JCF},
    "jcf-32-8": {"pooling": "jcf-32-8", **JCF},
    "jcf-32-8, soft": {"pooling": "jcf-32-8", **JCF, "pooling_options": JCF["pooling_options"] | {"assign": "soft"}},
    "jcf-32": {"pooling": "jcf-32", **JCF},
    "jcf-pairs": {"pooling": "jcf-pairs", **SETTINGS["jcf-pairs"]},
    "jcf-pairs, no saliency": {"pooling": "jcf-pairs", **SETTINGS["jcf-pairs"], "pooling_options": {}},
    "jcf-pairs-32-8": {"pooling": "jcf-pairs-32-8", **SETTINGS["jcf-pairs"]},
}
"""Name → keywords of ``Embedder.build``."""


def sample(images: ImageSet, most: int) -> ImageSet:
    """The last classes, 30 images of each at the most, that have ``most`` images together."""
    labels = images.require_labels()
    chosen: list[int] = []
    for number in reversed(range(len(images.classes))):
        chosen += list(np.flatnonzero(labels == number)[:30])
        if len(chosen) >= most:
            break
    return images.subset(np.sort(chosen))


def local_features(
    images: ImageSet, size: int | None, cache: Path, transform: str | None = None
) -> tuple[Tensor, Tensor]:
    """(n, L, 1280 + 320) of the last layer and the one before, in half precision, and the labels of the images.

    ``size``, ``transform``: None for what ``secondsight index`` would take for these images.
    """
    network = backbones.build(NETWORK, freeze="blocks6", both=True).eval()
    store = FeatureCache(cache, say=console.print)
    suited = framing(images, NETWORK)
    size, transform = size or suited.size or network.preprocessing.size, transform or suited.transform
    console.print(f"{images.root}: {size} pixels a side, {transform}")
    key = {"network": network.prefix_name, "prefix": network.prefix_fingerprint()}
    found = store.features(images, network.frozen_part, transform=transforms.build(transform, size), key=key)
    labels = torch.from_numpy(np.array(images.require_labels()))
    stored = torch.from_numpy(found[np.arange(len(images))])
    return torch.cat([network.live_part(some).half() for some in stored.split(64)]), labels


def recall(local: Tensor, labels: Tensor, row: dict[str, Any], count: int) -> float:
    """R@1 of one way to pool, fitted to ``count`` of the images."""
    torch.manual_seed(0)
    keywords: dict[str, Any] = {"reduce": 256, "dim": 512} | row
    model = Embedder.build(**keywords).eval()
    local = local[..., : model.backbone.out_dim]
    chosen = np.unique(np.linspace(0, len(local) - 1, min(count, len(local))).round().astype(int))
    model.fit(Mapped(local[chosen].split(64), Tensor.float))
    z = torch.cat([model.normalise(model.pool(some.float())) for some in local.split(64)])
    return 100 * retrieval(z.numpy(), labels.numpy(), bootstrap=0).recall[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "data", nargs="*", help="[WORD=]emoji, icons:FOLDER, stamps:FOLDER, a folder of classes, NAME:PATH"
    )
    parser.add_argument("--most", type=int, default=1500, help="images of a kind")
    parser.add_argument("--size", type=int, help="pixels a side; default: what `secondsight index` takes")
    parser.add_argument(
        "--transform", choices=("resize", "resize-crop"), help="default: what `secondsight index` takes"
    )
    parser.add_argument("--counts", type=int, nargs="*", default=[2048], help="images to fit to")
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--json", type=Path, help="where to write the figures, too")
    parser.add_argument("--cache", type=Path, default=default_directory(), help="where features are kept")
    options = parser.parse_args()
    if not options.data:
        console.print("needs labelled images to judge on, see --help")
        return
    keep_freed()
    torch.set_grad_enabled(False)
    named = [given.rpartition("=") for given in options.data]
    kinds = {name or spec: sample(open_kind(spec), options.most) for name, _, spec in named}
    known = {
        spec: local_features(images, options.size, options.cache, options.transform) for spec, images in kinds.items()
    }
    figures = show(known, options.rows, options.counts)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def show(known: dict[str, tuple[Tensor, Tensor]], rows: list[str], counts: list[int]) -> dict[str, dict[str, float]]:
    """Print a row at a time, then the table. Row → kind → R@1."""
    found_all: dict[str, dict[str, float]] = {}
    shown = table("Recall@1 in %", "", *(f"{spec} ({len(found[1]):,})" for spec, found in known.items()), "mean")
    for count in counts:
        for name in rows:
            label = name if len(counts) == 1 else f"{name}, fitted to {count:,}"
            figures = {spec: round(recall(found[0], found[1], ROWS[name], count), 2) for spec, found in known.items()}
            cells = [f"{figure:.1f}" for figure in [*figures.values(), sum(figures.values()) / len(figures)]]
            found_all[label] = figures
            console.print(label, *cells)
            shown.add_row(label, *cells)
    console.print(shown)
    return found_all


if __name__ == "__main__":
    main()
