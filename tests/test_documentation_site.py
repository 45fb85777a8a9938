"""The documentation is built with strict links, is complete, and is read and searched from the disk alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from secondsight.pooling import POOLINGS

ROOT = Path(__file__).parents[1]
pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'secondsight[dev]'")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(ROOT / "mkdocs.yml")]
    path = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": path}
    done = subprocess.run([*command, "-d", str(folder)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_no_page_asks_another_host_for_anything(site):
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        asked = re.findall(r"<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=\"((?:https?:)?//[^\"]+)", text)
        assert asked == [], page.name


def test_the_reference_has_every_verb_every_key_and_every_pooling(site):
    from secondsight.cli.main import VERBS
    from secondsight.train import Recipe

    commands = (site / "reference/commands.html").read_text("utf-8")
    assert all(f'id="{verb}"' in commands for verbs in VERBS.values() for verb in verbs)
    keys = (site / "reference/recipe-keys.html").read_text("utf-8")
    fields = [(s, k) for s, f in Recipe.model_fields.items() for k in f.annotation.model_fields]  # pyright: ignore
    assert [name for name in fields if f"<code>{name[1]}</code>" not in keys] == []
    pictures = (site / "pooling-pictures.html").read_text("utf-8")
    assert all(f"poolings/{name}.svg" in pictures for name in POOLINGS)


def test_every_recipe_key_says_what_it_is():
    sys.path.insert(0, str(ROOT / "docs/hooks"))
    try:
        import recipe_keys
    finally:
        sys.path.pop(0)
    from secondsight.train import Recipe

    for section, field in Recipe.model_fields.items():
        words = recipe_keys.comments(field.annotation)  # pyright: ignore[reportArgumentType]
        assert [f"{section}.{key}" for key, said in words.items() if not said] == []


def test_the_pictures_of_poolings_are_those_that_the_script_draws(tmp_path):
    subprocess.run([sys.executable, ROOT / "docs/pictures/poolings.py", tmp_path], check=True)
    drawn = {file.name: file.read_text("utf-8") for file in tmp_path.glob("*.svg")}
    kept = {file.name: file.read_text("utf-8") for file in (ROOT / "docs/pictures/poolings").glob("*.svg")}
    assert drawn == kept
    assert sorted(drawn) == sorted(f"{name}.svg" for name in POOLINGS)


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium here")
def test_a_page_from_the_disk_is_searched_without_a_request_and_its_equations_are_drawn(site):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page()
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto((site / "method.html").as_uri())
        assert page.locator("math").count() >= 6
        page.locator("input[name=query]").first.press_sequentially("codebook")
        page.locator(".md-search-result__link").first.wait_for(timeout=30_000)
        assert page.locator(".md-search-result__link").count() > 2
        browser.close()
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:", "about:"))] == []
