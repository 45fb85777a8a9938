"""``open``: from the words on a command line to an ``ImageSet`` whose counts have been checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from secondsight.data.imageset import ImageSet
from secondsight.data.readers import table
from secondsight.data.readers.paths import missing as absent
from secondsight.data.readers.paths import require_path
from secondsight.data.readers.registry import DATASETS, Dataset
from secondsight.errors import DataError, UnknownName, require_known

Missing: TypeAlias = Literal["error", "skip"]


def data_root() -> Path:
    """Where ``secondsight data get`` puts datasets: ``$SECONDSIGHT_DATA``, or ``data`` in the current folder."""
    return Path(os.environ.get("SECONDSIGHT_DATA") or "data")


def open(
    spec: str | Path,
    *,
    split: str = "all",
    min_images: int = 1,
    share: float = 0.5,
    fold: int = 0,
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    root: Path | None = None,
    check: bool = True,
    missing: Missing = "error",
) -> ImageSet:
    """The images that ``spec`` and ``split`` name.

    Args:
        spec: ``cub200:PATH``, ``folder:PATH`` …; a path, whose layout is recognised; or ``cub200``, where ``data get``
            put it.
        split: ``all``; ``train`` or ``test`` as the dataset says; ``validation`` = the held-out classes of ``splits``.
        min_images: drop the classes with fewer images.
        share, fold, seed: which validation classes, see ``data.split.hold_out``.
        columns, root: for a table: other column names, and where relative paths start.
        check: whether the files must be there and the counts right.
        missing: what to do about listed files that are not there: ``error``, or ``skip``: they are set aside when they
            are read, and counted in every report.
    """
    dataset, path = resolve(spec)
    images = read(dataset, path, columns=columns, root=root, check=check, missing=missing)
    if split == "validation":
        from secondsight.data.split import splits

        return splits(images, "validation", share=share, fold=fold, seed=seed, min_images=min_images).eval
    return choose(images, split).with_min_images(min_images)


def resolve(spec: str | Path) -> tuple[Dataset, Path]:
    """Which dataset a spec means, and where it is."""
    text = os.fspath(spec)
    if not text.strip():
        raise DataError(
            "the name of the dataset is empty; give a folder, a table, or NAME:PATH such as cub200:data/cub200"
        )
    name, colon, rest = text.partition(":")
    if colon and name in DATASETS:
        return DATASETS[name], require_path(Path(rest or ".").expanduser())
    path = Path(text).expanduser()
    if text in DATASETS and not path.exists():
        return DATASETS[text], _installed(text)
    if colon and name.isidentifier() and len(name) > 1 and not path.exists():  # not C:\photos
        raise UnknownName("dataset", name, DATASETS)
    require_path(path)
    if (path / "index.sqlite").is_file():
        raise DataError(f"{path} is an index, and its pictures are elsewhere: give the folder that it was made from")
    for dataset in DATASETS.values():
        if dataset.find(path) is not None:
            return dataset, path
    kinds = ", ".join(sorted(table.READERS))
    raise DataError(f"{path}: neither a folder nor a table ({kinds}) of images; give the folder that holds it")


def _installed(name: str) -> Path:
    path = data_root() / name
    if not path.exists():
        raise DataError(
            f"{name}: not found at {path}; get it with: secondsight data get {name} — or say where it is: {name}:PATH "
            "($SECONDSIGHT_DATA changes the default place)"
        )
    return path


def read(
    dataset: Dataset,
    path: Path,
    *,
    columns: Mapping[str, str] | None = None,
    root: Path | None = None,
    check: bool = True,
    missing: Missing = "error",
) -> ImageSet:
    """Every image of the dataset at ``path``, checked unless told otherwise."""
    if columns or root:
        if dataset.name != "table":
            raise DataError(f"{path}: columns and root are for tables; this is {dataset.name}")
        images = table.read(path, columns=columns, root=root)
    else:
        images = dataset.read(path)
    require_known("way with missing files", missing, ["error", "skip"])
    if check:
        check_counts(images, dataset)
    if check and missing == "error":
        check_files(images)
    return images


def choose(images: ImageSet, split: str) -> ImageSet:
    """``all`` of the images, or the part that the dataset itself calls ``split``."""
    if split == "all":
        return images
    names = sorted(set(images.parts.tolist())) if images.parts is not None else []
    if split in names:
        return images.part(split)
    if split in ("train", "test") and images.name in DATASETS:
        raise DataError(missing_part(images, DATASETS[images.name], split))
    raise UnknownName(f"split of {images.root}", split, ["all", "validation", *names])


def check_counts(images: ImageSet, dataset: Dataset) -> None:
    """Each part must be whole. A part that is not here at all is for whoever asks for it to complain about."""
    for part in dataset.parts:
        if problem := part_problem(images, dataset, part):
            found = images.part(part)
            if len(found):
                raise DataError(
                    f"{problem}. Get it again (secondsight data get {dataset.name} --force), or use what is here as a "
                    f"plain folder: folder:{images.root}"
                )


def part_problem(images: ImageSet, dataset: Dataset, part: str) -> str | None:
    """What is wrong with the size of a part, or None."""
    here, want = images.part(part), dataset.parts[part]
    if (len(here.classes), len(here)) == (want.classes, want.images):
        return None
    return (
        f"{images.root}: the {part} part of {dataset.name} ({dataset.part_names[part]}) has {want.images:,} images of "
        f"{want.classes:,} classes, but {len(here):,} images of {len(here.classes):,} classes are here"
    )


def missing_part(images: ImageSet, dataset: Dataset, part: str) -> str:
    """The sentence for someone who asks for a part that is not here."""
    present = [p for p in dataset.parts if len(images.part(p))]
    have = " and ".join(f"the {p} part ({len(images.part(p)):,} images, {dataset.part_names[p]})" for p in present)
    cure = f"Get the whole dataset (secondsight data get {dataset.name})"
    if "train" in present:
        cure += ", or use the split 'validation', which needs the train part only"
    return f"{part_problem(images, dataset, part)}; only {have or 'nothing'} is. {cure}"


def check_files(images: ImageSet) -> None:
    """Every listed file must be there."""
    gone = np.fromiter(absent(images.root, images.paths), np.int64)
    if len(gone):
        some = ", ".join(images.paths[i] for i in gone[:3]) + (" …" if len(gone) > 3 else "")
        raise DataError(
            f"{images.root}: {len(gone):,} of {len(images):,} listed images are missing: {some}; put them back, take "
            "them off the list, or have them set aside and counted: --missing skip"
        )
