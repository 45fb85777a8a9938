"""The poolings that ``secondsight train --data FOLDER`` chooses among, and the quick test that decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from secondsight.backbones import Backbone
from secondsight.data import ImageSet
from secondsight.data.loading.batches import BatchLoader
from secondsight.data.loading.samplers import Sequential
from secondsight.model import Embedder
from secondsight.progress import track
from secondsight.train import run_inputs
from secondsight.train.assembly import build_model
from secondsight.train.choice import choose_pooling
from secondsight.train.recipe import Recipe
from secondsight.train.sets import Sets, open_sets

RIVALS: dict[str, dict[str, Any]] = {
    "average": {"pooling": "average", "pooling_options": {"power": 0.5, "whiten": 0.25}},
    "gem": {"pooling": "gem", "pooling_options": {"p": 2.0, "whiten": 0.25}},
}
"""What each changes of a recipe's model: the simpler sums with JCF's ending."""

IMAGES, OF_A_CLASS, FEWEST = 1500, 30, 100
"""Images that are looked at, how many of a class at most, and how many in all there must be for a choice to mean
anything.
"""


def suited(recipe: Recipe, *, say: Callable[[str], None]) -> Recipe:
    """The recipe with the pooling that suits its training classes: its own, unless a rival is better beyond doubt.

    Held-out classes are not looked at. Whatever activations it needs are stored where training will look for them.
    """
    images = some_classes(open_sets(recipe).train)
    if len(images) < FEWEST or len(images.classes) < 4:
        return recipe
    model, _ = build_model(recipe, len(images.classes))
    if recipe.model.dim > model.backbone.out_dim:  # the rivals have no more numbers than channels
        return recipe
    preferred = recipe.model.pooling
    recipes = {preferred: recipe}
    recipes |= {name: _with_rival(recipe, name) for name in RIVALS if name != preferred}
    features, labels = _features(model, recipe, images, say=say)

    def builder(name: str) -> Callable[[], Embedder]:
        return lambda: _with(recipes[name], model.backbone)

    choice = choose_pooling(
        features,
        labels,
        {name: builder(name) for name in recipes},
        preferred=preferred,
        grid=model.backbone.grid(model.size, model.size),
        seed=recipe.train.seed,
    )
    say(str(choice))
    return recipes[choice.name]


def _with_rival(recipe: Recipe, name: str) -> Recipe:
    return recipe.model_copy(update={"model": recipe.model.model_copy(update=RIVALS[name])})


def some_classes(images: ImageSet) -> ImageSet:
    """Some images of some classes, ``IMAGES`` in all or a little more; classes are spread over the set."""
    labels = images.require_labels()
    stride = max(1, int(np.minimum(np.bincount(labels), OF_A_CLASS).sum()) // IMAGES)
    chosen = [np.flatnonzero(labels == c)[:OF_A_CLASS] for c in range(0, len(images.classes), stride)]
    return images.subset(np.sort(np.concatenate(chosen)))


def _with(recipe: Recipe, backbone: Backbone) -> Embedder:
    torch.manual_seed(recipe.train.seed)
    return Embedder.from_config(recipe.model, backbone=backbone).eval()


@torch.no_grad()
def _features(
    model: Embedder, recipe: Recipe, images: ImageSet, *, say: Callable[[str], None]
) -> tuple[Tensor, Tensor]:
    """Local features of all images that can be read, in half precision, and their labels."""
    made = run_inputs.build(recipe, Sets(images, None), model.eval(), device=torch.device("cpu"), say=say)
    features, numbers = [], []
    loader = BatchLoader(made.plain, batches=Sequential(len(made.plain), 32), workers=recipe.data.workers)
    for batch in track(loader, "choosing a pooling"):
        if len(batch):
            activations = batch.images if made.cached else model.backbone.frozen_part(batch.images)
            features.append(model.backbone.live_part(activations).half())
            numbers.append(batch.indices.clone())
    return torch.cat(features), torch.tensor(images.require_labels())[torch.cat(numbers)]
