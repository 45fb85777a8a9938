"""What the catalogue knows of a root, beside what is on the disk now.

Of a million files nearly all are usually what they were. They are passed over one by one, and only the others are
remembered: time grows with all files, memory and further work with those that are not the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from secondsight.index.catalogue import restored
from secondsight.index.scan import Found, Root
from secondsight.index.store import Store


class KnownFile(NamedTuple):
    """What the catalogue knows of a file."""

    id: int
    label: str | None
    size: int
    mtime: int
    hash: bytes
    width: int | None
    height: int | None


@dataclass
class Comparison:
    """The files of a root, sorted out by size and time."""

    unchanged: int = 0
    known: dict[str, KnownFile] = field(default_factory=dict)  # files of the catalogue that are not the same any more
    fresh: list[str] = field(default_factory=list)  # on the disk, and to be read
    relabelled: list[str] = field(default_factory=list)  # the same, but for what a folder's name or a table says
    gone: list[str] = field(default_factory=list)  # not on the disk any more
    failed: dict[str, str] = field(default_factory=dict)  # could not be decoded before and have not changed: → cause


def compare(store: Store, root: Root, found: Found) -> Comparison:
    """Sort out the files of ``root``: what is in the catalogue, and what was ``found``."""
    out = Comparison()
    files, labels, columns = found.files, found.labels, found.columns
    watched, seen = root.kind != "list", set()
    with store.catalogue.reading() as database:
        names = list(database.execute("SELECT name, field FROM columns")) if root.kind == "table" else []
        extra = "".join(f", {field}" for _, field in names)
        rows = database.execute(
            f"SELECT path, id, label, size, mtime, hash, width, height{extra} FROM items WHERE root = ?", (root.id,)
        )
        for row in rows:
            path = row[0] if type(row[0]) is str else restored(row[0]) or ""
            status = files.get(path)
            if status is None:
                out.gone.append(path)
            elif status != row[3:5]:
                out.fresh.append(path)
            elif watched and (
                (row[2] != labels.get(path) and restored(row[2]) != labels.get(path))
                or (columns and _other(names, row[8:], columns.get(path)))
            ):
                out.relabelled.append(path)
            else:
                out.unchanged += 1
                seen.add(path)
                continue
            out.known[path] = KnownFile._make(row[1:8])
        failures = database.execute("SELECT path, size, mtime, cause FROM failures WHERE root = ?", (root.id,))
        aside = {restored(path) or "": (size, mtime, cause) for path, size, mtime, cause in failures}
    if len(seen) < len(files):
        _unknown(out, found, seen, aside)
    return out


def _unknown(out: Comparison, found: Found, seen: set[str], aside: Mapping[str, tuple[int, int, str]]) -> None:
    """Files that the catalogue does not have: to be read, unless that has been in vain before."""
    for path, status in found.files.items():
        if path not in seen and path not in out.known:
            if path in aside and aside[path][:2] == status:
                out.failed[path] = aside[path][2]
            else:
                out.fresh.append(path)
    out.fresh.sort()


def _other(names: list[tuple[str, str]], values: tuple[Any, ...], now: Mapping[str, Any] | None) -> bool:
    """Whether a table says something else than it did."""
    before = dict(zip((name for name, _ in names), values, strict=True))
    return any(before.get(name) != value for name, value in (now or {}).items())
