"""Which classes to learn from and which to judge by; the two never share a class unless the dataset itself says so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from secondsight.data.imageset import ImageSet
from secondsight.data.readers.registry import DATASETS
from secondsight.data.readers.spec import missing_part, open
from secondsight.errors import DataError, UnknownName


@dataclass(frozen=True)
class Split:
    """What to train on and what to evaluate on."""

    train: ImageSet
    eval: ImageSet
    name: str


def splits(
    data: str | Path | ImageSet,
    kind: str = "standard",
    *,
    fold: int = 0,
    seed: int = 0,
    min_images: int = 1,
    check: bool = True,
) -> Split:
    """``standard``: the dataset's own train and test. ``validation``: other classes held out inside the training part.

    Choose models on ``validation`` and report ``standard`` once.
    """
    if kind not in KINDS:
        raise UnknownName("split", kind, KINDS)
    images = data if isinstance(data, ImageSet) else open(data, check=check)
    if kind == "standard":
        return standard(images, min_images=min_images)
    return validation(images, fold=fold, seed=seed, min_images=min_images)


def standard(images: ImageSet, *, min_images: int = 1) -> Split:
    """The train and test parts that the dataset comes with: METHODS' zero-shot splits for the three benchmarks."""
    for part in ("train", "test"):
        if not len(images.part(part)):
            raise DataError(_no_part(images, part, "standard"))
    train, test = (images.part(part).with_min_images(min_images) for part in ("train", "test"))
    return Split(train, test, "standard")


def _no_part(images: ImageSet, part: str, kind: str) -> str:
    if images.name in DATASETS:
        return missing_part(images, DATASETS[images.name], part)
    cure = "put the classes under train/ and test/, or give the table a split column"
    if kind == "standard":
        cure += ", or use the split 'validation', which needs neither"
    return f"{images.root}: the split {kind!r} needs a {part} part, which is not here; {cure}"


def validation(images: ImageSet, *, fold: int = 0, seed: int = 0, min_images: int = 1) -> Split:
    """Hold out half of the training classes.

    Fold 0 trains on the first half and evaluates on the last; fold 1 is the other way round. Folds 2 and 3 do the same
    with the classes shuffled by ``seed``, 4 and 5 with another shuffle, and so on: over an even number of folds every
    class is held out equally often. A dataset with a validation part of its own uses that, and has fold 0 only.
    """
    if fold < 0:
        raise DataError(f"fold must be 0 or more, got {fold}")
    training = _training(images).with_min_images(min_images)
    if len(own := images.part("val")):
        if fold:
            raise DataError(
                f"{images.root}: comes with its own validation part, so there is no fold {fold}; use fold 0"
            )
        return Split(training, own.with_min_images(min_images), "validation (the dataset's own)")
    if len(training.classes) < 4:
        raise DataError(
            f"{images.root}: {len(training.classes)} training classes cannot be halved for validation; it takes 4, so "
            "that each half has two to tell apart"
        )
    train, held_out = _halves(len(training.classes), fold=fold, seed=seed)
    return Split(
        training.select_classes(train, name=f"{images.name}/validation-{fold}-train"),
        training.select_classes(held_out, name=f"{images.name}/validation-{fold}"),
        f"validation fold {fold}" + (f" seed {seed}" if fold > 1 else ""),
    )


def _training(images: ImageSet) -> ImageSet:
    """The training part; everything where the dataset has no parts."""
    training = images if images.parts is None else images.part("train")
    if not len(training.require_labels()):
        raise DataError(_no_part(images, "train", "validation"))
    return training


def _halves(n: int, *, fold: int, seed: int) -> tuple[list[int], list[int]]:
    shuffle, swapped = divmod(fold, 2)
    order = np.arange(n) if shuffle == 0 else np.random.default_rng((seed, shuffle)).permutation(n)
    first, last = order[: n - n // 2].tolist(), order[n - n // 2 :].tolist()
    return (last, first) if swapped else (first, last)


KINDS = {"standard": standard, "validation": validation}
