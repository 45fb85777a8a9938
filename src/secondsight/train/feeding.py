"""What the network is fed: decoded images, or stored activations of the frozen prefix where these can be had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from secondsight.data import ImageSet
from secondsight.data.cache.feature_cache import FeatureCache, default_directory
from secondsight.data.loading import transforms
from secondsight.data.loading.batches import BatchLoader, Rows
from secondsight.data.loading.loader import Pictures
from secondsight.data.loading.samplers import Sequential
from secondsight.data.loading.transforms import Transform
from secondsight.errors import ConfigError
from secondsight.model import Embedder
from secondsight.progress import track
from secondsight.train.recipe import Recipe
from secondsight.train.sets import Sets


@dataclass(frozen=True)
class Feeds:
    """Rows of inputs; all are images, or all are activations."""

    train: Rows  # as the network learns from them
    plain: Rows  # the same images as evaluation sees them
    validation: tuple[Rows, ...]  # the held-out images, then their mirror images where the model looks at these, too
    cached: bool
    size: tuple[int, int]  # of an image


def build(recipe: Recipe, sets: Sets, model: Embedder, *, device: torch.device, say: Callable[[str], None]) -> Feeds:
    """The inputs of a run. With the cache, whatever is not stored yet is computed here."""
    size = recipe.data.size or model.backbone.preprocessing.size
    transform, plain = show(recipe, size)
    cached = uses_cache(recipe, model, transform)

    def rows(images: ImageSet, transform: Transform) -> Rows:
        if not cached:
            return Pictures(images, transform, seed=recipe.train.seed)
        return _stored(images, transform, model, recipe, device=device, say=say)

    train = rows(sets.train, transform)
    views = (plain, transforms.Mirrored(plain)) if model.views == 2 else (plain,)
    return Feeds(
        train=train,
        plain=train if plain == transform else rows(sets.train, plain),
        validation=() if sets.validation is None else tuple(rows(sets.validation, view) for view in views),
        cached=cached,
        size=(size, size),
    )


def show(recipe: Recipe, size: int) -> tuple[Transform, Transform]:
    """How images are shown in training, and in evaluation: the same where that is deterministic, else a centre crop."""
    return transforms.build(recipe.data.transform, size), transforms.build(shown(recipe), size)


def shown(recipe: Recipe) -> str:
    """The name of the transform in evaluation; the model keeps it."""
    name = recipe.data.eval_transform or recipe.data.transform
    if transforms.build(name).deterministic:
        return name
    if recipe.data.eval_transform is not None:
        raise ConfigError(f"data.eval_transform {name!r} is random; figures need a fixed one")
    return "resize-crop"


def uses_cache(recipe: Recipe, model: Embedder, transform: Transform) -> bool:
    """Whether activations are stored; asked for where they cannot be, that is an error."""
    reason = None
    if model.backbone.frozen is None:
        reason = "nothing of the backbone is frozen (model.freeze)"
    elif not model.backbone.splits and model.backbone.frozen != "all":
        reason = f"{model.backbone.name} can only be cut at its end: model.freeze = 'all'"
    elif not transform.deterministic:
        reason = f"the transform {recipe.data.transform!r} is random; 'resize' is not"
    if reason and recipe.data.cache:
        raise ConfigError(f"data.cache = true, but {reason}")
    return reason is None and recipe.data.cache is not False


def cache_directory(recipe: Recipe) -> Path:
    """``data.cache_dir``, or where caches are by default."""
    return Path(recipe.data.cache_dir).expanduser() if recipe.data.cache_dir else default_directory()


def _stored(
    images: ImageSet,
    transform: Transform,
    model: Embedder,
    recipe: Recipe,
    *,
    device: torch.device,
    say: Callable[[str], None],
) -> Rows:
    backbone = model.backbone.to(device).eval()
    return FeatureCache(cache_directory(recipe), say=say).features(
        images,
        lambda x: backbone.frozen_part(x.to(device)),
        transform=transform,
        key={"network": backbone.prefix_name, "prefix": backbone.prefix_fingerprint()},
        workers=recipe.data.workers,
    )


@torch.no_grad()
def fit(model: Embedder, feeds: Feeds, recipe: Recipe, *, device: torch.device) -> None:
    """Initialise reduction and pooling from a sample of the training images, spread over all of them."""
    stride = max(1, len(feeds.plain) // recipe.model.fit_images)
    loader = BatchLoader(feeds.plain, batches=_Strided(len(feeds.plain), 32, stride), workers=recipe.data.workers)
    model.to(device).eval()
    look = model.backbone.live_part if feeds.cached else model.backbone
    features = [look(batch.images.to(device)) for batch in track(loader, "initialising") if len(batch)]
    model.fit_features(features, grid=model.backbone.grid(*feeds.size), seed=recipe.train.seed)


class _Strided(Sequential):
    """Every ``stride``-th image."""

    def __init__(self, n: int, batch_size: int, stride: int):
        super().__init__(n, batch_size)
        self.stride = stride

    def plan(self, epoch: int) -> list[np.ndarray]:
        chosen = np.arange(0, self.n, self.stride)
        return [chosen[i : i + self.batch_size] for i in range(0, len(chosen), self.batch_size)]
