"""Other poolings on a trained network's features, fitted but not trained: what a layer gives without being learned.

    secondsight reproduce headline --data CUB_200_2011 --rows 'average, lr 1e-4' --folds 0 --seeds 0 \\
        --keep-models --out runs/heads
    python benchmarks/heads.py runs/reproduce/headline/average-lr-1e-4-f0-s0

RUN is the directory of a run. Its images, its held-out classes and its trained backbone are taken as they are; each
pooling is initialised from the images that taught, as training would begin, and judged by Recall@1 on those that judge.
`as trained` is the run's own head. (`--out`: a run whose result is there counts as done, and leaves no model.)
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import secondsight
from measure import console, table
from secondsight.data.loading.batches import BatchLoader, RowSource
from secondsight.data.loading.samplers import Sequential
from secondsight.memory import keep_freed
from secondsight.model import Embedder
from secondsight.progress import track
from secondsight.train import recipe_file, run_inputs, validation
from secondsight.train.sets import open_sets
from secondsight.train.step import seed_everything

ENDING = {"power": 0.5, "whiten": 0.125}
HEADS: dict[str, tuple[str, dict[str, Any]]] = {
    "average": ("average", {}),
    "gem": ("gem", {}),
    "jcf-32-8, average": ("jcf-32-8", {"start": "average"}),
    "jcf-32-8, square, root, whitened": ("jcf-32-8", {"start": "square", **ENDING}),
    "jcf-32-8, saliency, root, whitened": ("jcf-32-8", {"start": "saliency", **ENDING}),
}


@torch.no_grad()
def seen(model: Embedder, rows: RowSource, *, cached: bool, what: str) -> Tensor:
    """Local features of all images."""
    look = model.backbone.live_part if cached else model.backbone
    loader = BatchLoader(rows, batches=Sequential(len(rows), 64))
    return torch.cat([look(batch.images) for batch in track(loader, what)])


@torch.no_grad()
def recall(model: Embedder, features: Tensor, labels, grid: tuple[int, int]) -> float:
    z = torch.cat([model.pool(some, grid=grid) for some in features.split(64)])
    return 100 * validation.figures(model.normalise(z), labels, (1,))["recall@1"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", help="the directory of a run that held classes out")
    run = parser.parse_args().run
    if run is None:
        console.print("needs a trained model, see --help")
        return
    keep_freed()
    recipe, trained = recipe_file.read(run / "config.toml"), secondsight.load(run / "best")
    sets = open_sets(recipe)
    made = run_inputs.build(recipe, sets, trained, device=torch.device("cpu"), say=console.print)
    if sets.validation is None or not made.validation:
        raise SystemExit(f"{run} held no classes out")
    taught = seen(trained, made.plain, cached=made.cached, what="images that taught")
    judging = seen(trained, made.validation[0], cached=made.cached, what="images that judge")
    labels, grid = sets.validation.require_labels(), trained.backbone.grid(*made.size)
    shown = table(f"R@1 on classes never seen, backbone of {run.name}", "head", "R@1")
    shown.add_row("as trained", f"{recall(trained, judging, labels, grid):.1f}")
    for name, (pooling, options) in HEADS.items():
        seed_everything(recipe.train.seed)
        model = Embedder.build(
            backbone=trained.backbone,
            pooling=pooling,
            dim=trained.dim,
            reduce=trained.backbone.out_dim,
            norm_exponent=0.0,
            pooling_options=options,
        ).eval()
        model.fit(taught.split(64), grid=grid, seed=recipe.train.seed)
        shown.add_row(name, f"{recall(model, judging, labels, grid):.1f}")
    console.print(shown)


if __name__ == "__main__":
    main()
