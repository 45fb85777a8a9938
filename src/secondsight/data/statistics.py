"""``secondsight data stats``: what a dataset looks like, from its lists and the headers of some of its files."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from secondsight.data.copies import same_content
from secondsight.data.imageset import ImageSet
from secondsight.data.loading.decode import formats as readable_formats
from secondsight.data.loading.decode import open_regular
from secondsight.data.readers.paths import missing
from secondsight.data.readers.spec import open as open_images
from secondsight.data.readers.spec import resolve
from secondsight.errors import DataError
from secondsight.progress import track


@dataclass(frozen=True)
class Spread:
    """Smallest, middle and largest of some numbers."""

    min: float
    median: float
    max: float

    @classmethod
    def of(cls, values: np.ndarray) -> Spread | None:
        return cls(float(values.min()), float(np.median(values)), float(values.max())) if len(values) else None


@dataclass(frozen=True)
class Stats:
    """Figures of a dataset; those of files come from ``sampled`` of them, spread evenly over the set."""

    dataset: str
    root: str
    images: int
    classes: int
    parts: dict[str, dict[str, int]]  # {"train": {"images": …, "classes": …}}
    groups: int | None
    missing: int
    per_class: Spread | None
    histogram: tuple[
        tuple[int, int, int], ...
    ]  # (from, to, classes): classes with that many images, both ends included
    single: int  # classes with one image
    largest: tuple[tuple[str, int], ...]
    smallest: tuple[tuple[str, int], ...]
    sampled: int
    unreadable: int  # of the sample: not a picture by its header
    width: Spread | None
    height: Spread | None
    kilobytes: Spread | None
    modes: dict[str, int]  # RGB, L (grey), P (palette) …
    formats: dict[str, int]
    duplicates: int | None  # files that are a copy of another one; None when not asked for
    fingerprint: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def stats(spec: str | Path, *, split: str = "all", sample: int = 500, duplicates: bool = False) -> Stats:
    """Figures of the dataset at ``spec``; ``sample`` files are opened for their size and kind (0: all of them)."""
    if sample < 0:
        raise DataError(f"the sample must be 0 (every file) or more, got {sample}")
    dataset, _ = resolve(spec)
    images = open_images(spec, split=split, check=False)
    gone = set(missing(images.root, images.paths))
    here = [i for i in range(len(images)) if i not in gone]
    counts = images.counts if images.labels is not None else np.zeros(0, np.int64)
    return Stats(
        dataset=dataset.name,
        root=str(images.root),
        images=len(images),
        classes=len(images.classes),
        parts=_parts(images),
        groups=None if images.groups is None else len(np.unique(images.groups)),
        missing=len(gone),
        per_class=Spread.of(counts),
        histogram=histogram(counts),
        single=int((counts == 1).sum()),
        largest=_extremes(images, counts, -1),
        smallest=_extremes(images, counts, 1),
        **_files(images, _spread_out(here, sample)),
        duplicates=sum(len(group) - 1 for group in same_content(images, here)) if duplicates else None,
        fingerprint=images.fingerprint(),
    )


def histogram(counts: np.ndarray, *, bins: int = 10) -> tuple[tuple[int, int, int], ...]:
    """(from, to, how many) with whole-numbered, touching ranges of equal width that cover every count."""
    if not len(counts):
        return ()
    low, high = int(counts.min()), int(counts.max())
    width = max(1, -(-(high - low + 1) // bins))
    ranges = [(start, min(start + width - 1, high)) for start in range(low, high + 1, width)]
    return tuple((a, b, int(((counts >= a) & (counts <= b)).sum())) for a, b in ranges)


def _parts(images: ImageSet) -> dict[str, dict[str, int]]:
    names = [] if images.parts is None else sorted(set(images.parts.tolist()))
    return {name: {"images": len(p := images.part(name)), "classes": len(p.classes)} for name in names}


def _extremes(images: ImageSet, counts: np.ndarray, sign: int) -> tuple[tuple[str, int], ...]:
    return tuple((images.classes[c], int(counts[c])) for c in np.argsort(sign * counts, kind="stable")[:3])


def _spread_out(indices: list[int], n: int) -> list[int]:
    if n == 0 or n >= len(indices):
        return indices
    return [indices[i] for i in np.linspace(0, len(indices) - 1, n).astype(int)]


def _files(images: ImageSet, sample: list[int]) -> dict[str, Any]:
    """What the headers say; no pixel is decoded."""
    sizes, weights, modes, formats, unreadable = [], [], Counter(), Counter(), 0
    for i in track(sample, "reading headers"):
        try:
            weights.append(images.path(i).stat().st_size / 1000)
            with open_regular(images.path(i)) as file, Image.open(file, formats=readable_formats()) as image:
                sizes.append(image.size)
                modes[image.mode] += 1
                formats[image.format or "?"] += 1
        except Exception:  # a broken file can make Pillow's parsers raise anything
            unreadable += 1
    width, height = np.array(sizes).reshape(-1, 2).T
    return {
        "sampled": len(sample),
        "unreadable": unreadable,
        "width": Spread.of(width),
        "height": Spread.of(height),
        "kilobytes": Spread.of(np.array(weights)),
        "modes": dict(modes.most_common()),
        "formats": dict(formats.most_common()),
    }
