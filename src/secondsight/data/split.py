"""Which classes to learn from and which to evaluate on; the two never share a class unless the dataset itself says so.

One rule holds classes out, for training, evaluation, compression and tables alike: ``hold_out``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from secondsight.data.imageset import ImageSet
from secondsight.data.readers.registry import DATASETS
from secondsight.data.readers.spec import Missing, missing_part
from secondsight.data.readers.spec import open as open_images
from secondsight.errors import DataError, require_known


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
    share: float = 0.5,
    fold: int = 0,
    seed: int = 0,
    min_images: int = 1,
    check: bool = True,
    missing: Missing = "error",
) -> Split:
    """``standard``: the dataset's own train and test. ``validation``: classes held out inside the training part.

    Choose models on ``validation`` and report ``standard`` once. ``share``, ``fold`` and ``seed``: see ``hold_out``.
    """
    require_known("split", kind, KINDS)
    images = data if isinstance(data, ImageSet) else open_images(data, check=check, missing=missing)
    if kind == "standard":
        return standard(images, min_images=min_images)
    return hold_out(images, share=share, fold=fold, seed=seed, min_images=min_images)


def standard(images: ImageSet, *, min_images: int = 1) -> Split:
    """The train and test parts that the dataset comes with: zero-shot splits for the three benchmarks."""
    for part in ("train", "test"):
        if not len(images.part(part)):
            raise DataError(_no_part(images, part, "standard"))
    train, test = (images.part(part).with_min_images(min_images) for part in ("train", "test"))
    return Split(train, test, "standard")


def hold_out(images: ImageSet, *, share: float = 0.5, fold: int = 0, seed: int = 0, min_images: int = 1) -> Split:
    """Hold out ``share`` of the training classes to evaluate on.

    Fold 0 holds out the last of them, fold 1 those before, and so on until every class was held out once (1 / share
    folds); the next folds do the same with the classes shuffled by ``seed``, and so on. A dataset with a validation
    part of its own uses that, and has fold 0 only.
    """
    if fold < 0:
        raise DataError(f"fold must be 0 or more, got {fold}")
    if not 0 < share < 1:
        raise DataError(f"the share of classes to hold out must be between 0 and 1, got {share}")
    training = training_part(images, min_images=min_images)
    if len(own := images.part("val")):
        if fold:
            raise DataError(
                f"{images.root}: comes with its own validation part, so there is no fold {fold}; use fold 0"
            )
        return Split(training, own.with_min_images(min_images), "validation (the dataset's own)")
    n = len(training.classes)
    held_out = held_out_classes(n, share, fold=fold, seed=seed)
    if len(held_out) < 2 or n - len(held_out) < 2:
        raise DataError(
            f"{images.root}: {n} training classes with a share of {share} held out leave {n - len(held_out)} to learn "
            f"and {len(held_out)} to evaluate on; both need two: change validation.share, or set it to 0 to train "
            "without validation"
        )
    rest = np.setdiff1d(np.arange(n), held_out).tolist()
    shuffled = f" seed {seed}" if fold >= int(1 / share) else ""
    return Split(
        training.select_classes(rest, name=f"{images.name}/validation-{fold}-train"),
        training.select_classes(held_out.tolist(), name=f"{images.name}/validation-{fold}"),
        f"validation fold {fold}{shuffled}" + (f" share {share:g}" if share != 0.5 else ""),
    )


def held_out_classes(n: int, share: float, *, fold: int, seed: int) -> np.ndarray:
    """Which of ``n`` classes a fold holds out, ascending.

    >>> held_out_classes(10, 0.2, fold=0, seed=0).tolist(), held_out_classes(5, 0.5, fold=1, seed=0).tolist()
    ([8, 9], [0, 1, 2])
    """
    folds = int(1 / share)
    shuffle, place = divmod(fold, folds)
    order = np.arange(n) if shuffle == 0 else np.random.default_rng((seed, shuffle)).permutation(n)
    size = max(2, int(n * share))
    stop = n - place * size
    start = 0 if share * folds == 1 and place == folds - 1 else max(0, stop - size)  # the last takes what is left
    return np.sort(order[start : max(stop, 0)])


def training_part(images: ImageSet, *, min_images: int = 1) -> ImageSet:
    """The images to learn from: the training part, or everything where the dataset has no parts."""
    training = images if images.parts is None else images.part("train")
    if not len(training.require_labels()):
        raise DataError(_no_part(images, "train", "validation"))
    return training.with_min_images(min_images)


def _no_part(images: ImageSet, part: str, kind: str) -> str:
    if images.name in DATASETS:
        return missing_part(images, DATASETS[images.name], part)
    cure = "put the classes under train/ and test/, or give the table a split column"
    if kind == "standard":
        cure += ", or use the split 'validation', which needs neither"
    return f"{images.root}: the split {kind!r} needs a {part} part, which is not here; {cure}"


KINDS = {"standard": standard, "validation": hold_out}
