"""Cars-196 in the three layouts that people have: the official ones in MATLAB's format, and class folders from Kaggle.

    car_ims/ + cars_annos.mat                                      all images in one folder (what metric learning uses)
    cars_train/ + cars_test/ + devkit/ + cars_test_annos_withlabels.mat     the classification halves
    [car_data/car_data/]train/<class>/ + test/<class>/             class folders, with or without names.csv

The zero-shot split is by class, 1–98 / 99–196; the classification halves of the last two are put together first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from secondsight.data.imageset import ImageSet
from secondsight.data.readers.paths import lines, list_folder, subfolders
from secondsight.errors import DataError

TRAIN_CLASSES = 98
# Class 98 is the last of its make (Eagle) and makes are in alphabetical order, so the 98 first class *names* are the 98
# first classes, although the official order inside a make is not alphabetical. Folders without names.csv rest on it.

DEVKIT = ("devkit", "car_devkit/devkit", "car_devkit", ".")
HALVES = {"cars_train": "cars_train_annos.mat", "cars_test": "cars_test_annos_withlabels.mat"}


def find(root: Path) -> Path | None:
    """The folder with the annotations: ``root`` or a folder in it that an archive is known to make."""
    for folder in (root, root / "cars196", root / "CARS196", root / "stanford_cars", root / "stanford-cars"):
        lists = ("cars_annos.mat", "anno_train.csv", "devkit/cars_train_annos.mat", "cars_train_annos.mat")
        if any((folder / name).is_file() for name in lists):
            return folder
    return None


def read(root: Path) -> ImageSet:
    """All images of whichever layout is there, classes in the official order where a file tells it."""
    try:
        return _read(root)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{root}: its MATLAB files do not hold what Cars-196 has ({error!r}); get them again"
        ) from error


def _read(root: Path) -> ImageSet:
    folder = find(root) or root
    if (folder / "cars_annos.mat").is_file() and (folder / "car_ims").is_dir():
        return _read_single(folder)
    if any((folder / half).is_dir() for half in HALVES):
        return _read_halves(folder)
    for base in (folder / "car_data" / "car_data", folder / "car_data", folder):
        if any((base / part).is_dir() for part in ("train", "test")):
            return _read_folders(base, folder / "names.csv")
    raise DataError(
        f"{root}: not a known layout of Cars-196: needs car_ims/ with cars_annos.mat, or cars_train/, cars_test/ with "
        "devkit/ and cars_test_annos_withlabels.mat, or train/ and test/ with class folders; see: secondsight data list"
    )


def _read_single(root: Path) -> ImageSet:
    content = _load(root / "cars_annos.mat")
    rows = [(str(a.relative_im_path), int(getattr(a, "class"))) for a in _records(content, root / "cars_annos.mat")]
    return _build(root, rows, [str(name) for name in content["class_names"]])


def _read_halves(root: Path) -> ImageSet:
    names = [str(name) for name in _load(_devkit(root, "cars_meta.mat"))["class_names"]]
    rows: list[tuple[str, int]] = []
    for half, name in HALVES.items():
        file = _devkit(root, name)
        # Kaggle's archive has the folder twice: cars_train/cars_train.
        images = f"{half}/{half}" if (root / half / half).is_dir() else half
        rows += [(f"{images}/{a.fname}", int(getattr(a, "class"))) for a in _records(_load(file), file)]
    return _build(root, rows, names)


def _read_folders(base: Path, official: Path) -> ImageSet:
    halves = [part for part in ("train", "test") if (base / part).is_dir()]
    folders = sorted({name for part in halves for name in subfolders(base / part)})
    order = folders
    if official.is_file():
        order = [name for line in lines(official) if (name := line.strip().strip('"').replace("/", "-"))]
        if unknown := sorted(set(folders) - set(order)):
            raise DataError(
                f"{base}: the class folder {unknown[0]!r} is not in {official}; one of the two is incomplete"
            )
    number = {name: i for i, name in enumerate(order, 1)}
    rows = [
        (f"{part}/{name}/{image}", number[name])
        for part in halves
        for name in subfolders(base / part)
        for image in list_folder(base / part / name).images
    ]
    return _build(base, rows, order)


def _build(root: Path, rows: list[tuple[str, int]], classes: list[str]) -> ImageSet:
    """``rows`` hold paths and official class numbers, which start at 1."""
    for path, number in rows:
        if not 1 <= number <= len(classes):
            raise DataError(f"{root}: {path} has class {number}, but the classes are 1 to {len(classes)}")
    rows.sort(key=lambda row: (row[1], row[0]))
    parts = ["train" if number <= TRAIN_CLASSES else "test" for _, number in rows]
    names = [classes[number - 1] for _, number in rows]
    return ImageSet.labelled("cars196", root, [path for path, _ in rows], names, order=classes, parts=parts)


def _devkit(root: Path, name: str) -> Path:
    for folder in DEVKIT:
        if (root / folder / name).is_file():
            return root / folder / name
    hint = ""
    if name == "cars_test_annos_withlabels.mat":
        hint = " (cars_test_annos.mat of the devkit has no labels; this one came as a separate download)"
    raise DataError(f"{root}: {name} is missing, here and in devkit/{hint}; it is needed to label the images")


def _load(file: Path) -> dict[str, Any]:
    from scipy.io import loadmat  # slow to import, and only this layout needs it

    try:
        return loadmat(str(file), squeeze_me=True, struct_as_record=False)
    except Exception as error:  # a broken file can make the reader raise anything
        raise DataError(f"{file}: not a MATLAB file that can be read ({error}); get it again") from error


def _records(content: dict[str, Any], file: Path) -> Iterator[Any]:
    if "annotations" not in content:
        raise DataError(f"{file}: holds no 'annotations'; is it the official file?")
    annotations = content["annotations"]
    return iter(annotations.tolist() if annotations.ndim else [annotations.item()])
