"""A set of images: where they are, what they show, and nothing else. No pixel is read here."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from secondsight.errors import DataError, nearest


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """Paths and, where known, labels. Labels are 0-based and contiguous: every class of ``classes`` has an image.

    ``subset`` and its kin keep that true: a class that loses its last image leaves ``classes``, and the labels of the
    others close the gap in the same order. ``classes[labels[i]]`` is always the name of the class of image ``i``.
    """

    name: str
    root: Path
    paths: tuple[str, ...]  # relative to root, or absolute
    labels: np.ndarray | None = None  # (n,) int64
    classes: tuple[str, ...] = ()
    groups: np.ndarray | None = None  # (n,) int64: images made together (one burst, one product page, one camera)
    parts: np.ndarray | None = None  # (n,) str: "train", "test", … as the dataset itself says

    def __post_init__(self) -> None:
        fix = object.__setattr__  # frozen for everyone else
        fix(self, "root", Path(self.root))
        fix(self, "paths", tuple(self.paths))
        fix(self, "classes", tuple(self.classes))
        for field, dtype in (("labels", np.int64), ("groups", np.int64), ("parts", np.str_)):
            values = getattr(self, field)
            if values is not None:
                fix(self, field, _column(values, dtype, len(self.paths), f"{self.name}: {field}"))
        self._check_classes()

    def _check_classes(self) -> None:
        if self.labels is None:
            if self.classes:
                raise DataError(f"{self.name}: {len(self.classes)} classes are named but no image has a label")
            return
        if len(set(self.classes)) != len(self.classes):
            raise DataError(f"{self.name}: two classes have the same name")
        used = np.unique(self.labels)
        if not np.array_equal(used, np.arange(len(self.classes))):
            raise DataError(
                f"{self.name}: labels must use every number from 0 to {len(self.classes) - 1} (one per class), got "
                f"{len(used)} different ones from {used.min(initial=0)} to {used.max(initial=0)}; build the set with "
                "ImageSet.labelled(…), which numbers the classes"
            )

    @classmethod
    def labelled(
        cls,
        name: str,
        root: Path,
        paths: Sequence[str],
        names: Sequence[str],
        *,
        order: Sequence[str] | None = None,
        groups: np.ndarray | None = None,
        parts: Sequence[str] | np.ndarray | None = None,
    ) -> ImageSet:
        """Number the classes from every image's class name, in ``order`` or sorted; classes without images drop out."""
        present = set(names)
        classes = tuple(c for c in (order if order is not None else sorted(present)) if c in present)
        number = {c: i for i, c in enumerate(classes)}
        labels = np.fromiter((number[n] for n in names), np.int64, len(names))
        return cls(name, root, tuple(paths), labels, classes, groups, None if parts is None else np.asarray(parts))

    def __len__(self) -> int:
        return len(self.paths)

    def __repr__(self) -> str:
        what = "no labels" if self.labels is None else f"{len(self.classes):,} classes"
        return f"ImageSet({self.name!r}, {len(self):,} images, {what}, root={str(self.root)!r})"

    def path(self, i: int) -> Path:
        """Where image ``i`` is."""
        return self.root / self.paths[i]

    @property
    def counts(self) -> np.ndarray:
        """Images per class, (classes,) int64."""
        return np.bincount(self.require_labels(), minlength=len(self.classes))

    def require_labels(self) -> np.ndarray:
        """The labels, or an error that says how to give some."""
        if self.labels is None:
            raise DataError(
                f"{self.root}: the images have no labels; put each class in a folder of its own, or list them in a CSV "
                "with the columns path,label"
            )
        return self.labels

    def subset(self, indices: Sequence[int] | np.ndarray, *, name: str | None = None) -> ImageSet:
        """The images at ``indices`` (or where a boolean mask is True), in that order, with labels re-based to 0…C-1."""
        index = np.asarray(indices)
        index = np.flatnonzero(index) if index.dtype == bool else index.astype(np.int64).reshape(-1)
        taken: dict[str, object] = {"name": name or self.name, "paths": tuple(self.paths[i] for i in index)}
        taken |= {f: v[index] for f in ("groups", "parts") if (v := getattr(self, f)) is not None}
        if self.labels is not None:
            used, labels = np.unique(self.labels[index], return_inverse=True)
            taken |= {"labels": labels, "classes": tuple(self.classes[c] for c in used)}
        return replace(self, **taken)  # pyright: ignore[reportArgumentType]

    def part(self, part: str) -> ImageSet:
        """The images that the dataset itself puts in ``part``; none of them is not an error here."""
        mask = np.zeros(len(self), bool) if self.parts is None else self.parts == part
        return self.subset(mask, name=f"{self.name}/{part}")

    def select_classes(self, classes: Iterable[str | int], *, name: str | None = None) -> ImageSet:
        """The images of some classes, given by name or by number; the order of the set is kept."""
        number = {c: i for i, c in enumerate(self.classes)}
        wanted = [self._number(c, number) for c in classes]
        return self.subset(np.isin(self.require_labels(), wanted), name=name)

    def _number(self, given: str | int, number: dict[str, int]) -> int:
        found = number.get(given) if isinstance(given, str) else int(given)
        if found is not None and 0 <= found < len(self.classes):
            return found
        near = nearest(given, self.classes) if isinstance(given, str) else None
        hint = f"; did you mean {near!r}?" if near else ""
        raise DataError(f"{self.name}: there is no class {given!r} among its {len(self.classes):,}{hint}")

    def with_min_images(self, n: int) -> ImageSet:
        """Without the classes of fewer than ``n`` images; an empty set, or one without labels, has none to drop."""
        if self.labels is None or n <= 1 or not len(self):
            return self
        counts = self.counts
        if not (counts >= n).any():
            raise DataError(
                f"{self.root}: none of its {len(counts):,} classes has {n} images (the largest has "
                f"{counts.max(initial=0)}); lower --min-images or add pictures"
            )
        return self.subset((counts >= n)[self.labels])

    def with_max_images(self, n: int | None) -> ImageSet:
        """With the first ``n`` images of every class; None for all of them."""
        if n is None:
            return self
        labels = self.require_labels()
        return self.subset(np.sort(np.concatenate([np.flatnonzero(labels == c)[:n] for c in range(len(self.classes))])))

    def require_pairs(self) -> ImageSet:
        """Itself, when retrieval can be trained and judged on it: two classes or more, and two images in each."""
        self.require_labels()
        if len(self.classes) < 2:
            only = f" ({self.classes[0]!r})" if self.classes else ""
            raise DataError(
                f"{self.root}: {len(self.classes)} class{only}; retrieval needs two or more to tell apart: give the "
                "folder that holds one subfolder per class"
            )
        if single := int((self.counts == 1).sum()):
            which = "1 class has" if single == 1 else f"{single:,} classes have"
            raise DataError(f"{self.root}: {which} one image; retrieval needs two — drop them with --min-images 2")
        return self

    def fingerprint(self, *, sizes: bool = False) -> str:
        """Changes with the relative paths, the labels and their order; not with root, names or file contents.

        With ``sizes`` also with the files' sizes, and so with pictures that were cropped or saved anew.
        """
        digest = hashlib.sha256(f"secondsight images {len(self)}\n".encode())
        for path in self.paths:
            digest.update(os.fsencode(path) + b"\0")
        digest.update(b"-" if self.labels is None else self.labels.astype("<i8").tobytes())
        if sizes:
            files = (self.path(i) for i in range(len(self)))
            digest.update(np.array([f.stat().st_size if f.exists() else -1 for f in files], "<i8").tobytes())
        return digest.hexdigest()[:32]


def _column(values: object, dtype: type, length: int, what: str) -> np.ndarray:
    """A read-only copy with one entry per image."""
    column = np.array(values, dtype=dtype)
    if column.shape != (length,):
        raise DataError(f"{what} has shape {column.shape}, but there are {length:,} images")
    column.flags.writeable = False
    return column
