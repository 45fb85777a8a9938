"""An evaluation: vectors and the classes of their items, how good they are, and the page that shows it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from secondsight import files
from secondsight.data import DecodeError, Failures, ImageSet
from secondsight.data.loading.thumbnail import thumbnail
from secondsight.embed import Embeddings
from secondsight.errors import ConfigError, DataError, first_line
from secondsight.evaluate.examples import confusions, instructive
from secondsight.evaluate.report import Report
from secondsight.evaluate.report_page import page
from secondsight.evaluate.scoring import retrieval
from secondsight.evaluate.survey import survey
from secondsight.version import __version__


@dataclass(frozen=True, eq=False)
class Items:
    """What is evaluated: vectors, the names of their classes and, where images are known, how to show them."""

    vectors: np.ndarray
    labels: np.ndarray  # (n,) names or integers
    picture: Callable[[int], bytes | None] = lambda index: None
    name: Callable[[int], str] = lambda index: f"item {index}"
    failures: Failures = field(default_factory=Failures)

    @classmethod
    def of_images(cls, images: ImageSet, found: Embeddings) -> Items:
        """Embedded images."""
        names = np.array(images.classes, dtype=np.str_)[images.require_labels()[found.indices]]

        def picture(row: int) -> bytes | None:
            try:
                return thumbnail(images.path(int(found.indices[row])), square=True)
            except DecodeError:
                return None

        return cls(found.vectors, names, picture, lambda row: images.paths[int(found.indices[row])], found.failures)

    @classmethod
    def of_files(cls, vectors: Path, labels: Path | None, images: ImageSet | None) -> Items:
        """Saved embeddings (``.npy``) with labels from a file or from the images they were made of, in their order."""
        array = read_vectors(vectors)
        if images is not None and len(images) != len(array):
            raise DataError(
                f"{vectors} has {len(array):,} rows, {images.root} {len(images):,} images: they must be the same items"
            )
        if labels is None and images is None:
            raise ConfigError(f"{vectors}: embeddings need labels: give --labels FILE, or the images as DATA")
        items = None if images is None else cls.of_images(images, Embeddings(array, None, np.arange(len(images))))
        if labels is None:
            assert items is not None
            return items
        names = read_labels(labels)
        if len(names) != len(array):
            raise DataError(
                f"{vectors} has {len(array):,} rows, {labels} has {len(names):,}: they must be the same items"
            )
        return cls(array, names) if items is None else cls(array, names, items.picture, items.name)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Items and what ``retrieval`` found about them; ``facts`` say what was evaluated, ``warnings`` what to doubt."""

    items: Items
    report: Report
    facts: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, items: Items, *, facts: dict[str, str] | None = None, warnings: tuple[str, ...] = (), **options: Any
    ) -> Evaluation:
        """Evaluate items; ``options`` are those of ``retrieval``."""
        bad = len(items.failures)
        unreadable = (f"Not part of the figures: {bad:,} unreadable file(s), listed in failures.jsonl.",) * (bad > 0)
        known = {**(facts or {}), "secondsight": __version__}
        return cls(items, retrieval(items.vectors, items.labels, **options), known, (*warnings, *unreadable))

    def to_json(self) -> str:
        """The content of ``report.json``."""
        content = {
            **self.facts,
            "items": len(self.items.labels),
            "failures": len(self.items.failures),
            "warnings": list(self.warnings),
            **self.report.to_dict(),
        }
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"

    def to_html(self, title: str) -> str:
        """The page."""
        vectors, labels, report = self.items.vectors, self.items.labels, self.report
        seen = survey(vectors, labels, report)
        return page(
            report,
            seen,
            title=title,
            examples=instructive(vectors, labels, report, seen),
            confusions=confusions(labels, report, seen),
            picture=self.items.picture,
            name=self.items.name,
            facts=self.facts,
            warnings=self.warnings,
        )

    def write(self, target: Path, *, title: str, save: bool = False) -> None:
        """Write ``report.json`` and ``report.html`` into ``target``; with ``save`` the vectors and labels too."""
        files.write_text(target / "report.json", self.to_json())
        if self.items.failures:
            self.items.failures.write(target / "failures.jsonl")
        else:
            (target / "failures.jsonl").unlink(missing_ok=True)  # of an earlier evaluation
        if save:
            with files.replacing(target / "embeddings.npy") as temporary, temporary.open("wb") as handle:
                np.save(handle, self.items.vectors, allow_pickle=False)
            files.write_text(target / "labels.txt", "".join(f"{label}\n" for label in self.items.labels))
        files.write_text(target / "report.html", self.to_html(title))


def read_vectors(path: Path) -> np.ndarray:
    """(items, dimensions), memory-mapped."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a broken header can make numpy's parser raise anything
        raise DataError(f"{path}: cannot be read as a .npy array: {_cause(error)}; save it with numpy.save") from error
    if not isinstance(array, np.ndarray) or array.ndim != 2:
        shape = getattr(array, "shape", "unknown")
        raise DataError(f"{path}: embeddings must be an array (items, dimensions), this is {shape}")
    return array


def read_labels(path: Path) -> np.ndarray:
    """One label an item: a ``.npy`` array, or a text file with one label a line."""
    try:
        if path.suffix == ".npy":
            array = np.load(path, allow_pickle=False)
            if not isinstance(array, np.ndarray) or array.ndim != 1:
                shape = getattr(array, "shape", "unknown")
                raise DataError(f"{path}: labels must be one a row, this is an array of shape {shape}")
            array.tolist()  # letters that do not exist are found here
            return array
        lines = path.read_text("utf-8").splitlines()
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path}: cannot be read ({_cause(error)}); labels are a .npy, or text, one a line") from error
    if empty := [i for i, line in enumerate(lines, 1) if not line.strip()]:
        raise DataError(f"{path}: line {empty[0]} is empty; labels are one a line, in the order of the embeddings")
    return np.array([line.strip() for line in lines], dtype=np.str_)


def _cause(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or first_line(error)
