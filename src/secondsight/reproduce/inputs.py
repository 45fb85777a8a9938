"""What a run was given: short digests by which two runs can be told to have had the same images and weights."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from secondsight.data.imageset import ImageSet
from secondsight.train.recipe import Recipe


def inputs(recipe: Recipe, images: dict[str, ImageSet]) -> dict[str, str]:
    """Role → digest, of ``images`` and of the backbone's weights; the same on every machine that has the same files."""
    return {**{role: of_images(some) for role, some in images.items()}, "weights": of_weights(recipe.model.weights)}


def of_images(images: ImageSet) -> str:
    """Of names, labels and sizes of the files: no pixel is read, and pictures that were cropped or saved anew
    differ.
    """
    digest = hashlib.sha256(images.fingerprint().encode())
    for i in range(len(images)):
        path = images.path(i)
        digest.update(f"{os.stat(path).st_size if path.exists() else -1}\n".encode())
    return digest.hexdigest()[:16]


def of_weights(weights: str) -> str:
    """Of the file's content; ``default`` and ``random`` speak for themselves."""
    if not Path(weights).is_file():
        return weights
    digest = hashlib.sha256()
    with Path(weights).open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()[:16]
