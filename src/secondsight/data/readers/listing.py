"""Which files of a folder are images, in an order that no filesystem can change."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from secondsight.errors import DataError, nearest

SUFFIXES = frozenset(
    f".{kind}"
    for kind in (
        *("jpg", "jpeg", "jpe", "jfif", "png", "webp", "bmp", "dib", "gif", "tif", "tiff"),
        *("ppm", "pgm", "pbm", "pnm", "jp2", "avif", "ico", "heic", "heif"),
    )
)
"""What counts as an image by name; whether it can be decoded is for the decoder to find out."""


@dataclass
class Listing:
    """What a walk through a folder found, as sorted paths relative to it, with forward slashes."""

    images: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)  # files that are no images by name: notes, lists, archives
    broken: list[str] = field(default_factory=list)  # links that lead nowhere, or in a circle
    hidden: int = 0  # .DS_Store, Thumbs.db, macOS's ._copies and whatever else starts with a dot


def hidden(name: str) -> bool:
    """Whether a file or folder is the system's business: dot files, ``._`` twins, thumbnails, ``__MACOSX``."""
    return name.startswith(".") or name.lower() in ("thumbs.db", "desktop.ini", "__macosx")


def is_image(name: str) -> bool:
    """Whether a visible file is an image by its suffix."""
    return not hidden(name) and os.path.splitext(name)[1].lower() in SUFFIXES


def list_folder(root: Path) -> Listing:
    """Walk ``root`` through links too; a folder that was seen already (a link in a circle) is not entered again."""
    found = Listing()
    seen: set[tuple[int, int]] = set()
    waiting = [(root, "")]
    while waiting:
        folder, prefix = waiting.pop()
        status = folder.stat()
        if (status.st_dev, status.st_ino) in seen:
            found.broken.append(prefix.rstrip("/"))
            continue
        seen.add((status.st_dev, status.st_ino))
        for entry in sorted(entries(folder), key=lambda e: e.name):
            if hidden(entry.name):
                found.hidden += 1
            elif _is(os.DirEntry.is_dir, entry):
                waiting.append((Path(entry.path), f"{prefix}{entry.name}/"))
            elif not _is(os.DirEntry.is_file, entry):
                found.broken.append(prefix + entry.name)
            else:
                (found.images if is_image(entry.name) else found.others).append(prefix + entry.name)
    for names in (found.images, found.others, found.broken):
        names.sort(key=order)
    return found


def order(path: str) -> tuple[tuple[str, ...], str]:
    """Folder by folder, with é the same letter however the filesystem spells it."""
    plain = path if path.isascii() else unicodedata.normalize("NFC", path)
    return PurePosixPath(plain).parts, path


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """``scandir`` with an error that names the folder."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError as error:
        raise DataError(
            f"{folder}: cannot be listed ({error.strerror}); check that it is a folder you may read"
        ) from error


def subfolders(folder: Path) -> list[str]:
    """Names of the visible folders inside, sorted."""
    found = (e.name for e in entries(folder) if not hidden(e.name) and _is(os.DirEntry.is_dir, e))
    return sorted(found, key=order)


def _is(question: Callable[[os.DirEntry[str]], bool], entry: os.DirEntry[str]) -> bool:
    try:
        return question(entry)
    except OSError:  # a link to itself
        return False


def missing(root: Path, paths: Iterable[str]) -> Iterator[int]:
    """Numbers of the ``paths`` that are not there. One listing per folder: much cheaper than asking for each file."""
    known: dict[str, set[str]] = {}
    for i, path in enumerate(paths):
        folder, name = os.path.split(os.path.join(root, path))
        if folder not in known:
            known[folder] = _names(folder)
        # A name that the listing lacks may still open where the filesystem ignores case or spelling: ask it.
        if name not in known[folder] and not os.path.exists(os.path.join(folder, name)):
            yield i


def _names(folder: str) -> set[str]:
    try:
        with os.scandir(folder) as found:
            return {e.name for e in found if _is(os.DirEntry.is_file, e)}
    except OSError:
        return set()


def require_path(path: Path) -> Path:
    """``path`` if it is there; otherwise an error that names what looks like it."""
    if path.exists():
        return path
    name, parent = path.name, path.parent
    while not parent.is_dir() and parent != parent.parent:
        name, parent = parent.name, parent.parent
    near = nearest(name, (e.name for e in entries(parent)))
    hint = f"did you mean {str(parent / near)!r}?" if near else f"nothing like it is in {str(parent.resolve())!r}"
    raise DataError(f"{path}: no such file or folder; {hint}")
