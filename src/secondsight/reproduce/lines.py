"""``results/NAME.jsonl``: one line a finished run, with the recipe that it was a run of."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from xxhash import xxh3_64_hexdigest

from secondsight.errors import ConfigError
from secondsight.reproduce.tables import Table
from secondsight.train import recipe_file
from secondsight.train.recipe import FREE_KEYS, Recipe


@dataclass(frozen=True)
class Line:
    """A finished run of a table."""

    table: str
    row: str
    fold: int
    seed: int
    last: dict[str, float]  # epoch, recall@K, map@r after the last epoch
    best: dict[str, float]  # the same of the epoch that did best on the held-out classes
    history: list[dict[str, float]]
    loss: float | None  # of the last training step
    parameters: int  # after the backbone
    gflops: float  # an image, after the backbone
    ms_head: float | None  # an image, after the backbone; None, here and below: it was not recorded
    ms_per_image: float | None  # the whole model
    threads: int | None
    images: dict[str, dict[str, int]] | None  # learned from, judged by
    weights: str  # "default", "random", or the name of the file
    seconds: float | None  # None where the run was resumed: nobody held the watch all the time
    version: str | None
    native: int | None = None  # numbers that the pooling gives, before the projection to the model's
    warnings: list[str] = field(default_factory=list)
    recipe: dict[str, Any] = field(default_factory=dict)  # the table's, by dotted key, without places
    inputs: dict[str, str] = field(default_factory=dict)  # digests of images and weights

    @property
    def key(self) -> tuple[str, int, int]:
        return self.row, self.fold, self.seed


def path_of(table: str, out: Path) -> Path:
    return out / f"{table}.jsonl"


def read(path: Path) -> list[Line]:
    """The lines of a file, the last of each run; a line that was cut off while it was written is passed over."""
    return list({line.key: line for line in _all(path)}.values())


def _all(path: Path) -> Iterator[Line]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for number, text in enumerate(lines, 1):
        if text.endswith("}"):
            try:
                content = json.loads(text)
                stored = content.pop("check", None)  # lines of older versions have none
                if stored is not None and stored != _check(content):
                    raise ValueError("it is not what was written")
                yield Line(**content)
            except (ValueError, TypeError, AttributeError) as error:
                raise ConfigError(f"{path}, line {number} is not a result: {error}; delete the line") from error


def add(path: Path, line: Line) -> None:
    """Append one line in one write, so that several processes may add to one file, and wait until it is on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = json.dumps(asdict(line) | {"check": _check(asdict(line))}, ensure_ascii=False) + "\n"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        size = os.fstat(handle).st_size
        torn = size > 0 and _last_byte(handle, size) != b"\n"  # by a process that died while it wrote
        os.write(handle, ("\n" * torn + content).encode())
        os.fsync(handle)
    finally:
        os.close(handle)


def _check(content: dict[str, Any]) -> str:
    return xxh3_64_hexdigest(json.dumps(content, sort_keys=True).encode())


def _last_byte(handle: int, size: int) -> bytes:
    os.lseek(handle, size - 1, os.SEEK_SET)  # what is written goes to the end all the same
    return os.read(handle, 1)


def choices(recipe: Recipe) -> dict[str, Any]:
    """Every choice that a figure depends on, by dotted key."""
    return {key: value for key, value in recipe_file.flat(recipe).items() if key not in FREE_KEYS}


def changed(line: Line, recipe: Recipe) -> list[str]:
    """The keys in which ``recipe`` is no longer what the line was a run of; none where the line still holds.

    A key that did not exist when the line was written has changed nothing as long as it stands at its default.
    """
    now, default = choices(recipe), recipe_file.flat(Recipe())
    before = {key: value for key, value in line.recipe.items() if key not in FREE_KEYS}

    def same(key: str) -> bool:
        if key in before:
            return key in now and now[key] == before[key]
        return key in default and now[key] == default[key]

    return [
        f"{key} ({before.get(key)!r} → {now.get(key)!r})" for key in dict.fromkeys([*before, *now]) if not same(key)
    ]


def same_run(recipe: Recipe, out: Path, *, inputs: dict[str, str] | None = None) -> Line | None:
    """The newest line of any table in ``out`` that is of the very same run: tables share what they have in common.

    Without ``inputs`` one that has the same recipe, on whatever images.
    """
    for path in sorted(out.glob("*.jsonl")):
        try:
            found = list(_all(path))
        except ConfigError:  # another program's, or another version's
            continue
        for line in reversed(found):
            if line.inputs and inputs in (None, line.inputs) and not changed(line, recipe):
                return line
    return None


@dataclass(frozen=True)
class Sorted:
    """What a file of results has for a table as it is now."""

    fresh: tuple[Line, ...]
    stale: tuple[tuple[Line, str], ...]  # with what has changed
    strangers: tuple[Line, ...]  # of rows that the table no longer has


def sort(table: Table, found: Iterable[Line]) -> Sorted:
    """Tell the lines that are of today's table from those that are not."""
    fresh: list[Line] = []
    stale: list[tuple[Line, str]] = []
    strangers: list[Line] = []
    for line in found:
        row = table.row(line.row)
        if row is None:
            strangers.append(line)
        elif differing := changed(line, row.recipe(fold=line.fold, seed=line.seed)):
            stale.append((line, ", ".join(differing)))
        else:
            fresh.append(line)
    return Sorted(tuple(fresh), tuple(stale), tuple(strangers))


def missing(table: Table, fresh: Sequence[Line]) -> dict[str, list[tuple[int, int]]]:
    """Row → the (fold, seed) that the table asks for and no line has; rows that are complete are left out."""
    done = {line.key for line in fresh}
    gaps = {
        row.name: [(f, s) for s in row.seeds for f in row.folds if (row.name, f, s) not in done] for row in table.rows
    }
    return {name: runs for name, runs in gaps.items() if runs}
