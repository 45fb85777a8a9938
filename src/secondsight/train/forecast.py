"""``--dry-run``: build everything, run two steps, and say what the whole run would take."""

from __future__ import annotations

import itertools
import resource
import sys
import tempfile
import time
from dataclasses import dataclass, replace

import numpy as np
import torch

from secondsight import losses
from secondsight.data import ImageSet
from secondsight.data.cache import store
from secondsight.data.loading import transforms
from secondsight.data.loading.batches import BatchLoader
from secondsight.data.loading.picture_rows import Pictures
from secondsight.data.loading.samplers import Sequential
from secondsight.train import sets
from secondsight.train.assembly import RunParts, assemble, make_fabric
from secondsight.train.display import Display
from secondsight.train.loop import Loop, deterministic
from secondsight.train.recipe import Recipe
from secondsight.train.run_directory import RunDirectory
from secondsight.train.run_inputs import RunInputs
from secondsight.train.sets import Sets


@dataclass(frozen=True)
class Forecast:
    """What a run would take."""

    parameters: dict[str, tuple[int, int]]  # part → all, trained
    images: tuple[int, int]  # to learn from, to evaluate on
    classes: tuple[int, int]
    steps: int
    losses: list[float]  # of the two steps
    step_seconds: float
    validation_seconds: float  # each
    cache_bytes: int  # 0 without the cache
    cache_seconds: float  # where nothing is stored yet
    total_seconds: float
    memory_bytes: int  # peak


def dry_run(recipe: Recipe) -> Forecast:
    """Two real steps on a few of the real images; nothing is kept."""
    whole = sets.open_sets(recipe)
    few = _few(whole, recipe)
    with tempfile.TemporaryDirectory() as folder:
        data = recipe.data.model_copy(update={"cache_dir": f"{folder}/cache"})
        fabric = make_fabric(recipe)
        started = time.perf_counter()
        parts = assemble(recipe.model_copy(update={"data": data}), fabric, fit=True, say=lambda words: None, sets=few)
        assembling = time.perf_counter() - started
        per_image = _activation_seconds(parts, few.train) if parts.inputs.cached else 0.0
        row_bytes = _row_bytes(parts)
        loop = Loop(parts, RunDirectory(folder), Display(enabled=False))
        started = time.perf_counter()
        loop.keep_sums()
        summing = (time.perf_counter() - started) / _rows(few, parts.inputs)  # of one image
        values, seconds = _two_steps(loop)
        validating = _validation_seconds(loop, whole)
    steps = len(sets.sampler(whole.train, parts.loss, recipe, rank=0, world_size=1)) * recipe.train.epochs
    cached = _rows(whole, parts.inputs)
    fitting = max(0.0, assembling - per_image * _rows(few, parts.inputs)) / len(few.train)
    fitting *= min(recipe.train.fit_images, len(whole.train))
    return Forecast(
        parameters=_parameters(parts, classes=len(whole.train.classes)),
        images=(len(whole.train), len(whole.validation or ())),
        classes=(len(whole.train.classes), len(whole.validation.classes) if whole.validation else 0),
        steps=steps,
        losses=values,
        step_seconds=seconds,
        validation_seconds=validating,
        cache_bytes=row_bytes * cached,
        cache_seconds=cached * per_image,
        total_seconds=cached * (per_image + summing)
        + fitting
        + steps * seconds
        + validating * (recipe.train.epochs // recipe.validation.every),
        memory_bytes=_peak_memory(fabric.device),
    )


def _few(whole: Sets, recipe: Recipe) -> Sets:
    """Enough images for two batches and a validation batch."""

    def cut(images: ImageSet, classes: int, each: int) -> ImageSet:
        labels = images.require_labels()
        rows = [np.flatnonzero(labels == c)[:each] for c in range(min(classes, len(images.classes)))]
        return images.subset(np.sort(np.concatenate(rows)))

    p, k = recipe.train.classes_per_batch, recipe.train.images_per_class
    train = cut(whole.train, p, max(2, 2 * k))
    return replace(whole, train=train, validation=cut(whole.validation, 16, 4) if whole.validation else None)


@torch.no_grad()
def _activation_seconds(parts: RunParts, images: ImageSet) -> float:
    """Of one image, from its file to what the cache stores."""
    backbone, size = parts.model.backbone, parts.inputs.size[0]
    pictures = Pictures(images, transforms.build(parts.recipe.data.transform, size), seed=0)
    some = Sequential(min(len(pictures), 64), 32)
    started = time.perf_counter()
    for batch in BatchLoader(pictures, batches=some, workers=parts.recipe.data.workers):
        backbone.frozen_part(batch.images.to(parts.fabric.device))
    return (time.perf_counter() - started) / some.n


def _two_steps(loop: Loop) -> tuple[list[float], float]:
    """The losses, and the seconds of the second step: the first one warms up."""
    loop.turn_to(0, 0)
    loop.parts.network.train()
    values, seconds = [], 0.0
    with deterministic():
        batches = itertools.islice(itertools.cycle(loop.loader), 2)
        for batch in batches:
            started = time.perf_counter()
            values.append(loop.step(batch, 0).loss)
            seconds = time.perf_counter() - started
    return values, seconds


def _validation_seconds(loop: Loop, whole: Sets) -> float:
    views = loop.parts.inputs.validation
    if not views or whole.validation is None:
        return 0.0
    started = time.perf_counter()
    loop.embed(*views)
    return (time.perf_counter() - started) / len(views[0]) * len(whole.validation)


def _parameters(parts: RunParts, *, classes: int) -> dict[str, tuple[int, int]]:
    wanted = parts.recipe.loss
    named = {
        "backbone": parts.model.backbone,
        "reduction": parts.model.reduction,
        "pooling": parts.model.pooling,
        "loss": losses.build(wanted.name, dim=parts.model.dim, classes=classes, **wanted.options),
    }
    return {
        name: (sum(p.numel() for p in m.parameters()), sum(p.numel() for p in m.parameters() if p.requires_grad))
        for name, m in named.items()
        if m is not None
    }


def _rows(images: Sets, inputs: RunInputs) -> int:
    """Rows of activations that are stored: those of every view."""
    return len(images.train) + len(inputs.validation) * len(images.validation or ())


def _row_bytes(parts: RunParts) -> int:
    if not parts.inputs.cached:
        return 0
    return store.row_bytes(tuple(parts.inputs.train.empty(1).shape[1:]))


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
