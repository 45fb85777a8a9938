"""A contact sheet: queries on the left, what was found on the right, as one picture."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from secondsight import files
from secondsight.data.loading.decode import DecodeError
from secondsight.data.loading.thumbnail import thumbnail
from secondsight.index.hits import Hits

CELL, GAP, TEXT, EDGE = 150, 12, 30, 24
INK, FAINT, PAPER, MATCH, QUIET, FOUND = "#1f2933", "#7b8794", "#ffffff", "#2f9e44", "#cbd2d9", "#e87722"


def contact_sheet(queries: Sequence[tuple[str, Any]], hits: Hits, path: str | Path) -> None:
    """Write ``path`` (PNG). ``queries`` are names and what can be drawn of them: a path, bytes, or None.

    Hits that count as a match are framed green, the others grey; where nothing matches, the sheet says so.
    """
    k = hits.ids.shape[1]
    width = 2 * EDGE + CELL + 3 * GAP + k * (CELL + GAP)
    height = 2 * EDGE + len(queries) * (CELL + TEXT + 2 * GAP)
    sheet = Image.new("RGB", (width, height), PAPER)
    pen = ImageDraw.Draw(sheet)
    for i, (name, picture) in enumerate(queries):
        y = EDGE + i * (CELL + TEXT + 2 * GAP)
        _cell(sheet, pen, picture, EDGE, y, QUIET, [Path(name).name, "query"])
        line = EDGE + CELL + GAP + GAP // 2
        pen.line((line, y, line, y + CELL), fill=QUIET, width=2)
        for j in range(k):
            x = EDGE + CELL + 3 * GAP + j * (CELL + GAP)
            if hits.ids[i, j] < 0:
                continue
            match = bool(hits.matches[i, j])
            title = hits.labels[i, j] or (Path(hits.paths[i, j]).name if hits.paths[i, j] else f"item {hits.ids[i, j]}")
            box = None if hits.boxes is None else hits.boxes[i, j]
            _cell(sheet, pen, hits.paths[i, j], x, y, MATCH if match else QUIET, [str(title), _score(hits, i, j)], box)
        if hits.why and hits.why[i] and not (hits.ids[i] >= 0).any():
            pen.text((EDGE + CELL + 3 * GAP, y + CELL // 2 - 8), hits.why[i], fill=FAINT, font=_font(15))
        elif not hits.matches[i].any():
            x = EDGE + CELL + 3 * GAP
            pen.text(
                (x, y + CELL + TEXT + 2), "nothing here matches; these are the nearest", fill=FAINT, font=_font(13)
            )
    with files.replacing(path) as temporary:
        sheet.save(temporary, format="PNG")


def _score(hits: Hits, i: int, j: int) -> str:
    chance = hits.probability[i, j]
    score = f"{hits.scores[i, j]:.3f}"
    return score if chance != chance else f"{score}   {100 * chance:.0f} %"


def _cell(
    sheet: Image.Image,
    pen: ImageDraw.ImageDraw,
    picture: Any,
    x: int,
    y: int,
    frame: str,
    words: list[str],
    box: Any = None,
) -> None:
    pen.rounded_rectangle((x - 3, y - 3, x + CELL + 2, y + CELL + 2), radius=4, outline=frame, width=3)
    small = _small(picture)
    if small is None:
        pen.text((x + 10, y + CELL // 2 - 8), "no picture", fill=FAINT, font=_font(14))
    else:
        left, top = x + (CELL - small.width) // 2, y + (CELL - small.height) // 2
        sheet.paste(small, (left, top))
        if box is not None and box[0] == box[0]:  # not NaN: a part of the picture was found
            _outline(
                pen,
                [
                    left + box[0] * small.width,
                    top + box[1] * small.height,
                    left + box[2] * small.width - 1,
                    top + box[3] * small.height - 1,
                ],
            )
    for line, (word, ink) in enumerate(zip(words, (INK, FAINT), strict=True)):
        pen.text((x, y + CELL + 5 + 15 * line), _short(pen, word), fill=ink, font=_font(12))


def _outline(pen: ImageDraw.ImageDraw, sides: list[float]) -> None:
    """Where a hit is in its picture: a line that shows on any picture, light around dark."""
    for grow, ink, width in ((1, PAPER, 4), (0, FOUND, 2)):
        pen.rectangle([sides[0] - grow, sides[1] - grow, sides[2] + grow, sides[3] + grow], outline=ink, width=width)


def _small(picture: Any) -> Image.Image | None:
    if picture is None:
        return None
    try:
        return Image.open(io.BytesIO(thumbnail(picture, CELL)))
    except DecodeError:
        return None


def _short(pen: ImageDraw.ImageDraw, word: str) -> str:
    word = "".join(c if c.isprintable() else "·" for c in word)
    if pen.textlength(word, font=_font(12)) <= CELL:
        return word
    while word and pen.textlength(word + "…", font=_font(12)) > CELL:
        word = word[:-1]
    return word + "…"


def _font(size: int) -> Any:
    return ImageFont.load_default(size)
