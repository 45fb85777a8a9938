"""Stanford Online Products as packed by its authors: ``Ebay_train.txt``, ``Ebay_test.txt``, a folder per kind."""

from __future__ import annotations

from pathlib import Path

from secondsight.data.imageset import ImageSet
from secondsight.data.readers.paths import lines, whole_number
from secondsight.errors import DataError

LISTS = {"train": "Ebay_train.txt", "test": "Ebay_test.txt"}


def find(root: Path) -> Path | None:
    """The folder with the lists: ``root`` itself, or ``Stanford_Online_Products`` inside it."""
    for folder in (root, root / "Stanford_Online_Products"):
        if any((folder / name).is_file() for name in LISTS.values()):
            return folder
    return None


def read(root: Path) -> ImageSet:
    """All products, training part first, each part in the order of its list. A class is a product: ``bicycle-1``."""
    folder = find(root)
    if folder is None:
        raise DataError(
            f"{root}: not Stanford Online Products: Ebay_train.txt and Ebay_test.txt are not here; get the dataset "
            "with: secondsight data get sop"
        )
    rows = [(part, *row) for part, name in LISTS.items() for row in _rows(folder / name)]
    names = [f"{path.split('_final/')[0]}-{number}" for _, number, path in rows]
    numbers = {name: number for name, (_, number, _) in zip(names, rows, strict=True)}
    return ImageSet.labelled(
        "sop",
        folder,
        [path for _, _, path in rows],
        names,
        order=sorted(numbers, key=lambda name: (numbers[name], name)),
        parts=[part for part, _, _ in rows],
    )


def _rows(file: Path) -> list[tuple[int, str]]:
    """``(class_id, path)`` of the lines ``image_id class_id super_class_id path``; nothing without the list."""
    if not file.is_file():
        return []
    found = []
    for line_number, line in enumerate(lines(file), 1):
        fields = line.split(maxsplit=3)
        if not fields or fields[0] == "image_id":
            continue
        number = whole_number(fields[1]) if len(fields) == 4 else None
        if number is None:
            raise DataError(
                f"{file}:{line_number}: {line!r} is not 'image_id class_id super_class_id path'; get the file again "
                "from the archive"
            )
        found.append((number, fields[3].strip()))
    return found
