"""CUB-200-2011 as Caltech packs it: ``images.txt``, ``image_class_labels.txt``, ``classes.txt`` and ``images/``."""

from __future__ import annotations

import re
from pathlib import Path

from secondsight.data.imageset import ImageSet
from secondsight.data.readers.paths import lines, list_folder, subfolders, whole_number
from secondsight.errors import DataError

TRAIN_CLASSES = 100  # the zero-shot split: classes 1–100 train, 101–200 test


def find(root: Path) -> Path | None:
    """The folder with ``images.txt``: ``root`` itself, or ``CUB_200_2011`` inside it."""
    for folder in (root, root / "CUB_200_2011"):
        if (folder / "images.txt").is_file() and (folder / "image_class_labels.txt").is_file():
            return folder
    return None


def read(root: Path) -> ImageSet:
    """All images, in the order of ``images.txt``; class folders like ``001.Black_footed_Albatross`` do as well."""
    folder = find(root)
    if folder is None:
        return _read_folders(root)
    paths = _numbered(folder / "images.txt")
    label_of = _numbered(folder / "image_class_labels.txt")
    if paths.keys() != label_of.keys():
        odd = min(paths.keys() ^ label_of.keys())
        raise DataError(
            f"{folder}: image {odd} is in only one of images.txt ({len(paths):,} lines) and image_class_labels.txt "
            f"({len(label_of):,}); both must list the same images — get them again from the archive"
        )
    class_of = {i: _number(label, folder / "image_class_labels.txt") for i, label in label_of.items()}
    named = _numbered(folder / "classes.txt") if (folder / "classes.txt").is_file() else {}
    return _build(folder, [f"images/{paths[i]}" for i in sorted(paths)], [class_of[i] for i in sorted(paths)], named)


def _build(root: Path, paths: list[str], numbers: list[int], named: dict[int, str]) -> ImageSet:
    names = [named.get(n, f"{n:03d}") for n in numbers]
    order = [named.get(n, f"{n:03d}") for n in sorted(set(numbers))]
    parts = ["train" if n <= TRAIN_CLASSES else "test" for n in numbers]
    return ImageSet.labelled("cub200", root, paths, names, order=order, parts=parts)


def _read_folders(root: Path) -> ImageSet:
    """The images without the lists: the folder names carry the class numbers."""
    for folder in (root / "CUB_200_2011" / "images", root / "images", root):
        classes = [name for name in subfolders(folder) if re.match(r"[0-9]{3}\.", name)] if folder.is_dir() else []
        if classes:
            paths = [f"{c}/{image}" for c in classes for image in list_folder(folder / c).images]
            return _build(folder, paths, [int(p[:3]) for p in paths], {int(c[:3]): c for c in classes})
    raise DataError(
        f"{root}: not CUB-200-2011: neither images.txt with image_class_labels.txt nor class folders like "
        "001.Black_footed_Albatross are here; get the dataset with: secondsight data get cub200"
    )


def _numbered(file: Path) -> dict[int, str]:
    """``{1: "…", 2: "…"}`` from lines such as ``1 001.Black_footed_Albatross/….jpg``."""
    found: dict[int, str] = {}
    for line_number, line in enumerate(lines(file), 1):
        if not line.strip():
            continue
        first, _, rest = line.strip().partition(" ")
        number = whole_number(first)
        if number is None or not rest or number in found:
            why = "not a number and a value" if number is None or not rest else "a number that was there before"
            raise DataError(f"{file}:{line_number}: {line!r} is {why}; get the file again from the archive")
        found[number] = rest.strip()
    return found


def _number(label: str, file: Path) -> int:
    number = whole_number(label)
    if number is None:
        raise DataError(f"{file}: {label!r} is not a class number; get the file again from the archive")
    return number
