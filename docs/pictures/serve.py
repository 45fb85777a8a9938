"""Screenshots of the page, on emoji drawn by Google (Noto, Apache-2.0) and Twitter (Twemoji, CC BY 4.0).

    python docs/pictures/serve.py docs/pictures --keep runs/pictures

Needs the extras ``demo`` and ``serve``, playwright and a chromium. Trains as ``secondsight demo`` does, then shows
animals, plants and food that nothing was learned from. Writes serve-search.png, the same in the dark, serve-why.png and
serve-map.png. With ``--keep`` the model stays for the next time.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import shutil
import socket
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from secondsight import demo, index, load
from secondsight.train import train

DRAWN_BY = {"Goog": "Noto", "Twtr": "Twemoji"}  # drawings that may be shown elsewhere
SHOWN = ((0x1F32D, 0x1F37F), (0x1F400, 0x1F43F), (0x1F950, 0x1F96F), (0x1F980, 0x1F9AE), (0x1F9C0, 0x1F9CB))
"""Where Unicode has animals, plants and food."""
QUERY = ("bear face", "Twemoji")  # is left out of the collection
WARM = 6  # searches before the one that is shown: the first of a server are no measure of the next ones


def collection(folder: Path) -> tuple[Path, str]:
    """An index of emoji that may be shown and that nothing was learned from, with names as labels; and the query."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe = demo.emoji(folder, count=300).recipe
    assert recipe is not None
    with (folder / "emoji.csv").open(encoding="utf-8") as handle:
        learned = {row["label"] for row in csv.DictReader(handle) if row["split"] == "train"}
    best = folder / "run" / "best"
    if not best.is_dir():
        recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"size": 256})})
        train(recipe, folder / "run")
    shown = [row for row in drawings() if row[1] not in learned]
    (query,) = (path for path, name, who in shown if (name, who) == QUERY)
    with (folder / "shown.csv").open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(["path", "label", "drawn by"])
        # A bear and a bear's face show the same animal.
        writer.writerows((path, name.removesuffix(" face"), who) for path, name, who in shown if path != query)
    shutil.rmtree(folder / "emoji.index", ignore_errors=True)
    return index.create(folder / "emoji.index", load(best), str(folder / "shown.csv")).path, query


def drawings() -> Iterator[tuple[str, str, str]]:
    """Path, name in Unicode and who drew it, of the emoji in ``SHOWN``."""
    for vendor, who in DRAWN_BY.items():
        for path in sorted((demo.pictures() / vendor).glob("U+?????.png")):
            code = int(path.stem.removeprefix("U+"), 16)
            if any(first <= code <= last for first, last in SHOWN):
                yield str(path), unicodedata.name(chr(code)).lower(), who


def settled(page: Page) -> None:
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1200)


def searched(page: Page, picture: str) -> None:
    page.click(".brand")
    page.set_input_files("#file", picture)
    page.wait_for_selector(".card .acts")
    settled(page)


def shoot(address: str, picture: str, out: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playing:
        browser = playing.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 760})
        page.set_default_timeout(120_000)
        page.goto(address)
        for _ in range(WARM):
            searched(page, picture)
        searched(page, picture)
        assert "probably the same" in page.inner_text("#status"), "no picture to be proud of: choose another QUERY"
        page.mouse.move(0, 0)
        page.screenshot(path=out / "serve-search.png")
        page.emulate_media(color_scheme="dark")
        settled(page)
        page.screenshot(path=out / "serve-search-dark.png")
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 1200, "height": 870})  # to the codewords
        page.locator(".card .open").first.click()
        page.wait_for_selector("dialog[open]")
        settled(page)
        page.screenshot(path=out / "serve-why.png")
        page.keyboard.press("Escape")
        page.set_viewport_size({"width": 1200, "height": 760})
        page.click("[data-view=map]")
        page.wait_for_selector("#map-said:has-text('click one')")
        page.click("#map-in")
        settled(page)
        page.screenshot(path=out / "serve-map.png")
        browser.close()
    for file in out.glob("serve-*.png"):  # a page has few colours; those of its words must stay
        Image.open(file).convert("RGB").quantize(256, kmeans=3, dither=Image.Dither.NONE).save(file, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--keep", type=Path, help="where the model is kept for the next time")
    options = parser.parse_args()
    with contextlib.ExitStack() as held:
        folder = options.keep or Path(held.enter_context(tempfile.TemporaryDirectory()))
        path, query = collection(folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, "-m", "secondsight", "serve", str(path), "--port", str(port)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            shoot(f"http://localhost:{port}/", query, options.out)
        finally:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
