"""Digests of a run's inputs: they tell whether two runs had the same images and weights."""

from __future__ import annotations

import hashlib
from pathlib import Path

from secondsight.train.recipe import Recipe
from secondsight.train.sets import Sets


def input_digests(recipe: Recipe, sets: Sets) -> dict[str, str]:
    """Role → digest, of images and of the backbone's weights; the same on every machine that has the same files."""
    images = {"train": sets.train, "validation": sets.validation}
    found = {role: some.fingerprint(sizes=True)[:16] for role, some in images.items() if some is not None}
    return {**found, "weights": of_weights(recipe.model.weights)}


def of_weights(weights: str) -> str:
    """Of the file's content; ``default`` and ``random`` speak for themselves."""
    if not Path(weights).is_file():
        return weights
    with Path(weights).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]
