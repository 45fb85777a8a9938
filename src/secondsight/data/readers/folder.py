"""Anyone's own folder: a subfolder per class, optionally under ``train/`` and ``test/``; or flat, without labels."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from secondsight.data.imageset import ImageSet
from secondsight.data.readers.paths import entries, hidden, list_folder, subfolders
from secondsight.errors import DataError

PARTS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing", "eval"), "test"),
}
"""What a folder (or a table's split column) may call the parts of a dataset, and what we call them."""


def find(root: Path) -> Path | None:
    """Any folder will do."""
    return root if root.is_dir() else None


def read(root: Path) -> ImageSet:
    """A class is a first-level folder, with everything below it; loose images beside class folders are an error."""
    root = _unwrap(root)
    paths = list_folder(root).images
    if not paths:
        raise DataError(f"{root}: no images here (looked for .jpg, .png, .webp and others, in every folder below)")
    name = root.name or "folder"
    if all("/" not in path for path in paths):
        return ImageSet(name, root, tuple(paths))
    depth = 1 if _has_parts(root) else 0
    loose = [path for path in paths if path.count("/") <= depth]
    if loose:
        raise DataError(
            f"{root}: {len(loose):,} of {len(paths):,} images are in no class folder (the first: {loose[0]}); move "
            "them into one, or away"
        )
    folders = [PurePosixPath(path).parts for path in paths]
    parts = [PARTS[f[0].lower()] for f in folders] if depth else None
    return ImageSet.labelled(name, root, paths, [f[depth] for f in folders], parts=parts)


def _has_parts(root: Path) -> bool:
    """Whether the first level is ``train/``, ``test/`` … rather than classes."""
    names = subfolders(root)
    return len(names) > 1 and all(name.lower() in PARTS for name in names) and any(subfolders(root / n) for n in names)


def _unwrap(root: Path) -> Path:
    """Archives like to wrap everything in one more folder: step into a lone folder that itself holds only folders."""
    for _ in range(8):  # a link that leads back up must not keep us here
        inside = [entry for entry in entries(root) if not hidden(entry.name)]
        if len(inside) != 1 or not (folder := Path(inside[0].path)).is_dir():
            return root
        below = [entry for entry in entries(folder) if not hidden(entry.name)]
        if not below or not all(entry.is_dir() for entry in below):
            return root
        root = folder
    return root
