"""What a demo is about: the pictures that are indexed and judged on, and the recipe that learns from others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from secondsight import data, shipped
from secondsight.data.imageset import ImageSet
from secondsight.demo.drawings import VENDORS, table
from secondsight.embed import Embeddings
from secondsight.errors import DataError
from secondsight.evaluate import Evaluation, Items
from secondsight.index import Index
from secondsight.train import Recipe, recipe_file
from secondsight.train.sets import adapted, open_sets

SETTINGS = (
    "data.transform=resize",  # the drawings are square
    "model.freeze=all",
    "optimizer.lr=0",
    "optimizer.head_lr=2e-3",
    "schedule.warmup=0.5",
    "train.classes_per_batch=20",
    "train.epochs=6",
    "validation.share=0",  # the emoji that judge choose nothing
    "validation.at_start=false",
)
"""How the emoji depart from the recipe ``photos``: only what comes after the network learns, quickly.

Mirror images stay off: arrows and clocks have a direction. ``benchmarks/demo_settings.py`` tries others, on emoji that
the demo never shows; ``docs/reports/benchmarks.md`` has the figures.
"""

LEAST = 8
"""Pictures, for a demo of a folder."""


@dataclass(frozen=True)
class Subject:
    """``images`` are indexed and judged on; ``recipe`` learns from others, and is None where nothing is labelled."""

    name: str
    images: ImageSet
    recipe: Recipe | None
    words: str

    def unlabelled(self) -> ImageSet:
        """The same pictures without what is known about them."""
        return ImageSet(self.name, self.images.root, self.images.paths)

    def labels(self) -> dict[str, str]:
        """Path → class; empty where nothing is labelled."""
        if self.images.labels is None:
            return {}
        names = (self.images.classes[label] for label in self.images.labels)
        return dict(zip((_resolved(self.images.path(i)) for i in range(len(self.images))), names, strict=True))

    def called(self, path: str | Path) -> str:
        """A picture's class and its folder, or folder and name where the class says no more."""
        folder, name = Path(path).resolve().parts[-2:]
        label = self.labels().get(_resolved(path), folder)
        return f"{label} ({folder})" if label != folder else f"{folder}/{name}"


def emoji(out: Path, *, count: int = 200, skip: int = 0, settings: Sequence[str] = ()) -> Subject:
    """Half of ``count`` emoji teach, the other half judge; ``settings`` change the demo's own."""
    path = str(table(out / f"emoji-{skip}.csv" if skip else out / "emoji.csv", emoji=count, skip=skip))
    images = data.open(path, split="val")
    recipe = recipe_file.read(shipped.find("photos"), [*_words(path, out), *SETTINGS, *settings])
    teach = count - len(images.classes)
    words = f"{len(images.classes)} emoji, each as {len(VENDORS)} vendors draw it; {teach} others will teach"
    return Subject("emoji", images, recipe, words)


def folder(path: str, out: Path, *, settings: Sequence[str] = ()) -> Subject:
    """One's own pictures. With labels, those of the classes that training holds out; without, all of them."""
    images = data.open(path)
    name = Path(path.rstrip("/").rpartition(":")[2]).stem or "photos"
    if len(images) < LEAST:
        raise DataError(f"{path}: too few pictures for a demo ({len(images)}); it needs {LEAST} or more")
    if images.labels is None or len(images.with_min_images(2).classes) < 6:
        return Subject(name, images, None, f"{len(images):,} pictures of {path}")
    words = [*_words(path, out), "validation.share=0.4", *settings]
    recipe = adapted(recipe_file.read(shipped.find("photos"), words), words, say=lambda _: None)
    sets = open_sets(recipe)
    assert sets.validation is not None
    count = f"{len(sets.validation):,} pictures of {len(sets.validation.classes)} classes"
    return Subject(name, sets.validation, recipe, f"{count}; {len(sets.train.classes)} other classes will teach")


def _words(path: str, out: Path) -> list[str]:
    return [recipe_file.word("data.path", path), recipe_file.word("data.cache_dir", str(out / "cache"))]


def evaluate_collection(collection: Index, subject: Subject, *, title: str) -> Evaluation:
    """How good a collection's vectors are, by labels that it does not hold."""
    items = collection.items()
    number = {_resolved(subject.images.path(i)): i for i in range(len(subject.images))}
    rows = np.array([number[_resolved(item.path or "")] for item in items])
    vectors = collection.vectors([item.id for item in items])
    found = Items.of_images(subject.images, Embeddings(vectors, None, rows))
    return Evaluation.of(found, facts={"name": title, "data": subject.words})


def _resolved(path: str | Path) -> str:
    return str(Path(path).resolve())
