"""The page and the command, on real files."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from secondsight.cli.main import app
from secondsight.errors import ConfigError, DataError, UnknownName
from secondsight.evaluate import retrieval
from secondsight.evaluate.charts import nice_ticks
from secondsight.evaluate.examples import confusions, instructive
from secondsight.evaluate.report_page import page
from secondsight.evaluate.survey import nearest, survey

VOID = {"meta", "img", "br", "wbr", "path", "circle", "rect"}


class Parsed(HTMLParser):
    """Every tag and attribute, the visible text, and whether tags are closed in the order they were opened."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not self.open or self.open[-1] != "style":
            self.text += data


def clouds(n: int = 120, classes: int = 8, noise: float = 1.0):
    rng = np.random.default_rng(0)
    labels = np.arange(n) % classes
    return rng.normal(size=(classes, 6))[labels] + noise * rng.normal(size=(n, 6)), labels


def made(x, labels, **options) -> str:
    report = retrieval(x, labels, bootstrap=100)
    looked = survey(x, labels, report)
    examples = instructive(x, labels, report, looked)
    return page(
        report, looked, title="a <b> & c", examples=examples, confusions=confusions(labels, report, looked), **options
    )


def test_the_page_is_whole_asks_for_nothing_and_shows_the_figures():
    x, labels = clouds()
    text = made(x, labels, picture=lambda i: b"\xff\xd8jpeg")
    parsed = Parsed(text)
    report = retrieval(x, labels)
    for value in report.figures.values():
        assert f"{100 * value:.1f}" in parsed.text
    tags = {tag for tag, _ in parsed.tags}
    assert not tags & {"script", "link", "iframe", "object", "base", "form"}
    sources = [
        v for _, attributes in parsed.tags for k, v in attributes.items() if k in ("src", "href", "srcset", "data")
    ]
    assert sources
    assert all(source.startswith("data:image/jpeg;base64,") for source in sources)
    assert "url(" not in text
    assert "@import" not in text
    assert "http" not in re.sub(r"base64,[\w+/=]+", "", text)


def test_names_from_outside_cannot_become_markup():
    x, labels = clouds(noise=2.0)
    evil = np.array([f"<script>alert({label})</script>\"'" for label in labels])
    text = made(x, evil, name=lambda i: f'"><img src=x onerror="{i}">', facts={"<i>": "<u>"}, warnings=("<s>",))
    parsed = Parsed(text)
    assert not {tag for tag, _ in parsed.tags} & {"script", "i>", "u", "s", "img"}
    assert "<script>alert(1)</script>" in parsed.text.replace("\u200b", "")
    assert not any(key.startswith("on") for _, attributes in parsed.tags for key in attributes)


def test_a_survey_counts_every_pair_once_and_agrees_with_the_ranks():
    x, labels = clouds()
    report = retrieval(x, labels)
    looked = survey(x, labels, report, bins=30)
    same = (labels[:, None] == labels).sum() - len(labels)
    assert looked.positive.sum() == same
    assert looked.negative.sum() == len(labels) * (len(labels) - 1) - same
    np.testing.assert_array_equal(looked.best_positive > looked.best_negative, report.first == 1)
    assert not looked.sampled


@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
def test_similarities_of_every_metric_lie_within_the_histogram(metric):
    x, labels = clouds()
    report = retrieval(100 * x, labels, metric=metric, queries=np.arange(50), gallery=np.arange(40, 120))
    looked = survey(100 * x, labels, report, gallery=np.arange(40, 120), pairs=800)
    assert len(looked.queries) == 10
    assert looked.sampled
    own = np.isin(report.query_indices[looked.queries], np.arange(40, 120)).sum()
    assert looked.positive.sum() + looked.negative.sum() == 10 * 80 - own


def test_errors_are_wrong_rescues_are_right_and_no_class_comes_twice():
    x, labels = clouds(noise=1.5)
    report = retrieval(x, labels)
    found = instructive(x, labels, report, survey(x, labels, report), count=5)
    assert found.errors
    assert found.rescued
    for example in found.errors:
        assert example.rank > 1
        assert not example.neighbours[0].right
    for example in found.rescued:
        assert example.rank == 1
        assert example.neighbours[0].right
    for group in (found.errors, found.rescued):
        assert len({example.label for example in group}) == len(group) <= 5
        assert all(n.index != e.index for e in group for n in e.neighbours)


def test_neighbours_are_those_of_a_full_sort():
    x, _ = clouds()
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    s = unit @ unit.T
    np.fill_diagonal(s, -np.inf)
    indices, values = nearest(x, np.array([3, 50]), count=4)
    np.testing.assert_array_equal(indices, np.argsort(-s[[3, 50]], axis=1)[:, :4])
    np.testing.assert_allclose(values, -np.sort(-s[[3, 50]], axis=1)[:, :4], rtol=1e-5)


def test_a_collapsed_embedding_is_said_to_have_collapsed():
    x, labels = np.ones((40, 4)), np.arange(40) % 4
    assert "has collapsed" in Parsed(made(x, labels)).text
    assert "has collapsed" not in Parsed(made(*clouds())).text


def test_a_perfect_embedding_has_a_page_too():
    labels = np.arange(40) % 4
    text = Parsed(made(np.eye(4)[labels], labels)).text
    assert "Confident errors" not in text
    assert "100.0" in text


def test_ticks_are_round_and_inside():
    assert nice_ticks(0.13, 0.87) == [0.2, 0.4, 0.6, 0.8]
    assert nice_ticks(-3000, 10)[0] == -3000
    assert nice_ticks(1.0, 1.0) == [1.0]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Two dozen pictures in four colours, and one that is none."""
    root = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    for name, colour in {
        "red": (200, 30, 30),
        "green": (30, 180, 40),
        "blue": (40, 60, 200),
        "a&b": (90, 90, 90),
    }.items():
        (root / name).mkdir()
        for i in range(6):
            pixels = np.clip(rng.normal(colour, 40, size=(48, 40, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i}.jpg")
    (root / "red" / "broken.jpg").write_bytes(b"not a picture")
    return root


def run(*words):
    return CliRunner().invoke(app, ["evaluate", *map(str, words)], catch_exceptions=False)


def test_a_backbone_without_training_is_judged_and_what_it_saves_can_be_judged_again(photos, tmp_path):
    first = run("efficientnet-lite0", photos, "--weights", "random", "--size", 32, "--out", tmp_path / "a", "--save")
    assert first.exit_code == 0
    assert "Recall@1" in first.output
    content = json.loads((tmp_path / "a" / "report.json").read_text())
    assert (content["items"], content["queries"], content["failures"], content["classes"]) == (24, 24, 1, 4)
    assert "broken.jpg" in (tmp_path / "a" / "failures.jsonl").read_text()
    text = Parsed((tmp_path / "a" / "report.html").read_text())
    assert "1 unreadable file(s)" in text.text
    assert any(tag == "img" for tag, _ in text.tags)

    vectors, labels = tmp_path / "a" / "embeddings.npy", tmp_path / "a" / "labels.txt"
    again = run(vectors, "--labels", labels, "--out", tmp_path / "b", "--json", "--ks", "1,3")
    assert again.exit_code == 0
    second = json.loads((tmp_path / "b" / "report.json").read_text())
    assert second["figures"]["recall@1"] == content["figures"]["recall@1"]
    assert second["per_class"].keys() == {"red", "green", "blue", "a&b"}
    assert not any(tag == "img" for tag, _ in Parsed((tmp_path / "b" / "report.html").read_text()).tags)


def test_a_saved_model_and_the_run_that_holds_it_are_judged_alike(photos, tmp_path):
    from secondsight import Embedder

    model = Embedder.build(backbone="efficientnet-lite0", weights=None, pooling="average", dim=16, size=32)
    model.save(tmp_path / "run" / "best")
    outs = [tmp_path / "a", tmp_path / "b"]
    for path, out in zip((tmp_path / "run", tmp_path / "run" / "best"), outs, strict=True):
        assert run(path, photos, "--out", out, "--transform", "resize-crop").exit_code == 0
    one, two = (json.loads((out / "report.json").read_text()) for out in outs)
    assert one["figures"] == two["figures"]
    assert "crop-32" in one["transform"]
    assert run(tmp_path / "run", photos, "--out", tmp_path / "c").exit_code == 0
    assert json.loads((tmp_path / "c" / "report.json").read_text())["transform"].startswith("resize-32")


def test_a_model_can_be_judged_with_mirror_images_and_one_that_has_them_without(photos, tmp_path):
    import secondsight
    from secondsight.embed import embed

    model = secondsight.Embedder.build(backbone="efficientnet-lite0", weights=None, dim=16, size=32)
    model.save(tmp_path / "one")
    model.config = model.config.model_copy(update={"mirror": True})
    model.save(tmp_path / "both")
    images = secondsight.data.open(photos)
    for given, option, same in (("one", "--mirror", "both"), ("both", "--no-mirror", "one")):
        out = tmp_path / f"out-{given}"
        assert run(tmp_path / given, photos, option, "--save", "--out", out).exit_code == 0
        expected = embed(secondsight.load(tmp_path / same), images)
        np.testing.assert_allclose(np.load(out / "embeddings.npy"), expected.vectors, atol=1e-6)
        told = json.loads((out / "report.json").read_text())["transform"]
        assert ("mirror" in told) == (option == "--mirror")


def test_mistakes_on_the_command_line_are_explained(photos, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "labels.txt").write_text("a\n\nb\n")
    for words, kind, says in [
        (("efficientnet-lite7", photos), UnknownName, "did you mean 'efficientnet-lite"),
        (("efficientnet-lite0",), ConfigError, "give the images"),
        (
            ("efficientnet-lite0", photos, "--labels", tmp_path / "labels.txt"),
            ConfigError,
            "belongs to saved embeddings",
        ),
        (("efficientnet-lite0", photos, "--ks", "1;2"), ConfigError, "whole numbers with commas"),
        (("efficientnet-lite0", photos, "--weights", "random", "--size", 32, "--strict"), DataError, "broken.jpg"),
        ((tmp_path / "x.npy",), ConfigError, "--labels FILE"),
        ((tmp_path / "x.npy", photos), DataError, "3 rows"),
        ((tmp_path / "x.npy", "--labels", tmp_path / "labels.txt"), DataError, "line 2 is empty"),
        ((tmp_path / "x.npy", "--labels", tmp_path / "none.txt"), DataError, "none.txt"),
        ((tmp_path / "objects.npy", "--labels", tmp_path / "labels.txt"), DataError, "cannot be read"),
        ((tmp_path / "none.npy", "--labels", tmp_path / "labels.txt"), DataError, "none.npy"),
        (("./nowhere", photos), DataError, "not a model"),
    ]:
        with pytest.raises(kind, match=re.escape(says)):
            run(*words, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
