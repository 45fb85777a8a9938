"""Which versions of a picture are recognised as the same picture, and which different pictures are taken for one.

    python benchmarks/duplicates.py FOLDER --images 40

Every picture is changed in nine ways and compared with the original; pictures that follow each other in the folder (in
a folder of classes: mostly of one class) are the different ones.

    python benchmarks/duplicates.py --vectors 100000 200000

How much memory and time it takes to find the pairs of so many clustered vectors, each size in a process of its own;
the worst case: nearly all of the eight neighbours of every vector are pairs.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageEnhance

from measure import console, in_fresh_process, peak_memory, table
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
    parser.add_argument("--vectors", type=int, nargs="+", help="find pairs among so many vectors instead")
    parser.add_argument("--pairs", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.pairs is not None:
        _pairs(options.pairs)
        return
    if options.vectors is not None:
        growth(options.vectors)
        return
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


def growth(sizes: Sequence[int]) -> None:
    """Peak memory beyond the open index, and seconds, of looking for pairs."""
    rows = table("pairs of near neighbours", "vectors", "groups", "memory", "bytes a vector", "seconds")
    for n in sizes:
        found = in_fresh_process(__file__, "--pairs", str(n))
        memory = f"{found['bytes'] / 1e6:.0f} MB"
        rows.add_row(f"{n:,}", f"{found['groups']:,}", memory, f"{found['bytes'] / n:.0f}", f"{found['seconds']:.0f}")
    console.print(rows)


def _pairs(n: int) -> None:
    from search import DIM, clustered, pieces
    from secondsight import index

    with tempfile.TemporaryDirectory(prefix="secondsight-duplicates-") as place:
        made = index.create(Path(place) / "d.index", dim=DIM)
        for part in pieces(n):
            made.add_vectors(part)
        made.build()
        made.search(clustered(1, 7))
        groups, start = [], time.perf_counter()
        used = peak_memory(lambda: groups.extend(made.duplicates(tiers=["subject"], subject=0.6)))
        print(json.dumps({"bytes": used, "groups": len(groups), "seconds": time.perf_counter() - start}))


if __name__ == "__main__":
    main()
