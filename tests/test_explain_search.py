"""An index searched by a part of a picture, re-ranked by links, with a drawn reason."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from typer.testing import CliRunner

from explain_models import network
from secondsight import Embedder, explain, index
from secondsight.cli.main import app
from secondsight.errors import ConfigError, DataError
from secondsight.explain.drawing import overlay
from secondsight.explain.page import _image
from secondsight.index.regions import by_links, regions, why

run = CliRunner().invoke


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Eight crops of two photographs, by a random network with 4×4 places."""
    folder = tmp_path_factory.mktemp("photos")
    for name in ("china", "flower"):
        (folder / name).mkdir()
        whole = Image.fromarray(load_sample_image(f"{name}.jpg")).resize((320, 213))
        for left in (0, 35, 70, 105):
            whole.crop((left, 0, left + 200, 200)).save(folder / name / f"{left}.jpg")
    torch.manual_seed(0)
    model = Embedder.build(backbone=network(), pooling="jcf-4-2", dim=16, reduce=8, size=128).eval()
    model.fit(network()(torch.randint(0, 256, (8, 3, 128, 128), dtype=torch.uint8)))
    return index.create(tmp_path_factory.mktemp("index") / "photos.index", model, folder)


def test_a_part_is_looked_for_by_its_own_vector(found):
    item = found.items()[0]
    box = (0.1, 0.1, 0.6, 0.7)
    vectors = regions(found, [item.id, item.path], box)
    expected = explain.places(found.model(), item.path).region(box)
    np.testing.assert_allclose(vectors, [expected, expected], atol=1e-6)
    assert found.search(vectors, 3).ids.shape == (2, 3)


def test_links_re_rank_and_keep_scores(found):
    item = found.items()[2]
    hits = found.search([item.id], 7)
    again = by_links(found, [item.id], hits, 4)
    assert again.ids.shape == (1, 4)
    assert set(again.ids[0]) <= set(hits.ids[0])
    here = explain.places(found.model(), item.path)
    scores = [explain.rerank_score(here, explain.places(found.model(), path)) for path in hits.paths[0]]
    assert again.ids[0].tolist() == hits.ids[0][np.argsort(-np.array(scores), kind="stable")[:4]].tolist()
    before = dict(zip(hits.ids[0].tolist(), hits.scores[0].tolist(), strict=True))
    assert [before[i] for i in again.ids[0].tolist()] == again.scores[0].tolist()


def test_the_reason_has_the_score_of_the_hit(found):
    item = found.items()[1]
    hits = found.search([item.id], 1)
    assert why(found, item.id, int(hits.ids[0, 0])).similarity == pytest.approx(float(hits.scores[0, 0]), abs=2e-3)


def test_of_a_hit_by_a_part_that_part_is_explained(found, tmp_path):
    files = [item.path for item in found.items()]
    parted = index.create(tmp_path / "parted.index", found.model(), files, parts=4)
    region = (0.0, 0.0, 0.5, 0.6)
    hits = parted.search(files[0], 3, region=region)
    for id, score in zip(hits.ids[0].tolist(), hits.scores[0].tolist(), strict=True):
        assert why(parted, files[0], id, region=region).similarity == pytest.approx(score, abs=2e-3)


def test_a_match_is_set_apart_from_the_rest_of_the_index(found, monkeypatch, tmp_path):
    first, second = found.items()[:2]
    model = str(found.path / "model")
    asked = ["explain", first.path, second.path, "-m", model, "-o", str(tmp_path / "why.png"), "--kind", "distinct"]
    assert why(found, first.id, second.id).others is None  # six other pictures say little
    assert "too few" in str(run(app, [*asked, "--among", str(found.path)]).exception)
    assert "--among" in str(run(app, asked).exception)
    monkeypatch.setattr("secondsight.index.regions.FEW", 6)
    rest = [item.id for item in found.items()[2:]]
    for query in (first.id, first.path):
        np.testing.assert_allclose(why(found, query, second.id).others, found.vectors(rest))
    done = run(app, [*asked, "--among", str(found.path)])
    assert done.exit_code == 0, done.output
    assert "sets this match apart" in done.output


def test_a_bare_why_gets_a_name(found, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(app, ["search", str(found.path), "--why", "-k", "2", found.items()[0].path])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "why.html").is_file()


def test_a_vector_without_a_file_has_no_places(tmp_path):
    bare = index.create(tmp_path / "bare.index", dim=4)
    bare.add_vectors(np.eye(4, dtype=np.float32))
    with pytest.raises(DataError, match="without a file"):
        regions(bare, [int(bare.ids()[0])], (0, 0, 1, 1))


def test_the_verb_takes_a_box_and_draws_why(found, tmp_path):
    path, item = str(found.path), found.items()[0].path
    done = run(app, ["search", path, item, "--box", "0.1,0.1,0.6,0.7", "--why", str(tmp_path / "why.html"), "--json"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "why.html").is_file()
    answers = json.loads(done.stdout)
    assert len(answers[0]["hits"]) == 8
    linked = run(app, ["search", path, item, "--rerank", "links", "-k", "2", "--json"])
    assert linked.exit_code == 0, linked.output
    (answer,) = json.loads(linked.stdout)
    assert (len(answer["hits"]), answer["why"]) == (2, None), "none of those asked for is missing"


def test_a_part_is_drawn_as_the_part(found):
    whole = explain.places(found.model(), found.items()[0].path)
    part = whole.within((0, 0, 0.5, 1))
    nothing = np.zeros(whole.grid)
    drawn = [np.asarray(overlay(places, nothing, height=200)).astype(int) for places in (whole, part)]
    half = drawn[0].shape[1] // 2
    assert np.array_equal(drawn[0][:, : half - 5], drawn[1][:, : half - 5])
    assert drawn[1][90:110, half + 5 : half + 25].mean() > drawn[0][90:110, half + 5 : half + 25].mean() + 20
    assert sum(_image(explain.pair(found.model(), part, whole), "a", part, [])["within"]) == part.mask.sum()


def test_the_names_of_re_rankings_are_all_given(found):
    done = run(app, ["search", str(found.path), found.items()[0].path, "--rerank", "foo"])
    assert "alpha-qe, k-reciprocal, links" in str(done.exception)


@pytest.mark.parametrize(
    "options",
    [
        ["--box", "0.1,0.1,1.6,0.7"],
        ["--box", "0.1,0.1,0.1,0.7"],
        ["--box", "left"],
        ["--box", "0,0,1,1", "--rerank", "links"],
        ["--why", "why.gif"],
    ],
)
def test_what_makes_no_sense_is_refused(found, options):
    done = run(app, ["search", str(found.path), found.items()[0].path, *options])
    assert isinstance(done.exception, ConfigError), done.output
