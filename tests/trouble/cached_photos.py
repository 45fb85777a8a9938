"""A feature cache of small pictures, and accidents that befall its files."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from secondsight.data.cache.feature_cache import FeatureCache
from secondsight.data.loading.transforms import Resize


@dataclass
class Photos:
    paths: list[Path]
    labels: None = None

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, i: int) -> Path:
        return self.paths[i]


def make_photos(folder: Path, count: int = 16) -> Photos:
    made = Photos([folder / f"{i:03}.png" for i in range(count)])
    for i, path in enumerate(made.paths):
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
        os.utime(path, (1e9 + i, 1e9 + i))  # long ago: what was hashed is remembered
    return made


class Prefix:
    """(b, 3, 8, 8) bytes to (b, 3, 4, 4) numbers, the last image with a scale of its own; counts what it computes."""

    def __init__(self) -> None:
        self.computed = 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.computed += int(x.flatten(1).any(1).sum())  # black ones only fill up a block
        return torch.nn.functional.avg_pool2d(x.float(), 2) * 1e4


def features(photos: Photos, directory: Path, compute: Prefix | None = None, say=lambda line: None):
    cache = FeatureCache(directory, say=say)
    return cache.features(
        photos, compute or Prefix(), transform=Resize(8), key={"prefix": "p"}, batch_size=4, workers=0
    )


def overwrite(file: Path, offset: int, content: bytes) -> None:
    """Not a new file: what a bad disk or a stray write does."""
    with file.open("r+b") as handle:
        handle.seek(offset)
        handle.write(content)


def flip(file: Path, offset: int, bit: int = 3) -> None:
    overwrite(file, offset, bytes([file.read_bytes()[offset] ^ (1 << bit)]))


def damage(directory: Path, chance: random.Random) -> str:
    """Something wrong with one of the files; what it was."""
    file = chance.choice(sorted(path for path in directory.rglob("*") if path.is_file() and path.name != "lock"))
    size = file.stat().st_size
    what = chance.choice(["flip", "zero", "garbage", "cut", "grow", "remove", "empty"])
    start = chance.randrange(max(1, size))
    if what in ("flip", "zero", "garbage") and size:
        length = chance.randint(1, min(200, size - start))
        kinds = {"zero": bytes(length), "garbage": chance.randbytes(length)}
        flip(file, start, chance.randrange(8)) if what == "flip" else overwrite(file, start, kinds[what])
    elif what == "cut":
        os.truncate(file, start)
    elif what == "grow":
        file.write_bytes(file.read_bytes() + chance.randbytes(chance.randint(1, 300)))
    elif what == "remove":
        file.unlink()
    else:
        os.truncate(file, 0)
    return f"{what} {file.name} at {start}"
