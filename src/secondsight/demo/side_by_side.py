"""The demo's contact sheet: what is found before training and after it, side by side."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from secondsight import files
from secondsight.data.loading.thumbnail import thumbnail

CELL, GAP, EDGE, HEAD, MARK = 72, 10, 20, 34, 13
PAPER, INK, FAINT, RIGHT, WRONG, QUIET = "#ffffff", "#1f2933", "#7b8794", "#2f9e44", "#e03131", "#cbd2d9"


@dataclass(frozen=True)
class ModelAnswers:
    """One model's answers: for every query the paths that were found, and whether each is right (None: unknown)."""

    title: str
    found: Sequence[Sequence[tuple[str, bool | None]]]


def side_by_side(queries: Sequence[str], models: Sequence[ModelAnswers], path: Path) -> None:
    """Queries on the left, then each model's answers: a green tick where it is the same class, else a red cross."""
    k = max(len(row) for model in models for row in model.found)
    width = 2 * EDGE + CELL + len(models) * (3 * GAP + k * (CELL + GAP)) - GAP
    sheet = Image.new("RGB", (width, 2 * EDGE + HEAD + len(queries) * (CELL + GAP) - GAP), PAPER)
    pen = ImageDraw.Draw(sheet)
    pen.text((EDGE, EDGE), "query", fill=FAINT, font=ImageFont.load_default(15))
    for number, query in enumerate(queries):
        _cell(sheet, pen, query, EDGE, _top(number), QUIET)
    for place, model in enumerate(models):
        left = EDGE + CELL + 3 * GAP + place * (k * (CELL + GAP) + 3 * GAP)
        pen.text((left, EDGE), model.title, fill=INK, font=ImageFont.load_default(15))
        for number, row in enumerate(model.found):
            for column, (hit, right) in enumerate(row):
                colour = QUIET if right is None else RIGHT if right else WRONG
                x, y = left + column * (CELL + GAP), _top(number)
                _cell(sheet, pen, hit, x, y, colour)
                if right is not None:
                    _mark(pen, x + CELL - MARK, y + CELL - MARK, right, colour)
    with files.replacing(path) as temporary:
        sheet.save(temporary, format="PNG")


def _top(row: int) -> int:
    return EDGE + HEAD + row * (CELL + GAP)


def _cell(sheet: Image.Image, pen: ImageDraw.ImageDraw, path: str, x: int, y: int, frame: str) -> None:
    picture = Image.open(io.BytesIO(thumbnail(path, CELL)))
    sheet.paste(picture, (x + (CELL - picture.width) // 2, y + (CELL - picture.height) // 2))
    pen.rectangle((x - 3, y - 3, x + CELL + 2, y + CELL + 2), outline=frame, width=3)


def _mark(pen: ImageDraw.ImageDraw, x: int, y: int, right: bool, colour: str) -> None:
    """A tick or a cross in the corner: not everyone tells red from green."""
    pen.rectangle((x, y, x + MARK, y + MARK), fill=colour)
    if right:
        pen.line((x + 3, y + 7, x + 6, y + 10, x + 11, y + 3), fill=PAPER, width=2)
    else:
        pen.line((x + 3, y + 3, x + 10, y + 10), fill=PAPER, width=2)
        pen.line((x + 3, y + 10, x + 10, y + 3), fill=PAPER, width=2)
