"""Which versions of a picture are recognised as the same picture, and which different pictures are taken for one.

    python benchmarks/duplicates.py FOLDER --images 40

Every picture is changed in nine ways and compared with the original; pictures that follow each other in the folder (in
a folder of classes: mostly of one class) are the different ones.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Iterator

import numpy as np
from PIL import Image, ImageEnhance

from measure import console, table
from secondsight.data import open as open_images
from secondsight.index.likeness import AGREE, likeness, read


def versions(image: Image.Image) -> Iterator[tuple[str, Image.Image, int]]:
    """Name, picture and JPEG quality."""
    w, h = image.size

    def part(left: float, top: float, right: float, bottom: float) -> Image.Image:
        return image.crop((int(left * w), int(top * h), int(right * w), int(bottom * h)))

    side = min(w, h)
    mirror = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    yield "two fifths of the size", image.resize((w * 2 // 5, h * 2 // 5)), 95
    yield "JPEG quality 30", image, 30
    yield "brighter by a quarter", ImageEnhance.Brightness(image).enhance(1.25), 85
    yield "mirrored", mirror, 90
    yield "cut to a square", image.crop(((w - side) // 2, (h - side) // 2, (w + side) // 2, (h + side) // 2)), 90
    yield "a part, 90 % of the sides", part(0.03, 0.07, 0.93, 0.97), 90
    yield "a part, 75 %", part(0.1, 0.15, 0.85, 0.9), 90
    yield "a part, 60 %", part(0.3, 0.1, 0.9, 0.7), 90
    yield "mirrored, 80 %", mirror.crop((int(0.1 * w), int(0.1 * h), int(0.9 * w), int(0.9 * h))), 85


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", help="pictures")
    parser.add_argument("--images", type=int, default=40)
    options = parser.parse_args()
    if options.folder is None:
        console.print("needs a folder of pictures, see --help")
        return
    images = open_images(options.folder)
    chosen = np.linspace(0, len(images) - 2, options.images).round().astype(int)
    agreement: dict[str, list[float]] = {}
    start, pairs = time.perf_counter(), 0
    for i in chosen.tolist():
        original, image = read(images.path(i)), Image.open(images.path(i)).convert("RGB")
        for name, version, quality in versions(image):
            content = io.BytesIO()
            version.save(content, "JPEG", quality=quality)
            agreement.setdefault(name, []).append(likeness(original, read(content.getvalue())))
            pairs += 1
        agreement.setdefault("another picture", []).append(likeness(original, read(images.path(i + 1))))
        pairs += 1
    rows = table(f"{len(chosen)} pictures, the same from {AGREE}", "", "taken for the same", "least", "middle", "most")
    for name, values in agreement.items():
        same = f"{100 * np.mean(np.array(values) >= AGREE):.0f} %"
        rows.add_row(name, same, *(f"{v:.2f}" for v in (min(values), float(np.median(values)), max(values))))
    console.print(rows)
    console.print(f"{1e3 * (time.perf_counter() - start) / pairs:.0f} ms a pair")


if __name__ == "__main__":
    main()
