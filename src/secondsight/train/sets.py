"""The images of a run: which classes it learns from, and which other classes of the training part it validates on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from secondsight import data
from secondsight.data import ImageSet
from secondsight.data.loading.neighbours import Neighbours
from secondsight.data.loading.samplers import BatchSampler, ClassBalanced
from secondsight.data.split import hold_out, training_part
from secondsight.errors import ConfigError, DataError
from secondsight.losses import Loss
from secondsight.train.recipe import Recipe


@dataclass(frozen=True)
class Sets:
    train: ImageSet
    validation: ImageSet | None  # None where recipe.validation.share is 0


def open_sets(recipe: Recipe) -> Sets:
    """The training part of ``recipe.data.path``, cut by class. Test classes are never opened."""
    if not recipe.data.path:
        raise ConfigError("the recipe names no images: give --data PATH, or data.path in the recipe")
    images = data.open(recipe.data.path, missing=recipe.data.missing)
    images.require_labels()
    sets = _cut(images, recipe)
    check(sets.train, recipe)
    if sets.validation is not None:
        sets.validation.require_pairs()
    return sets


def _cut(images: ImageSet, recipe: Recipe) -> Sets:
    v, d = recipe.validation, recipe.data
    if v.share == 0:
        return Sets(training_part(images, min_images=d.min_images).with_max_images(d.max_images), None)
    split = hold_out(images, share=v.share, fold=v.fold, seed=v.seed, min_images=d.min_images)
    return Sets(split.train.with_max_images(d.max_images), split.eval)


def check(images: ImageSet, recipe: Recipe) -> None:
    """What a batch asks for must be there, said before anything slow happens."""
    images.require_labels()
    if len(images.classes) < 2:
        images.require_pairs()
    if recipe.data.min_images >= 2:
        images.require_pairs()
    p, k = recipe.train.classes_per_batch, recipe.train.images_per_class
    if p > len(images.classes):
        raise DataError(
            f"{images.root}: a batch of {p} classes × {k} images needs {p} training classes, and there are "
            f"{len(images.classes)}; lower it: --set train.classes_per_batch={len(images.classes)}"
        )
    if p * k > len(images):
        raise DataError(
            f"{images.root}: a batch of {p} classes × {k} images is larger than the {len(images)} training images; "
            f"lower it: --set train.images_per_class={max(1, len(images) // p)}"
        )


def sampler(images: ImageSet, loss: Loss, recipe: Recipe, *, rank: int, world_size: int) -> BatchSampler:
    """P×K batches; with a loss that knows its classes' neighbours, anchors with theirs."""
    labels, t = images.require_labels(), recipe.train
    neighbours = getattr(loss, "neighbours", None)
    if neighbours is None:
        return ClassBalanced(
            labels, t.classes_per_batch, t.images_per_class, seed=t.seed, rank=rank, world_size=world_size
        )
    group = _group(t.classes_per_batch, neighbours.shape[1] + 1)
    table = np.arange(len(images.classes))[:, None].repeat(max(1, group - 1), axis=1)  # until the loss has made its own
    return Neighbours(
        labels,
        table,
        anchors=t.classes_per_batch // group,
        group=group,
        images_per_class=t.images_per_class,
        seed=t.seed,
        rank=rank,
        world_size=world_size,
    )


def _group(classes: int, most: int) -> int:
    """Classes of a group: the largest divisor of the batch's classes up to their square root, and to ``most``."""
    return max(g for g in range(1, classes + 1) if classes % g == 0 and g * g <= classes and g <= most)


def adapted(recipe: Recipe, overrides: Sequence[str], *, say: Callable[[str], None]) -> Recipe:
    """The recipe made to fit a folder that nobody wrote it for: batches no larger than the classes allow.

    What the user has set with ``overrides`` stays.
    """
    given = {word.partition("=")[0].strip() for word in overrides}
    training = data.open(recipe.data.path, missing=recipe.data.missing)
    training.require_labels()
    n = len(training_part(training, min_images=recipe.data.min_images).require_pairs().classes)
    if n < 4 and "validation.share" not in given:
        say(f"{n} classes are too few to hold some out: training on all of them, without validation")
        recipe = recipe.model_copy(update={"validation": recipe.validation.model_copy(update={"share": 0.0})})
    train = _cut(training, recipe).train
    p, k = recipe.train.classes_per_batch, recipe.train.images_per_class
    fitting = min(p, len(train.classes)), min(k, max(2, len(train) // max(1, min(p, len(train.classes)))))
    changes = {
        key: value
        for key, value, before in zip(("classes_per_batch", "images_per_class"), fitting, (p, k), strict=True)
        if value != before and f"train.{key}" not in given
    }
    if changes:
        say(
            f"{len(train)} images of {len(train.classes)} classes to learn from: "
            + ", ".join(f"train.{k} = {v}" for k, v in changes.items())
        )
    return recipe.model_copy(update={"train": recipe.train.model_copy(update=changes)})
