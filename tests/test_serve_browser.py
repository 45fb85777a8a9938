"""The page in a real browser: every way in, every answer, by mouse, by keyboard, on a phone, in the dark."""

from __future__ import annotations

import contextlib
import re
import shutil

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("playwright")
from playwright.sync_api import expect, sync_playwright

from serve_pictures import collection, content, running

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENT = 60_000


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A server on a port of its own, in a thread of its own."""
    from secondsight.serve.routes import application

    photos = collection(tmp_path_factory.mktemp("page"), each=4)
    with running(application([photos, photos])) as place:
        yield place


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("needs a chromium to look at the page with")
    with sync_playwright() as playing:
        camera = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
        opened = playing.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", *camera])
        yield opened
        opened.close()


@contextlib.contextmanager
def opened(browser, address, **options):
    """A page that complained about nothing and asked no other host for anything."""
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 850}, **options})
    page = context.new_page()
    page.set_default_timeout(PATIENT)
    asked, trouble = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("console", lambda said: trouble.append(said.text) if "status of 4" not in said.text else None)
    page.on("dialog", lambda dialog: trouble.append(f"a label ran as a script: {dialog.message}"))
    page.goto(address)
    page.wait_for_selector(".card")
    yield page
    assert trouble == []
    assert not [url for url in asked if not url.startswith((address, "blob:", "data:"))]
    context.close()


def picture(seed: int = 500, name: str = "a.png") -> dict:
    return {"name": name, "mimeType": "image/png", "buffer": content(seed)}


def search(page, seed: int = 500):
    page.set_input_files("#file", picture(seed))
    page.wait_for_selector(".pane:first-child .card .acts")
    expect(page.locator("#results")).not_to_have_class(re.compile("busy"), timeout=PATIENT)


def accessible(page):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def ids(page) -> list[str]:
    return page.locator(".pane:first-child .card").evaluate_all("cards => cards.map((card) => card.dataset.id)")


def test_upload_box_why_and_examples(browser, address):
    with opened(browser, address) as page:
        accessible(page)
        search(page)
        whole = ids(page)
        assert len(whole) == 13
        accessible(page)
        frame = page.locator("#frame").bounding_box()
        page.mouse.move(frame["x"] + 0.2 * frame["width"], frame["y"] + 0.2 * frame["height"])
        page.mouse.down()
        page.mouse.move(frame["x"] + 0.6 * frame["width"], frame["y"] + 0.6 * frame["height"], steps=4)
        page.mouse.up()
        expect(page.locator("#status")).to_contain_text("this part", timeout=PATIENT)
        page.click("#whole")
        expect(page.locator("#status")).to_contain_text("this picture", timeout=PATIENT)
        expect(page.locator("#parts button").first).to_be_visible(timeout=PATIENT)
        page.locator(".card .open").first.click()
        expect(page.locator("#why")).to_be_visible(timeout=PATIENT)
        expect(page.locator("#why-title")).to_contain_text("likely the same")
        score = float(page.locator("#why-similarity").inner_text())
        plus, minus = (float(page.locator(f"#why-sum .{kind}").inner_text()) for kind in ("pro", "con"))
        assert score == pytest.approx(plus - minus, abs=0.0021)
        page.locator("#why-links").fill("5")
        assert page.locator("svg.links path").count() == 10  # each with its white edge
        assert page.locator(".words .sum-row").inner_text().split() == ["together", "100", "%"]
        box = page.locator("#why figure .frame").first.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        expect(page.locator("#why-said")).to_contain_text("row 2, column 2")
        accessible(page)
        page.keyboard.press("Escape")
        expect(page.locator("#why")).to_be_hidden()
        page.get_by_role("button", name="More like this: gull").first.click()
        expect(page.locator("#examples img")).to_have_count(1)
        expect(page.locator(".pane:first-child .card")).to_have_count(12, timeout=PATIENT)
        page.get_by_role("button", name="Less like this: ").first.click()
        expect(page.locator("#examples .no img")).to_have_count(1)
        page.click("#forget")
        expect(page.locator(".pane:first-child .card")).to_have_count(13, timeout=PATIENT)
        assert ids(page) == whole


def test_parts_are_examples_too_and_say_what_they_add(browser, address):
    with opened(browser, address) as page:
        search(page)
        page.locator(".part .open").first.hover()
        page.get_by_role("button", name="More like this part: part 1").click()
        expect(page.locator("#examples .yes canvas")).to_have_count(1)
        expect(page.locator(".pane:first-child .card")).to_have_count(13, timeout=PATIENT)
        page.locator(".card .open").first.click()
        expect(page.locator("#why")).to_be_visible(timeout=PATIENT)
        expect(page.locator("#why-words")).to_contain_text("Your examples changed the order")
        for one in page.locator("#why img").all():
            expect(one).not_to_have_js_property("naturalWidth", 0)
        page.wait_for_timeout(100)
        box = page.locator("#why figure .frame").nth(1).bounding_box()
        page.mouse.move(box["x"] + 0.06 * box["width"], box["y"] + 0.06 * box["height"])
        page.mouse.down()
        page.mouse.move(box["x"] + 0.94 * box["width"], box["y"] + 0.94 * box["height"], steps=4)
        page.mouse.up()
        expect(page.locator("#part-said")).to_contain_text("(100 %)")  # a box around everything adds everything
        accessible(page)
        page.click("#part-unlike")
        expect(page.locator("#examples .no canvas")).to_have_count(1)
        page.locator(".card .open").first.click()
        expect(page.locator("#why")).to_be_visible(timeout=PATIENT)
        page.locator("#why figure").first.focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Shift+ArrowRight")
        expect(page.locator("#part-said")).to_contain_text("This part of your query adds")
        page.click("#part-search")
        expect(page.locator("#status")).to_contain_text("this part", timeout=PATIENT)


def test_searching_on_leaves_a_trail_back(browser, address):
    with opened(browser, address) as page:
        search(page)
        first = ids(page)
        page.get_by_role("button", name="Search with this:").first.click()
        expect(page.locator("#trail li")).to_have_count(2)
        expect(page.locator(".pane:first-child .card")).to_have_count(12, timeout=PATIENT)
        page.get_by_role("button", name="Back to search 1").click()
        expect(page.locator(".pane:first-child .card")).to_have_count(13, timeout=PATIENT)
        assert ids(page) == first
        page.go_back()
        expect(page.locator(".pane:first-child .card")).to_have_count(12, timeout=PATIENT)


def test_filters_empty_answers_and_errors_are_said(browser, address):
    with opened(browser, address) as page:
        page.locator("#facets button", has_text="heron").click()
        expect(page.locator(".pane:first-child .card")).to_have_count(5, timeout=PATIENT)
        expect(page.locator("#facets")).to_be_hidden()
        page.select_option("#column", "year")
        page.select_option("#sign", ">=")
        page.fill("#value", "2020")
        page.get_by_role("button", name="Filter", exact=True).click()
        expect(page.locator(".pane:first-child .card")).to_have_count(1, timeout=PATIENT)
        page.fill("#label", "no such label")
        page.keyboard.press("Enter")
        expect(page.locator(".pane:first-child .none")).to_contain_text("No picture passes the filter")
        for _ in range(2):
            page.locator("#chips button").first.click()
        expect(page.locator(".pane:first-child .card")).to_have_count(13, timeout=PATIENT)
        page.set_input_files("#file", {"name": "x.png", "mimeType": "image/png", "buffer": b"no picture"})
        expect(page.locator("#notice")).to_contain_text("cannot be decoded", timeout=PATIENT)
        expect(page.locator("#notice")).to_contain_text("Send a JPEG")
        page.click("[data-view=api]")
        expect(page.locator("#notice")).to_be_hidden()  # it was said of the search


def test_map_codewords_and_duplicates(browser, address):
    with opened(browser, address) as page:
        for view in ("map", "codewords", "duplicates"):
            page.click(f"[data-view={view}]")
            # Duplicates are laid over each other, pixel by pixel: on a busy machine that takes its time.
            expect(page.locator(f"#{view}-said")).to_have_text(re.compile(r"\d.*[^…]$"), timeout=4 * PATIENT)
            accessible(page)
        expect(page.locator(".codeword")).to_have_count(4)
        expect(page.locator(".group .name").first).to_contain_text(re.compile(r"\d+ × \d+ · .*png"))
        before = page.locator(".group").count()
        page.locator(".dismiss").first.click()
        expect(page.locator(".group")).to_have_count(before - 1)
        page.click("[data-view=map]")
        page.click("#map-lasso")
        area = page.locator("#map-canvas").bounding_box()
        corners = [(0.01, 0.01), (0.99, 0.01), (0.99, 0.99), (0.01, 0.99)]
        for number, (x, y) in enumerate(corners):
            page.mouse.move(area["x"] + x * area["width"], area["y"] + y * area["height"], steps=3)
            if number == 0:
                page.mouse.down()
        page.mouse.up()
        expect(page.locator("#map-chosen .card").nth(5)).to_be_visible(timeout=PATIENT)


def test_the_keyboard_is_enough(browser, address):
    with opened(browser, address) as page:
        page.locator(".card .open").first.focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        expect(page.locator(".pane:first-child .card")).to_have_count(12, timeout=PATIENT)
        page.locator("#draw").focus()
        page.keyboard.press("Enter")
        expect(page.locator("#status")).to_contain_text("this part", timeout=PATIENT)
        expect(page.locator("#box")).to_be_focused()
        left = page.locator("#box").bounding_box()["x"]
        page.keyboard.press("ArrowLeft")
        assert page.locator("#box").bounding_box()["x"] < left
        page.keyboard.press("Escape")
        expect(page.locator("#status")).to_contain_text("this picture", timeout=PATIENT)
        page.locator(".card .open").nth(1).focus()
        page.keyboard.press("w")
        expect(page.locator("#why")).to_be_visible(timeout=PATIENT)
        page.locator("#why figure").first.focus()
        page.keyboard.press("ArrowDown")
        expect(page.locator("#why-said")).to_contain_text("row 3, column 2")


def test_on_a_phone_in_the_dark(browser, address):
    phone = {"viewport": {"width": 390, "height": 780}, "is_mobile": True, "has_touch": True, "color_scheme": "dark"}
    with opened(browser, address, **phone) as page:
        search(page)
        accessible(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.locator(".card .open").first.tap()
        expect(page.locator("#why")).to_be_visible(timeout=PATIENT)
        accessible(page)


def test_a_photo_can_be_pasted_and_dropped(browser, address):
    make = """async () => {
        const canvas = new OffscreenCanvas(40, 40);
        canvas.getContext("2d").fillRect(5, 5, 20, 20);
        const given = new DataTransfer();
        given.items.add(new File([await canvas.convertToBlob()], "p.png", { type: "image/png" }));
        %s
    }"""
    with opened(browser, address) as page:
        page.evaluate(make % "dispatchEvent(new ClipboardEvent('paste', { clipboardData: given }));")
        expect(page.locator(".pane:first-child .card .acts").first).to_be_visible(timeout=PATIENT)
        page.click(".brand")
        expect(page.locator("#drop")).to_be_visible()
        page.evaluate(make % "dispatchEvent(new DragEvent('drop', { dataTransfer: given }));")
        expect(page.locator(".pane:first-child .card .acts").first).to_be_visible(timeout=PATIENT)


def test_a_photo_that_comes_before_the_collection_is_open_waits_for_it(browser, address):
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(PATIENT)
    held = []
    page.route("**/api/collections", lambda route: held.append(route))
    page.goto(address)
    page.set_input_files("#file", picture())
    while not held:
        page.wait_for_timeout(20)
    held[0].continue_()
    expect(page.locator(".pane:first-child .card .acts").first).to_be_visible(timeout=PATIENT)
    context.close()


def test_a_photo_can_be_taken(browser, address):
    with opened(browser, address, permissions=["camera"]) as page:
        page.click("#snap")
        expect(page.locator("#viewfinder")).to_be_visible()
        accessible(page)
        expect(page.locator("#viewfinder video")).not_to_have_js_property("videoWidth", 0)
        page.click("#shoot")
        expect(page.locator(".pane:first-child .card .acts").first).to_be_attached(timeout=PATIENT)
        assert page.evaluate("document.querySelector('#viewfinder video').srcObject") is None


def test_two_models_answer_one_query_side_by_side(browser, address):
    with opened(browser, address) as page:
        search(page)
        expect(page.locator(".pane .told")).to_have_count(2)
        for pane in (1, 2):
            expect(page.locator(f".pane:nth-child({pane}) .told")).to_contain_text("this picture", timeout=PATIENT)
            page.locator(f".pane:nth-child({pane}) .card .open").first.click()
            expect(page.locator("#why")).to_be_visible(timeout=PATIENT)
            page.keyboard.press("Escape")
        left, right = (page.locator(f".pane:nth-child({n})").bounding_box() for n in (1, 2))
        assert left["y"] == right["y"]
        assert left["x"] + left["width"] < right["x"]


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """A collection of vectors without pictures or a model."""
    import numpy as np

    from secondsight import index

    made = index.create(tmp_path_factory.mktemp("vectors") / "many.index", dim=8)
    made.add_vectors(np.random.default_rng(0).normal(size=(12_000, 8)).astype(np.float32))
    return made


def test_ten_thousand_answers_scroll_in_a_small_document(browser, vectors):
    from secondsight.serve.routes import application

    with running(application([vectors])) as place, opened(browser, place) as page:
        expect(page.locator("#notice")).to_contain_text("not by yours")  # there is no model
        page.locator(".card .open").first.click()
        expect(page.locator("#status")).to_contain_text("The nearest 200", timeout=PATIENT)
        most, last = 0, 0
        for _ in range(200):
            page.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
            page.wait_for_timeout(40)
            most = max(most, page.locator(".card").count())
            last = int(page.locator(".card").last.get_attribute("aria-posinset"))
            if last == 10_000:
                break
        assert last == 10_000
        assert most < 400
        page.locator(".card .open").last.focus()
        page.keyboard.press("Home")
        expect(page.locator(".card[aria-posinset='1'] .open")).to_be_focused()
        page.keyboard.press("ArrowDown")
        assert int(page.evaluate("document.activeElement.closest('.card').ariaPosInSet")) > 1


def test_a_collection_that_is_being_written_shows_what_comes(browser, tmp_path):
    import numpy as np

    from secondsight import index
    from secondsight.serve.routes import application

    growing = index.create(tmp_path / "growing.index", dim=4)
    with running(application([growing])) as place:
        page = browser.new_page()
        page.goto(place)
        expect(page.locator(".none")).to_contain_text("still empty")
        growing.add_vectors(np.eye(4, dtype=np.float32))
        expect(page.locator(".card")).to_have_count(4, timeout=PATIENT)
        expect(page.locator("#collection")).to_contain_text("4 pictures")
        page.close()


def test_the_api_is_described_on_a_page(browser, address):
    with opened(browser, address) as page:
        page.click("[data-view=api]")
        expect(page.locator(".verb").first).to_be_visible()
        expect(page.locator("#api-list")).to_contain_text("/api/explain")
        accessible(page)
