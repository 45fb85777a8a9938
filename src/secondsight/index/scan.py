"""What is on the disk now: the files of a folder, or of a table, with size and time; and what changed since."""

from __future__ import annotations

import hashlib
import io
import os
import shlex
import stat
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from secondsight.data.loading.decode import FORMATS, DecodeError, read
from secondsight.data.readers import table
from secondsight.data.readers.folder import PARTS
from secondsight.data.readers.paths import hidden, is_image
from secondsight.data.readers.spec import open as open_images
from secondsight.data.readers.spec import resolve
from secondsight.errors import DataError


@dataclass(frozen=True)
class Root:
    """A folder or table that items come from. ``spec`` is absolute: an index may be updated from anywhere."""

    id: int
    spec: str
    kind: str  # "folder", or the name of a dataset's reader
    labelled: bool

    def file(self, path: str) -> str:
        """Where the file is that this root calls ``path``."""
        return os.path.join(self.base, path)

    @property
    def base(self) -> str:
        """The folder that paths are relative to."""
        if self.kind in ("folder", "list"):
            return self.spec
        return os.path.dirname(self.spec) if self.kind == "table" else self.spec.partition(":")[2]


@dataclass
class Found:
    """The files of a root: path → (size, mtime in ns); labels and columns where the root has them."""

    files: dict[str, tuple[int, int]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    columns: dict[str, dict[str, Any]] = field(default_factory=dict)
    unlisted: list[str] = field(default_factory=list)  # folders that could not be listed; "" is the root itself
    missing: list[str] = field(default_factory=list)  # listed in a table, not there
    twice: int = 0  # rows of a table that name a file once more


def absolute(spec: str | Path) -> tuple[str, str]:
    """A spec that means the same from any folder, and its kind."""
    dataset, path = resolve(spec)
    place = str(path.resolve())
    if dataset.name in ("folder", "table"):
        return place, dataset.name
    return f"{dataset.name}:{place}", dataset.name


def walk(root: Root, known: Iterable[str] = ()) -> Found:
    """What ``root`` holds now. A list of files that came from Python has only those that it had: the ``known``."""
    if root.kind == "list":
        return _stat(root, known)
    if root.kind == "folder":
        found = _folder(root.spec)
        if root.labelled:
            found.labels = folder_labels(found.files)
        return found
    return _listed(root)


def _folder(folder: str) -> Found:
    """Walk a folder through links, too; a folder that was seen already is not entered again."""
    found = Found()
    seen: set[tuple[int, int]] = set()
    waiting = [("", folder)]
    while waiting:
        prefix, place = waiting.pop()
        try:
            status = os.stat(place)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(place) as entries:
                waiting += _entries(entries, prefix, found.files)
        except OSError:
            found.unlisted.append(prefix)
    return found


def _entries(entries: Iterable[os.DirEntry], prefix: str, files: dict[str, tuple[int, int]]) -> list[tuple[str, str]]:
    """Put the pictures of one folder into ``files``; gives the folders in it."""
    folders, regular = [], stat.S_IFREG
    for entry in entries:
        name = entry.name
        try:
            if is_image(name):
                status = entry.stat()
                if stat.S_IFMT(status.st_mode) == regular:
                    files[prefix + name] = status.st_size, status.st_mtime_ns
                    continue
            if not hidden(name) and entry.is_dir():
                folders.append((f"{prefix}{name}/", entry.path))
        except OSError:  # a link that leads nowhere, or a file that went away meanwhile
            continue
    return folders


def folder_labels(files: Mapping[str, Any]) -> dict[str, str]:
    """The class of every file that is in a class folder: the first folder below those that all files share.

    >>> folder_labels(["w/a/1.jpg", "w/b/2.jpg", "w/b/c/3.jpg"])
    {'w/a/1.jpg': 'a', 'w/b/2.jpg': 'b', 'w/b/c/3.jpg': 'b'}
    """
    folders = {path: path.rpartition("/")[0] for path in files}
    parts = {folder: folder.split("/") if folder else [] for folder in set(folders.values())}
    depth = 0
    while len({tuple(p[: depth + 1]) for p in parts.values()}) == 1 and all(len(p) > depth + 1 for p in parts.values()):
        depth += 1
    tops = {p[depth].lower() for p in parts.values() if len(p) > depth}
    if len(tops) > 1 and tops <= set(PARTS) and all(len(p) > depth + 1 for p in parts.values()):
        depth += 1  # train/ and test/ are parts of a dataset, not classes
    labels = {folder: p[depth] for folder, p in parts.items() if len(p) > depth}
    return {path: labels[folder] for path, folder in folders.items() if folder in labels}


def has_labels(files: Mapping[str, Any]) -> bool:
    """Whether a folder is sorted into classes: two or more folders, and no file beside them."""
    labels = folder_labels(files)
    return len(labels) == len(files) and len(set(labels.values())) > 1


def _stat(root: Root, known: Iterable[str]) -> Found:
    found = Found()
    for path in known:
        try:
            status = os.stat(root.file(path))
        except OSError:
            found.missing.append(path)
            continue
        found.files[path] = status.st_size, status.st_mtime_ns
    return found


def _listed(root: Root) -> Found:
    images = open_images(root.spec, check=False)
    found = Found()
    extra = _columns(Path(root.spec)) if root.kind == "table" else {}
    for i, path in enumerate(images.paths):
        if path in found.files:
            found.twice += 1
            continue
        try:
            status = os.stat(images.path(i))
        except OSError:
            found.missing.append(path)
            continue
        found.files[path] = status.st_size, status.st_mtime_ns
        if images.labels is not None:
            found.labels[path] = images.classes[images.labels[i]]
        if extra:
            found.columns[path] = {name: values[i] for name, values in extra.items()}
    return found


def _columns(file: Path) -> dict[str, list[Any]]:
    """What a table says beside path and label; text that is a number becomes one where all of the column is."""
    from secondsight.index.filters import BUILT_IN, number

    columns = {}
    for name, values in table.READERS[file.suffix.lower()](file).items():
        if name.strip().lower() in BUILT_IN:
            continue
        cells = [number(v.strip()) if isinstance(v, str) else v for v in values]
        numeric = all(not isinstance(c, str) or c == "" for c in cells)
        columns[name.strip()] = [None if c == "" else c for c in cells] if numeric else [str(v) for v in values]
    return columns


@dataclass(frozen=True)
class Content:
    """What a file holds: a hash of its bytes, and how large the picture is (None where the header does not say)."""

    hash: bytes
    width: int | None
    height: int | None


def content(path: str) -> Content:
    """Read a file once for its hash and its size; ``DecodeError`` where it cannot be read at all."""
    from PIL import Image

    data = read(path)
    digest = hashlib.blake2b(data, digest_size=16).digest()
    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            warnings.simplefilter("ignore")  # how large a picture may be is for the decoder to say
            width, height = picture.size
            # Only of JPEGs: for others Pillow would decode the whole picture to find out.
            turned = picture.format == "JPEG" and picture.getexif().get(0x0112, 1) in (5, 6, 7, 8)
    except Exception:  # the decoder will say what is wrong with it, or read it nevertheless
        return Content(digest, None, None)
    return Content(digest, height, width) if turned else Content(digest, width, height)


def contents(paths: Mapping[str, str]) -> Iterator[tuple[str, Content | DecodeError]]:
    """``content`` of every file (name → where it is), with the errors in place of what could not be read."""
    for name, path in paths.items():
        try:
            yield name, content(path)
        except DecodeError as error:
            yield name, error


def unchanged(path: str, size: int, mtime: int) -> bool:
    """Whether the file is still what was scanned."""
    try:
        status = os.stat(path)
    except OSError:
        return False
    return (status.st_size, status.st_mtime_ns) == (size, mtime)


def require_root(root: Root, found: Found, known: int, index: Path) -> None:
    """A drive that is not there is no reason to forget its pictures."""
    if "" in found.unlisted or (known and not found.files):
        cure = f"secondsight update {shlex.quote(str(index))} --gone"
        raise DataError(
            f"{root.base}: not there, or empty, but the index has {known:,} pictures of it; nothing was removed. "
            f"Connect the drive, or, if they are gone for good, say so: {cure}"
        )
