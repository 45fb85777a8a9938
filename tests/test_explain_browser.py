"""``why.html`` in a real browser: it asks no one for anything, and a place says what it matches."""

from __future__ import annotations

import shutil

import pytest

from explain_models import image, model
from secondsight import explain

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("needs a chromium to look at the page with")
    with playwright.sync_playwright() as running:
        opened = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


def test_a_place_says_what_it_matches_and_nothing_is_asked_for(browser, tmp_path):
    m = model("jcf-4", ending=4)
    why = explain.pair(m, image(m, 1), image(m, 2))
    why.save(tmp_path / "why.html")
    page = browser.new_page(viewport={"width": 1000, "height": 800})
    asked, trouble = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.goto((tmp_path / "why.html").as_uri())
    said, lines = page.locator("#said"), page.locator("svg.links g")
    assert "Move over a place" in said.inner_text()
    assert lines.count() == len(why.strongest(10, spread=True)) > 2
    top = max(abs(why.a).max(), abs(why.b).max())
    assert page.locator("#scale").inner_text() == f"(full colour: ±{top:#.2g} a place)"
    page.get_by_label("only the photos").check()
    assert not page.locator("svg.links").is_visible()
    page.get_by_label("only the photos").uncheck()
    box = page.locator(".frame").first.bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.5)  # row 2 of 3, column 2 of 4
    text = said.inner_text()
    assert "row 2, column 2" in text
    place = 1 * 4 + 1
    shown = f"{'−' if why.a.ravel()[place] < 0 else '+'}{abs(why.a.ravel()[place]):.4f}"
    assert f"share {shown}" in text
    colours = [line.get_attribute("stroke") for line in page.locator("svg.links path:nth-of-type(2)").all()]
    assert colours.count("var(--against)") == (why.links[place] < 0).any()  # never what speaks for the match alone
    assert 1 <= colours.count("var(--for)") <= 4
    page.get_by_role("button", name="Removal, exact").click()
    assert page.locator("[aria-pressed=true]").inner_text() == "Removal, exact"
    assert page.locator(".word").count() == 4
    assert not [url for url in asked if not url.startswith(("file:", "data:"))]
    assert trouble == []
