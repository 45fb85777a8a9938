"""Screenshots of the page, on emoji drawn by Google (Noto, Apache-2.0) and Twitter (Twemoji, CC BY 4.0).

    python docs/pictures/serve.py docs/pictures

Needs the extras ``demo`` and ``serve``, playwright and a chromium. Writes serve-search.png, serve-why.png and
serve-map.png.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from secondsight import demo, index, load
from secondsight.train import train

FREE = ("Goog", "Twtr")  # drawings that may be shown elsewhere
QUERY = "parrot"  # in Twitter's drawing, which is left out of the collection


def collection(folder: Path) -> tuple[Path, str]:
    """An index of emoji that may be shown and that nothing was learned from, with names as labels; and the query."""
    drawn_by_all = folder / "all"
    drawn_by_all.mkdir(parents=True, exist_ok=True)
    recipe = demo.emoji(drawn_by_all, count=300, settings=["train.epochs=2"]).recipe
    assert recipe is not None
    recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"size": 256})})
    model = load(train(recipe, folder / "run").directory / "best")
    with (drawn_by_all / "emoji.csv").open(encoding="utf-8") as handle:
        rows = [
            row for row in csv.DictReader(handle) if row["split"] == "val" and Path(row["path"]).parent.name in FREE
        ]
    with (folder / "emoji.csv").open("w", newline="", encoding="utf-8") as handle:
        writer = csv.writer(handle)
        writer.writerow(["path", "label", "drawn by"])
        drawn = {"Goog": "Noto", "Twtr": "Twemoji"}
        shown = [(row["path"], row["label"], drawn[Path(row["path"]).parent.name]) for row in rows]
        (query,) = (path for path, label, who in shown if label == QUERY and who == "Twemoji")
        writer.writerows(row for row in shown if row[0] != query)
    return index.create(folder / "emoji.index", model, str(folder / "emoji.csv")).path, query


def settled(page: Page) -> None:
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(1200)


def shoot(address: str, picture: str, out: Path) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as playing:
        browser = playing.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1200, "height": 760})
        page.set_default_timeout(120_000)
        page.goto(address)
        for _ in range(2):  # the first search of a server is no measure of the next ones
            page.click(".brand")
            page.set_input_files("#file", picture)
            page.wait_for_selector(".card .acts")
            settled(page)
        page.screenshot(path=out / "serve-search.png")
        page.locator(".card .open").first.click()
        page.wait_for_selector("dialog[open]")
        settled(page)
        page.screenshot(path=out / "serve-why.png")
        page.keyboard.press("Escape")
        page.click("[data-view=map]")
        page.wait_for_selector("#map-said:has-text('click one')")
        page.click("#map-in")
        settled(page)
        page.screenshot(path=out / "serve-map.png")
        browser.close()
    for file in out.glob("serve-*.png"):  # a page has few colours
        Image.open(file).convert("RGB").quantize(256).save(file, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, query = collection(Path(folder))
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
