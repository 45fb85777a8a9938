"""Draw what a model's codewords have specialised in: every location coloured by its dominant codeword.

    make demo
    python docs/pictures/codewords.py runs/demo/runs/trained/best docs/pictures/codewords.png [IMAGE …]

Without images: some emoji of the demo, each as Google (Noto, Apache-2.0) and Twitter (Twemoji, CC BY 4.0) draw it.
A location's colour is that of the codeword with the largest weight in h(x), and fades with the location's norm: what
is faint hardly counts in the sum.
"""

from __future__ import annotations

import argparse
import colorsys
import csv
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import secondsight
from secondsight import demo
from secondsight.pooling import JCF

SHOWN = (
    *("owl", "cat face", "mushroom", "sailboat", "strawberry"),
    *("fox face", "hamburger", "penguin", "butterfly", "snail", "tropical fish", "bicycle"),
)
FREE = ("Goog", "Twtr")  # drawings that may be shown elsewhere
CELL, GAP, ROWS = 112, 8, 5


def emoji() -> list[list[Path]]:
    """Rows of two emoji, each drawn twice."""
    drawn: dict[str, list[Path]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for row in csv.DictReader(demo.table(Path(folder) / "all.csv", emoji=2000).open(encoding="utf-8")):
            if (path := Path(row["path"])).parent.name in FREE:
                drawn[row["label"]].append(path)
    pairs = [drawn[name] for name in SHOWN if name in drawn]
    return [first + second for first, second in zip(pairs[::2], pairs[1::2], strict=False)][:ROWS]


def on_white(path: Path, size: int) -> Image.Image:
    picture = Image.open(path).convert("RGBA").resize((size, size), Image.Resampling.BICUBIC)
    white = Image.new("RGBA", picture.size, "white")
    white.alpha_composite(picture)
    return white.convert("RGB")


@torch.no_grad()
def maps(model: secondsight.Embedder, pictures: list[Image.Image]) -> tuple[np.ndarray, np.ndarray]:
    """(images, h, w): the dominant codeword of every location, and its norm as a share of the image's largest."""
    pooling = model.pooling
    if not isinstance(pooling, JCF) or pooling.codewords is None:
        raise SystemExit(f"{model.config.pooling} has no codewords; draw a jcf-N")
    images = torch.stack([torch.from_numpy(np.array(p)).permute(2, 0, 1) for p in pictures])
    x = model.eval().reduced(model.backbone(images))
    grid = model.backbone.grid(*images.shape[-2:])
    norms = x.norm(dim=-1)
    words = pooling.assignments(x)[0].argmax(-1)
    return words.reshape(-1, *grid).numpy(), (norms / norms.amax(1, keepdim=True)).reshape(-1, *grid).numpy()


def palette(words: np.ndarray) -> dict[int, np.ndarray]:
    """A colour for each codeword that occurs, the most used ones furthest apart."""
    found, counts = np.unique(words, return_counts=True)
    order = found[np.argsort(-counts)]
    golden = 0.61803398875
    return {
        int(word): np.array(colorsys.hls_to_rgb(golden * i % 1, 0.42 + 0.14 * (i % 2), 0.75))
        for i, word in enumerate(order)
    }


def coloured(words: np.ndarray, norms: np.ndarray, colours: dict[int, np.ndarray]) -> Image.Image:
    rgb = np.stack([colours[int(w)] for w in words.flat]).reshape(*words.shape, 3)
    strength = norms[..., None]
    return Image.fromarray((255 * (strength * rgb + 1 - strength)).astype(np.uint8)).resize(
        (CELL, CELL), Image.Resampling.NEAREST
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("images", type=Path, nargs="*")
    parser.add_argument("--size", type=int, default=320, help="pixels a side that the network sees (default 320)")
    options = parser.parse_args()
    rows = [options.images] if options.images else emoji()
    model = secondsight.load(options.model)
    flat = [on_white(path, options.size) for row in rows for path in row]
    words, norms = maps(model, flat)
    colours = palette(words)
    columns = max(len(row) for row in rows)
    sheet = Image.new("RGB", (columns * 2 * (CELL + GAP) + GAP, len(rows) * (CELL + GAP) + GAP), "white")
    i = 0
    for y, row in enumerate(rows):
        for x in range(len(row)):
            left, top = GAP + 2 * x * (CELL + GAP), GAP + y * (CELL + GAP)
            sheet.paste(flat[i].resize((CELL, CELL), Image.Resampling.BICUBIC), (left, top))
            sheet.paste(coloured(words[i], norms[i], colours), (left + CELL + GAP // 2, top))
            i += 1
    sheet.save(options.out, optimize=True)


if __name__ == "__main__":
    main()
