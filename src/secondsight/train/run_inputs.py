"""The rows that training and validation read: decoded images, or stored activations of the frozen prefix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from secondsight import embed
from secondsight.data import ImageSet
from secondsight.data.cache.feature_cache import FeatureCache, default_directory
from secondsight.data.loading import transforms
from secondsight.data.loading.batches import RowSource
from secondsight.data.loading.picture_rows import Pictures
from secondsight.data.loading.transforms import Transform, Viewed
from secondsight.errors import ConfigError
from secondsight.model import VIEWS, Embedder
from secondsight.train.recipe import Recipe
from secondsight.train.sets import Sets


@dataclass(frozen=True)
class RunInputs:
    """Sources of rows; all are of images, or all are of activations, or all are of sums of them."""

    train: RowSource  # as the network learns from them
    plain: RowSource  # the same images as evaluation takes them
    validation: tuple[RowSource, ...]  # the held-out images, a source for each of the model's views
    cached: bool
    size: tuple[int, int]  # of an image
    summed: bool = False  # see train.kept_sums


def build(
    recipe: Recipe, sets: Sets, model: Embedder, *, device: torch.device, say: Callable[[str], None]
) -> RunInputs:
    """The inputs of a run. With the cache, whatever is not stored yet is computed here."""
    train_transform, eval_transform = transforms.build(recipe.data.transform, model.size), model.transform
    cached = uses_cache(recipe, model, train_transform)
    # A hash of all frozen weights: made once, for all sets.
    key = {"network": model.backbone.prefix_name, "prefix": model.backbone.prefix_fingerprint()} if cached else {}

    def source(images: ImageSet, transform: Transform) -> RowSource:
        if not cached:
            return Pictures(images, transform, seed=recipe.train.seed)
        return _stored(images, transform, model, recipe, key=key, device=device, say=say)

    train = source(sets.train, train_transform)
    views = [Viewed(eval_transform, name, VIEWS[name]) if name != "plain" else eval_transform for name in model.views]
    return RunInputs(
        train=train,
        plain=train if eval_transform == train_transform else source(sets.train, eval_transform),
        validation=() if sets.validation is None else tuple(source(sets.validation, view) for view in views),
        cached=cached,
        size=(model.size, model.size),
    )


def eval_transform_name(recipe: Recipe) -> str:
    """How evaluation sees images: as the model says, or else as training does where nothing is left to chance."""
    if recipe.model.transform is not None:
        return recipe.model.transform
    return recipe.data.transform if transforms.build(recipe.data.transform).deterministic else "resize-crop"


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
    key: dict[str, str],
    device: torch.device,
    say: Callable[[str], None],
) -> RowSource:
    backbone = model.backbone.to(device).eval()
    return FeatureCache(cache_directory(recipe), say=say).features(
        images,
        lambda x: backbone.frozen_part(x.to(device)),
        transform=transform,
        key=key,
        workers=recipe.data.workers,
    )


def fit(model: Embedder, inputs: RunInputs, recipe: Recipe, *, device: torch.device) -> None:
    """Initialise reduction and pooling from a sample of the training images, spread over all of them."""
    forward = model.backbone.live_part if inputs.cached else model.backbone
    sample = embed.features(
        model,
        embed.Inputs((inputs.plain,), forward),
        count=recipe.train.fit_images,
        workers=recipe.data.workers,
        device=device,
    )
    model.fit(sample, grid=model.backbone.grid(*inputs.size), seed=recipe.train.seed)
