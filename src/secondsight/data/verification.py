"""``secondsight data verify``: everything that is wrong with a dataset, found before a training run finds it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from secondsight.data.copies import same_content
from secondsight.data.imageset import ImageSet
from secondsight.data.readers.paths import list_folder, missing
from secondsight.data.readers.registry import Dataset
from secondsight.data.readers.spec import part_problem, read, resolve
from secondsight.data.split import KINDS, splits
from secondsight.errors import DataError
from secondsight.progress import track

EXAMPLES = 5


@dataclass(frozen=True)
class Problem:
    """One kind of trouble, how often it was met, and the first files that have it."""

    severity: Literal["error", "warning"]
    message: str
    count: int = 1
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verification:
    """What ``verify`` found. ``ok`` when nothing is an error."""

    dataset: str
    root: str
    images: int = 0
    classes: int = 0
    parts: dict[str, int] = field(default_factory=dict)
    splits: tuple[str, ...] = ()  # those that can be used
    checked: tuple[str, ...] = ()  # what was looked at
    problems: tuple[Problem, ...] = ()

    @property
    def ok(self) -> bool:
        return all(problem.severity != "error" for problem in self.problems)

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


def verify(spec: str | Path, *, decode: bool = False, duplicates: bool = False) -> Verification:
    """Check counts, files, labels and splits; on request decode every image and look for copies of the same file."""
    dataset, path = resolve(spec)
    try:
        images = read(dataset, path, check=False)
    except DataError as error:
        return Verification(dataset.name, str(path), problems=(Problem("error", str(error)),))
    gone = set(missing(images.root, images.paths))
    here = [i for i in range(len(images)) if i not in gone]
    problems = [
        *_count_problems(images, dataset),
        *_some("error", "listed, but not there", [images.paths[i] for i in sorted(gone)]),
        *_file_problems(images, here),
        *_folder_problems(images, dataset),
        *_label_problems(images),
    ]
    if decode:
        problems += _decode_problems(images, here)
    if duplicates:
        problems += _duplicate_problems(images, here)
    checked = ("counts", "files", "labels", "splits") + ("decoding",) * decode + ("duplicates",) * duplicates
    parts = {} if images.parts is None else dict(sorted(Counter(images.parts.tolist()).items()))
    usable = tuple(_usable(images))
    return Verification(
        dataset.name, str(images.root), len(images), len(images.classes), parts, usable, checked, tuple(problems)
    )


def _some(severity: Literal["error", "warning"], message: str, paths: Iterable[str]) -> Iterator[Problem]:
    """A problem if there are any ``paths``."""
    found = list(paths)
    if found:
        yield Problem(severity, message, len(found), tuple(found[:EXAMPLES]))


def _count_problems(images: ImageSet, dataset: Dataset) -> Iterator[Problem]:
    for part in dataset.parts:
        if problem := part_problem(images, dataset, part):
            yield Problem("error", problem)


def _file_problems(images: ImageSet, here: list[int]) -> Iterator[Problem]:
    empty, unreadable = [], []
    for i in track(here, "looking at files"):
        path = images.path(i)
        try:
            if not os.access(path, os.R_OK):
                unreadable.append(images.paths[i])
            elif path.stat().st_size == 0:
                empty.append(images.paths[i])
        except OSError:  # gone meanwhile
            unreadable.append(images.paths[i])
    yield from _some("error", "not readable by you", unreadable)
    yield from _some("error", "empty files", empty)
    twice = [path for path, count in Counter(images.paths).items() if count > 1]
    yield from _some("error", "listed more than once", twice)


def _folder_problems(images: ImageSet, dataset: Dataset) -> Iterator[Problem]:
    """What is in the folder and not in the set."""
    if dataset.name == "table":  # a table may well pick from a larger folder
        return
    listing = list_folder(images.root)
    yield from _some("warning", "links that lead nowhere or in a circle; left out", listing.broken)
    yield from _some("warning", "images in the folder, but on no list", sorted({*listing.images} - {*images.paths}))
    if dataset.name != "folder":
        return
    kinds = Counter(os.path.splitext(path)[1].lower() or "no suffix" for path in listing.others)
    if kinds:
        which = ", ".join(f"{kind} ×{count}" for kind, count in kinds.most_common(4))
        yield Problem(
            "warning", f"not images by name ({which}); left out", len(listing.others), tuple(listing.others[:EXAMPLES])
        )
    depth = 1 if images.parts is None else 2
    nested = {path.rsplit("/", 1)[0] for path in images.paths if path.count("/") > depth}
    yield from _some("warning", "folders inside class folders; taken as part of the class", sorted(nested))


def _label_problems(images: ImageSet) -> Iterator[Problem]:
    if images.labels is None:
        yield Problem("warning", "no labels: good for search, not for training or evaluation")
        return
    if len(images.classes) == 1:
        yield Problem("error", f"only one class ({images.classes[0]!r}); retrieval needs two or more to tell apart")
    single = np.flatnonzero(images.counts == 1)
    names = [images.classes[c] for c in single]
    yield from _some("warning", "classes with one image; retrieval needs two — drop them with --min-images 2", names)


def _decode_problems(images: ImageSet, here: list[int]) -> Iterator[Problem]:
    from secondsight.data.loading.decode import DecodeError, decode

    def complaint(i: int) -> str | None:
        try:
            decode(images.path(i))
        except DecodeError as error:
            return f"{images.paths[i]}: {error.cause}"
        return None

    with ThreadPoolExecutor(os.cpu_count()) as pool:  # decoders let go of Python's lock
        complaints = list(track(pool.map(complaint, here), "decoding", total=len(here)))
    yield from _some("error", "cannot be decoded", filter(None, complaints))


def _duplicate_problems(images: ImageSet, here: list[int]) -> Iterator[Problem]:
    """The same bytes twice: harmless in one class, a wrong label across classes, a leak across train and test."""
    inside, labels, parts = [], [], []
    for group in same_content(images, here):
        what = " = ".join(images.paths[i] for i in group)
        if images.labels is not None and len(set(images.labels[group].tolist())) > 1:
            labels.append(what)
        elif images.parts is not None and len(set(images.parts[group].tolist())) > 1:
            parts.append(what)
        else:
            inside.append(what)
    yield from _some("error", "the same picture in different classes", labels)
    yield from _some("error", "the same picture in different parts (train, test …)", parts)
    yield from _some("warning", "the same picture more than once", inside)


def _usable(images: ImageSet) -> Iterator[str]:
    for kind in KINDS:
        try:
            splits(images, kind)
        except DataError:
            continue
        yield kind
