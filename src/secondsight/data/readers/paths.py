"""Paths: which files of a folder are images, in an order that no filesystem can change, and what is missing."""

from __future__ import annotations

import errno
import os
import re
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
    # Of the hidden ones only dot files can have such a suffix. Called for every file of every update: no more calls.
    return name[name.rfind(".") :].lower() in SUFFIXES and name[0] != "."


def list_folder(root: Path) -> Listing:
    """Walk ``root`` through links too; a folder that was seen already (a link in a circle) is not entered again."""
    found = Listing()
    seen: set[tuple[int, int]] = set()
    waiting, links = [(root, "")], []  # a folder has its own name, not that of a link to it: links come last
    while waiting or links:
        folder, prefix = waiting.pop() if waiting else links.pop(0)
        status = _status(folder)
        if (status.st_dev, status.st_ino) in seen:
            found.broken.append(prefix.rstrip("/"))
            continue
        seen.add((status.st_dev, status.st_ino))
        for entry in sorted(entries(folder), key=lambda e: e.name):
            if hidden(entry.name):
                found.hidden += 1
            elif _is(os.DirEntry.is_dir, entry):
                (links if entry.is_symlink() else waiting).append((Path(entry.path), f"{prefix}{entry.name}/"))
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
    except (OSError, ValueError) as error:
        raise _unlistable(folder, error) from error


def _status(folder: Path) -> os.stat_result:
    try:
        return folder.stat()
    except OSError as error:
        raise _unlistable(folder, error) from error


def _unlistable(folder: Path, error: Exception) -> DataError:
    reason = getattr(error, "strerror", None) or str(error)
    return DataError(f"{folder}: cannot be listed ({reason}); check that it is a folder you may read")


def lines(file: Path) -> list[str]:
    """The lines of a text file, or an error that names it."""
    try:
        return file.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: not a text in UTF-8 ({error.reason}); get the file again from the archive") from error


def whole_number(text: str) -> int | None:
    """The number that ``text`` is, 0 or more; None where it is something else."""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


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
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return set()


def require_path(path: Path) -> Path:
    """``path`` if it is there; otherwise an error that names what looks like it."""
    try:
        path.stat()
        return path
    except ValueError as error:
        raise DataError(f"{str(path)!r}: not a path ({error}); check it") from error
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise DataError(f"{path}: cannot be opened ({error.strerror}); check it") from error
    name, parent = path.name, path.parent
    while not parent.is_dir() and parent != parent.parent:
        name, parent = parent.name, parent.parent
    # By their stems first: that two names end in .jpg does not make them alike.
    alike = [e.name for e in entries(parent) if nearest(Path(name).stem, [Path(e.name).stem])]
    near = nearest(name, alike)
    hint = f"did you mean {str(parent / near)!r}?" if near else f"nothing like it is in {str(parent.resolve())!r}"
    raise DataError(f"{path}: no such file or folder; {hint}")
