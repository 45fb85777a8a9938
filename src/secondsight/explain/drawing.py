"""``why.png``: both images with their maps, the strongest links between them, the sum and a legend."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from secondsight import files

if TYPE_CHECKING:
    from secondsight.explain.explanation import Explanation
    from secondsight.explain.places import Places

FOR, AGAINST = (232, 119, 34), (37, 99, 235)  # orange and blue: told apart by every eye
INK, SOFT, PAPER, LINE = (28, 30, 36), (105, 110, 122), (255, 255, 255), (226, 229, 235)
FINE = 2  # drawn this much larger, then made smaller: smooth lines
SIDE, GAP, EDGE = 480, 72, 32  # pixels of the finished picture

TITLES = {
    "share": "What the similarity is made of",
    "effect": "What removing each place takes away, estimated",
    "left out": "What removing each place takes away",
    "distinct": "What sets this match apart from others",
}
ENDS = {
    "share": ("against the match", "for the match"),
    "effect": ("removal raises it", "removal lowers it"),
    "left out": ("removal raises it", "removal lowers it"),
    "distinct": ("", "others lack it"),
}


def save(why: Explanation, path: Path, *, kind: str = "share", links: int = 10) -> None:
    """Write the picture."""
    out = io.BytesIO()
    draw(why, kind=kind, links=links).save(out, "PNG")
    files.write_bytes(path, out.getvalue())


def draw(why: Explanation, *, kind: str = "share", links: int = 10) -> Image.Image:
    """The picture of an explanation.

    Args:
        why: What to draw.
        kind: Which map lies over the images.
        links: How many of the strongest links are drawn, positive and negative alike, no two of them side by side; only
            over shares, whose parts they are.
    """
    maps = why.map("a", kind), why.map("b", kind)
    top = max(float(np.abs(values).max(initial=0.0)) for values in maps) or 1.0
    pictures = [
        overlay(here, values / top, height=SIDE * FINE)
        for here, values in zip((why.places_a, why.places_b), maps, strict=True)
    ]
    width = sum(p.width for p in pictures) + (GAP + 2 * EDGE) * FINE
    width = max(width, 860 * FINE)
    notes = why.words()[1:]
    header, footer = 104 * FINE, (80 + 17 * max(1, len(notes)) + 16) * FINE
    band = max(p.height for p in pictures)
    canvas = Image.new("RGB", (width, header + band + footer), PAPER)
    pen = ImageDraw.Draw(canvas)
    left = (width - sum(p.width for p in pictures) - GAP * FINE) // 2
    lefts = (left, left + pictures[0].width + GAP * FINE)
    origins = [(x, header + (band - p.height) // 2) for x, p in zip(lefts, pictures, strict=True)]
    for picture, origin in zip(pictures, origins, strict=True):
        canvas.paste(picture, origin)
    if kind == "share":
        canvas = _with_links(canvas, why, pictures, origins, links)
        pen = ImageDraw.Draw(canvas)
    _heading(pen, why, kind, origins[0][0], origins[1][0] + pictures[1].width)
    base = header + band
    for here, origin, picture in zip((why.places_a, why.places_b), origins, pictures, strict=True):
        pen.text(
            (origin[0], origin[1] + picture.height + 10 * FINE), _fitting(here.name, picture.width, 13), SOFT, font(13)
        )
    _legend(pen, kind, top, origins[0][0], base + 44 * FINE)
    for number, line in enumerate(notes):
        # Pillow's font has neither minus nor dash.
        pen.text((origins[0][0], base + (80 + 17 * number) * FINE), line.replace("−", "-"), SOFT, font(12))
    return canvas.resize((canvas.width // FINE, canvas.height // FINE), Image.Resampling.LANCZOS)


def overlay(here: Places, values: np.ndarray, *, height: int) -> Image.Image:
    """The whole original, paler where the network did not look or was not asked, under a map of −1 … 1 in two
    colours: ``height`` pixels high, or twice as wide where that is less.
    """
    pixels = here.pixels
    if pixels is None:
        pixels = np.full((*here.frame.size, 3), 235, np.uint8)
    scale = min(height / pixels.shape[0], 2 * height / pixels.shape[1])
    height, width = (max(1, round(scale * side)) for side in pixels.shape[:2])
    photo = np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.LANCZOS)).astype(np.float32)
    grey = photo @ np.array([0.299, 0.587, 0.114], np.float32)
    # Hardly any colour and more light: brown bark must not look like evidence, nor blue sky like the lack of it.
    calm = 0.12 * photo + 0.88 * grey[..., None]
    calm = 40 + calm * (215 / 255)
    left, top, right, bottom = here.frame.seen
    x0, x1, y0, y1 = round(left * width), round(right * width), round(top * height), round(bottom * height)
    strength = np.zeros((height, width), np.float32)
    smooth = Image.fromarray(values.astype(np.float32)).resize(
        (max(1, x1 - x0), max(1, y1 - y0)), Image.Resampling.BICUBIC
    )
    strength[y0:y1, x0:x1] = np.asarray(smooth)
    alpha = np.clip(np.abs(strength), 0, 1)[..., None] ** 0.8 * 0.82
    colour = np.where(strength[..., None] >= 0, np.array(FOR, np.float32), np.array(AGAINST, np.float32))
    mixed = calm * (1 - alpha) + colour * alpha
    unseen = np.ones((height, width), bool)
    unseen[y0:y1, x0:x1] = False
    if here.mask is not None:  # of a part of the picture the rest was not asked for
        part = Image.fromarray(here.mask.view(here.grid).cpu().numpy())
        unseen[y0:y1, x0:x1] = ~np.asarray(part.resize((x1 - x0, y1 - y0), Image.Resampling.NEAREST))
    mixed[unseen] = 0.35 * mixed[unseen] + 0.65 * 248
    return Image.fromarray(np.clip(mixed, 0, 255).astype(np.uint8))


def font(size: int):
    """Pillow's own, at ``size`` finished pixels: nothing has to be installed."""
    return ImageFont.load_default(size * FINE)


def _with_links(canvas: Image.Image, why: Explanation, pictures, origins, count: int) -> Image.Image:
    """Curves between places, drawn apart from the rest because they shine through."""
    strongest = why.strongest(count, spread=True)
    if not strongest:
        return canvas
    top = max(abs(value) for *_, value in strongest)
    layer = Image.new("RGBA", canvas.size, (255, 255, 255, 0))
    pen = ImageDraw.Draw(layer)
    first, second = zip((why.places_a, why.places_b), pictures, origins, strict=True)
    ends = _apart([[_centre(*first, i), _centre(*second, j)] for i, j, _ in strongest])
    for (start, stop), (_, _, value) in reversed(list(zip(ends, strongest, strict=True))):
        weight = abs(value) / top
        colour = (*(FOR if value > 0 else AGAINST), int(110 + 130 * weight))
        wide = round((1.2 + 2.8 * weight) * FINE)
        curve = _curve(start, stop)
        pen.line(curve, (255, 255, 255, int(60 + 80 * weight)), wide + 2 * FINE, joint="curve")
        pen.line(curve, colour, wide, joint="curve")
        for x, y in (start, stop):
            r = (2.6 + 2.4 * weight) * FINE
            pen.ellipse((x - r, y - r, x + r, y + r), fill=colour, outline=(255, 255, 255, 230), width=FINE)
    return Image.alpha_composite(canvas.convert("RGBA"), layer).convert("RGB")


def _apart(ends: list[list[tuple[float, float]]]) -> list[list[tuple[float, float]]]:
    """Links that meet in one place end one above the other, in the order of where they come from: a fan, no bundle."""
    moved = [list(pair) for pair in ends]
    for side in (0, 1):
        for place in {pair[side] for pair in ends}:
            here = sorted(
                (i for i, pair in enumerate(ends) if pair[side] == place), key=lambda i: ends[i][1 - side][::-1]
            )
            for rank, i in enumerate(here):
                moved[i][side] = (place[0], place[1] + (rank - (len(here) - 1) / 2) * 9 * FINE)
    return moved


def _centre(here: Places, picture: Image.Image, origin: tuple[int, int], place: int) -> tuple[float, float]:
    left, top, right, bottom = here.frame.place(*divmod(place, here.grid[1]))
    return origin[0] + (left + right) / 2 * picture.width, origin[1] + (top + bottom) / 2 * picture.height


def _curve(start: tuple[float, float], stop: tuple[float, float], steps: int = 40) -> list[tuple[float, float]]:
    """A line that leaves and arrives level: crossing lines stay apart longer."""
    t = np.linspace(0, 1, steps)
    bend = (stop[0] - start[0]) * 0.42
    points = [start, (start[0] + bend, start[1]), (stop[0] - bend, stop[1]), stop]
    weights = [(1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t**2, t**3]
    x = sum(w * p[0] for w, p in zip(weights, points, strict=True))
    y = sum(w * p[1] for w, p in zip(weights, points, strict=True))
    return list(zip(np.asarray(x).tolist(), np.asarray(y).tolist(), strict=True))


def _heading(pen: ImageDraw.ImageDraw, why: Explanation, kind: str, left: int, right: int) -> None:
    pen.text((left, 24 * FINE), f"{why.similarity:.3f}", INK, font(40))
    x = left + pen.textlength(f"{why.similarity:.3f}", font(40)) + 16 * FINE
    approximated = not why.exact and kind != "left out"
    pen.text((x, 28 * FINE), TITLES[kind] + (" (approximated)" if approximated else ""), INK, font(18))
    plus, minus = why.sides
    begin = "an approximated map has" if why.misses else "similarity =" if why.exact else "similarity, nearly"
    pen.text((x, 52 * FINE), f"{begin} {plus:.3f} for the match, less {minus:.3f} against it", SOFT, font(13))
    # The same two numbers as a bar: how much of the evidence is left, and how much cancels.
    y, whole = 80 * FINE, max(plus + minus, 1e-9)
    cut = left + round((right - left) * plus / whole)
    pen.rectangle((left, y, right, y + 6 * FINE), fill=AGAINST)
    pen.rectangle((left, y, cut, y + 6 * FINE), fill=FOR)


def _legend(pen: ImageDraw.ImageDraw, kind: str, top: float, left: int, y: int) -> None:
    low, high = ENDS[kind]
    small = font(12)
    x, wide, start = left, 180 * FINE, -1.0
    if low:
        pen.text((x, y), low, SOFT, small)
        x += pen.textlength(low, small) + 10 * FINE
    else:
        wide, start = wide // 2, 0.0  # nothing is negative
    for step in range(wide):
        value = start + (1 - start) * step / (wide - 1)
        alpha = abs(value) ** 0.8 * 0.82
        colour = FOR if value >= 0 else AGAINST
        shade = tuple(int(238 * (1 - alpha) + c * alpha) for c in colour)
        pen.line((x + step, y + FINE, x + step, y + 13 * FINE), fill=shade)
    x += wide + 10 * FINE
    pen.text((x, y), f"{high}   (full colour: {'±' if low else ''}{top:.3g} a place)", SOFT, small)


def _fitting(text: str, width: int, size: int) -> str:
    face = font(size)
    while len(text) > 8 and face.getlength(text) > width:
        text = "…" + text[2:]
    return text
