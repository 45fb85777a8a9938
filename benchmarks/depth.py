"""How much second order adds at every depth of a network: averaging against JCF on frozen features of each stage.

    python benchmarks/depth.py CUB_200_2011 [--backbone vgg16 --weights FILE] [--out results/depth.jsonl]

A deep network binds features by itself: one late channel is already "red breast and short beak". Early channels are
colours, edges and textures, and what tells classes apart is which of them occur together. Every stage is pooled to 512
numbers on the same images with the same short budget, half of the training classes teach and the other half judges.
Figures are written as they come; what --out holds already is not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from measure import console, table
from secondsight import backbones, data, evaluate, losses
from secondsight.backbones import Backbone
from secondsight.data.loader import Loader
from secondsight.data.samplers import ClassBalanced
from secondsight.data.transforms import Resize
from secondsight.memory import keep_freed
from secondsight.pooling import build
from secondsight.progress import track
from secondsight.reduction import Reduction

OUT, REDUCED = 512, 256
STAGES = {
    "efficientnet-lite0": ("blocks2", "blocks3", "blocks4", "blocks5", "blocks6", "head"),
    "vgg16": ("conv3", "conv4", "conv5"),
}


class Set(NamedTuple):
    features: Tensor  # (n, L, c) half precision
    labels: np.ndarray


class Head(nn.Module):
    """Reduction where a stage has more channels than JCF takes here, and the pooling."""

    def __init__(self, pooling: str, channels: int):
        super().__init__()
        jcf = pooling.startswith("jcf")
        d = min(channels, REDUCED) if jcf else channels
        options: dict[str, Any] = {"first_order": True} if jcf else {}
        self.reduction = Reduction(channels, d, norm_exponent=0.0) if jcf else None
        self.pooling = build(pooling, d, OUT, **options)

    def reduced(self, x: Tensor) -> Tensor:
        return x if self.reduction is None else self.reduction(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.pooling(self.reduced(x))

    @torch.no_grad()
    def fit(self, x: Tensor) -> None:
        if self.reduction is not None:
            self.reduction.fit(x)
        self.pooling.fit(self.reduced(x))


@torch.no_grad()
def features(backbone: Backbone, images: data.ImageSet, stage: str) -> Set:
    """Local features after ``stage``, on at most 14×14 locations."""
    loader = Loader(images, Resize(backbone.preprocessing.size), batch_size=32)
    kept = []
    for batch in track(loader, f"{stage}: {len(images)} images"):
        x = backbone.run(backbone.prepare(batch.images), 0, backbone.stages.index(stage) + 1)
        while x.shape[-1] > 14:
            x = nn.functional.avg_pool2d(x, 2)
        kept.append(backbone.tokens(x).half())
    return Set(torch.cat(kept), np.asarray(images.require_labels()))


def recall(head: Head, judge: Set) -> float:
    with torch.no_grad():
        z = torch.cat([head.eval()(x.float()) for x in judge.features.split(128)])
    return 100 * evaluate.retrieval(z, judge.labels, bootstrap=0).recall[1]


def learned(pooling: str, teach: Set, judge: Set, *, seed: int, epochs: int) -> tuple[float, float]:
    """Recall@1 on the judging classes in per cent, before and after."""
    torch.manual_seed(seed)
    labels = torch.from_numpy(np.unique(teach.labels, return_inverse=True)[1])
    head = Head(pooling, teach.features.shape[-1])
    head.fit(teach.features[:: max(1, len(labels) // 512)].float())
    before = recall(head, judge)
    loss = losses.build("proxy-anchor", dim=OUT, classes=int(labels.max()) + 1)
    optimiser = torch.optim.AdamW(
        [{"params": head.parameters(), "lr": 1e-3}, {"params": loss.parameters(), "lr": 1e-2}], weight_decay=1e-4
    )
    batches = ClassBalanced(labels.numpy(), 16, 4, seed=seed)
    plan = [rows for epoch in range(epochs) for rows in batches.plan(epoch)]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, [1e-3, 1e-2], len(plan), pct_start=0.15)
    head.train()
    for rows in track(plan, f"{pooling}, seed {seed}"):
        optimiser.zero_grad()
        loss(head(teach.features[rows].float()), labels[rows]).backward()
        optimiser.step()
        schedule.step()
    return before, recall(head, judge)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", help="labelled images, such as CUB_200_2011")
    parser.add_argument("--backbone", default="efficientnet-lite0", choices=sorted(STAGES))
    parser.add_argument("--weights", default="default")
    parser.add_argument("--stages", nargs="+", help="instead of all")
    parser.add_argument("--poolings", nargs="+", default=["average", "gem", "jcf-32-8"])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--folds", type=int, default=2, choices=(1, 2))
    parser.add_argument("--out", type=Path, help="JSON lines of what is done")
    options = parser.parse_args()
    if options.data is None:
        console.print("needs labelled images, see --help")
        return
    keep_freed()
    backbone = backbones.build(options.backbone, weights=options.weights, freeze="all").eval()
    lines = [json.loads(line) for line in options.out.read_text().splitlines()] if done(options.out) else []
    key = {"backbone": options.backbone, "epochs": options.epochs}
    for stage in options.stages or STAGES[options.backbone]:
        for fold in range(options.folds):
            missing = [p for p in options.poolings if not find(lines, **key, stage=stage, fold=fold, pooling=p)]
            if not missing:
                continue
            split = data.splits(options.data, "validation", fold=fold)
            teach, judge = (features(backbone, images, stage) for images in (split.train, split.eval))
            for pooling in missing:
                before, after = learned(pooling, teach, judge, seed=fold, epochs=options.epochs)
                lines.append(
                    {
                        **key,
                        "stage": stage,
                        "fold": fold,
                        "pooling": pooling,
                        "channels": teach.features.shape[-1],
                        "untrained": round(before, 2),
                        "trained": round(after, 2),
                    }
                )
                if options.out:
                    with options.out.open("a") as file:
                        file.write(json.dumps(lines[-1]) + "\n")
    show(lines, options)


def done(out: Path | None) -> bool:
    return out is not None and out.exists()


def find(lines: list[dict], **key: Any) -> list[dict]:
    return [line for line in lines if key.items() <= line.items()]


def show(lines: list[dict], options: argparse.Namespace) -> None:
    shown = table(f"{options.backbone}, frozen: R@1 in %, mean of the folds", "stage", "channels", *options.poolings)
    for stage in options.stages or STAGES[options.backbone]:
        key = {"backbone": options.backbone, "epochs": options.epochs, "stage": stage}
        rows = {p: find(lines, **key, pooling=p) for p in options.poolings}
        if not all(rows.values()):
            continue
        cells = [
            f"{statistics.mean(line['untrained'] for line in r):.1f} → "
            f"{statistics.mean(line['trained'] for line in r):.1f}"
            for r in rows.values()
        ]
        shown.add_row(stage, str(next(iter(rows.values()))[0]["channels"]), *cells)
    console.print(shown)


if __name__ == "__main__":
    main()
