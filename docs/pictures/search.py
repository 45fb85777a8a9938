"""Draw README's picture: a search by picture, and the explanation of its first hit.

    python docs/pictures/search.py              # writes docs/pictures/search.png

Drawings that may be shown elsewhere: Google's (Noto Emoji, Apache-2.0) and Twitter's (Twemoji, CC BY 4.0). JCF is
fitted to them without labels; the query is drawn by Google, the collection by Twitter.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from secondsight import demo, explain, index
from secondsight.data.imageset import ImageSet
from secondsight.explain.drawing import draw
from secondsight.fit import fit_to
from secondsight.index.sheet import contact_sheet

HERE = Path(__file__).parent
QUERY, EMOJI, HITS, WIDTH, HEIGHT = "fox face", 160, 5, 1060, 500
INK, PAPER = "#1f2933", "#ffffff"


def copies(folder: Path, vendor: str) -> dict[str, Path]:
    """Name → a copy of the vendor's drawing, twice as large and named after what it shows."""
    found: dict[str, Path] = {}
    with demo.table(folder / "all.csv", emoji=2000).open(encoding="utf-8") as handle:
        for row in csv.DictReader(handle):
            if (path := Path(row["path"])).parent.name == vendor:
                found[row["label"]] = path
    (folder / vendor).mkdir()
    made = {}
    for name in [*list(found)[:EMOJI], QUERY]:
        made[name] = folder / vendor / f"{name}.png"
        Image.open(found[name]).convert("RGBA").resize((144, 144), Image.Resampling.LANCZOS).save(made[name])
    return made


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        queries, shown = copies(folder, "Goog"), copies(folder, "Twtr")
        model = fit_to(ImageSet("emoji", folder, tuple(map(str, [*queries.values(), *shown.values()]))))
        collection = index.create(folder / "emoji.index", model, list(shown.values()))
        hits = collection.search(str(queries[QUERY]), k=HITS)
        contact_sheet([("your picture", str(queries[QUERY]))], hits, folder / "sheet.png")
        why = draw(explain.pair(model, queries[QUERY], hits.paths[0][0]))
        _joined(Image.open(folder / "sheet.png"), why).save(target, optimize=True)


def _joined(sheet: Image.Image, why: Image.Image) -> Image.Image:
    """One above the other, each under a title."""
    titles = {"Search by picture: no labels, no training": sheet, "Why the first one matches: all of the sum": why}
    parts = {title: _fitted(part.convert("RGB")) for title, part in titles.items()}
    picture = Image.new("RGB", (WIDTH, sum(part.height + 40 for part in parts.values())), PAPER)
    pen, y = ImageDraw.Draw(picture), 0
    for title, part in parts.items():
        pen.text((24, y + 12), title, fill=INK, font=ImageFont.load_default(22))
        picture.paste(part, ((WIDTH - part.width) // 2, y + 40))
        y += part.height + 40
    return picture


def _fitted(part: Image.Image) -> Image.Image:
    scale = min(WIDTH / part.width, HEIGHT / part.height)
    return part.resize((round(part.width * scale), round(part.height * scale)), Image.Resampling.LANCZOS)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "search.png")
