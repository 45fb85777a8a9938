"""Parts, movements, feedback and codewords: what is built on places keeps their sums."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_sample_image
from typer.testing import CliRunner

from explain_models import GRID, features, image, model, network
from secondsight import Embedder, data, explain
from secondsight.cli.main import app
from secondsight.errors import ConfigError, ShapeError
from secondsight.explain import from_features
from secondsight.explain.agreement import best_movement, movements
from secondsight.explain.geometry import Frame

codewords = importlib.import_module("secondsight.explain.codewords")  # the function has the same name

PLACES = GRID[0] * GRID[1]


@pytest.mark.parametrize("name", ["jcf-4", "average", "gem"])
def test_parts_share_out_the_places(name):
    m = model(name)
    here = image(m, 1)
    parts = here.parts(4)
    assert 1 <= len(parts) <= 4
    assert sum(part.mask.astype(int) for part in parts).tolist() == np.ones(GRID, int).tolist()
    assert sum(part.strength for part in parts) == pytest.approx(1)
    for part in parts:
        assert np.linalg.norm(part.vector) == pytest.approx(1, abs=1e-5)
        expected = m.pool(here.features, torch.from_numpy(part.mask).view(1, -1), grid=GRID)
        np.testing.assert_allclose(part.vector, m.normalise(expected)[0].detach().numpy(), atol=1e-5)
        assert here.frame.coverage(part.box)[part.mask].min() == pytest.approx(1)


def test_parts_find_the_regions_that_there_are():
    """Left and right halves hold two kinds of features: two parts are these halves."""
    m = model("jcf-4", ending=4)
    x = features(1)
    kinds = x[0, [0, 1]]
    half = (torch.arange(PLACES) % GRID[1]) >= GRID[1] // 2
    here = from_features(m, (kinds[half.long()] * (1 + 0.01 * x[0]))[None], frame=Frame(GRID))
    left, right = sorted(here.parts(2), key=lambda part: part.box[0])
    assert left.mask.ravel().tolist() == (~half).tolist()
    assert right.mask.ravel().tolist() == half.tolist()
    assert right.box == pytest.approx((0.5, 0, 1, 1))


def test_parts_are_the_same_every_time_and_leave_out_what_is_no_place():
    m = model("jcf-4", mirror=True)
    mask = torch.ones(PLACES, dtype=torch.bool)
    mask[[0, 5]] = False
    first, second = (image(m, 3, mask=mask).parts(5) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        assert (a.vector == b.vector).all()
    assert not sum(part.mask for part in first).ravel()[[0, 5]].any()


def test_vectors_are_the_whole_and_its_parts():
    here = image(model("jcf-4"), 1)
    found = here.vectors(5)
    assert found.shape == (5, 6)
    np.testing.assert_allclose(found[0], here.vector)
    assert here.vectors(1).shape == (1, 6)
    assert here.vectors(40).shape == (40, 6)  # more than there are places: the whole again
    with pytest.raises(ConfigError, match="at least 1"):
        here.parts(0)


@given(st.integers(-2, 2), st.integers(-3, 3), st.booleans(), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_a_moved_and_flipped_image_is_found_by_its_movement(down, right, flipped, seed):
    """Links of a place with its own image after a movement, among weak ones of chance."""
    rng = np.random.default_rng(seed)
    links = rng.normal(0, 0.002, (48, 48))
    for place in range(48):
        row, column = divmod(place, 8)
        row, column = row + down, (7 - column if flipped else column) + right
        if 0 <= row < 6 and 0 <= column < 8:
            links[place, row * 8 + column] += 0.1
    found = best_movement(links, (6, 8), (6, 8))
    assert (found.rows, found.columns, found.flipped) == (down, right, flipped)


def test_votes_for_movements_add_up_to_the_similarity():
    m = model("jcf-4", ending=1)
    why = explain.pair(m, image(m, 1), image(m, 2))
    for flipped in (False, True):
        votes, _ = movements(why.links, GRID, GRID, flipped=flipped)
        assert votes.sum() == pytest.approx(why.similarity, abs=1e-6)
    here = image(m, 4)
    itself = explain.agreement(explain.pair(m, here, here))
    assert (itself.rows, itself.columns, itself.flipped) == (0, 0, False)


def test_results_are_re_ranked_by_similarity_and_agreement():
    m = model("jcf-4")
    a, b = image(m, 1), image(m, 2)
    why = explain.pair(m, a, b)
    assert explain.rerank_score(a, b) == pytest.approx(why.similarity + explain.agreement(why).score, abs=1e-5)


def test_an_approximation_has_no_links_to_agree():
    pytest.importorskip("captum")
    m = model("max")
    with pytest.raises(ConfigError, match="no links"):
        explain.agreement(explain.pair(m, image(m, 1), image(m, 2)))


def test_weights_of_one_change_nothing_and_of_a_region_give_its_sum():
    here = image(model("jcf-4", ending=4), 1)
    np.testing.assert_allclose(explain.weighed(here, codewords=np.ones(4)), here.vector, atol=1e-6)
    inside = np.zeros(GRID)
    inside[:, :2] = 1
    np.testing.assert_allclose(
        explain.weighed(here, where=inside), here.region((0, 0, 0.5, 1), method="sum"), atol=1e-6
    )
    with pytest.raises(ShapeError, match="4 codewords"):
        explain.weighed(here, codewords=np.ones(5))
    with pytest.raises(ShapeError, match="3×4 places"):
        explain.weighed(here, where=np.ones((2, 2)))
    with pytest.raises(ConfigError, match="no codewords"):
        explain.weighed(image(model("average"), 1), codewords=np.ones(4))


def test_examples_move_a_query_towards_the_liked_and_away_from_the_disliked():
    rng = np.random.default_rng(0)
    query, liked, disliked = (v / np.linalg.norm(v, axis=-1, keepdims=True) for v in rng.normal(size=(3, 1, 16)))
    moved = explain.refined(query[0], liked, disliked)
    assert moved @ liked[0] > query[0] @ liked[0]
    assert moved @ disliked[0] < query[0] @ disliked[0] + 0.2
    np.testing.assert_allclose(explain.refined(query[0]), query[0], atol=1e-6)
    with pytest.raises(ShapeError, match="16"):
        explain.refined(query[0], np.ones((2, 3)))


# Codewords.


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """Two classes of three crops of two photographs."""
    folder = tmp_path_factory.mktemp("photos")
    for name in ("china", "flower"):
        (folder / name).mkdir()
        whole = Image.fromarray(load_sample_image(f"{name}.jpg")).resize((320, 213))
        for left in (0, 50, 100):
            whole.crop((left, 0, left + 200, 200)).save(folder / name / f"{left}.jpg")
    return folder


@pytest.fixture(scope="module")
def sighted() -> Embedder:
    torch.manual_seed(0)
    made = Embedder.build(backbone=network(), pooling="jcf-4-2", dim=16, reduce=8, size=96).eval()
    made.fit(network()(torch.randint(0, 256, (8, 3, 96, 96), dtype=torch.uint8)))
    return made


def test_codewords_share_out_the_mean_similarity_within_and_between_classes(sighted, photos):
    images = data.open(str(photos))
    survey = explain.codewords(sighted, images)
    vectors = np.stack([explain.places(sighted, images.path(i)).vector for i in range(len(images))])
    labels, similarity = images.require_labels(), vectors @ vectors.T
    same = (labels[:, None] == labels) & ~np.eye(len(labels), dtype=bool)
    other = labels[:, None] != labels
    assert sum(word.within for word in survey.words) == pytest.approx(similarity[same].mean(), abs=1e-5)
    assert sum(word.between for word in survey.words) == pytest.approx(similarity[other].mean(), abs=1e-5)
    assert sum(word.usage for word in survey.words) == pytest.approx(1)
    assert sum(word.strongest for word in survey.words) == pytest.approx(1)
    assert {word.number for word in survey.words} == set(range(4))


def test_codewords_without_maps_are_the_same_and_say_how_far_they_are(sighted, photos):
    images, looked = data.open(str(photos)), []
    whole = explain.codewords(sighted, images)
    few = explain.codewords(sighted, images, maps=0, looked=lambda *far: looked.append(far))
    assert looked == [(done, len(images)) for done in range(len(images))]
    for one, other in zip(whole.words, few.words, strict=True):
        assert (one.number, one.carried, one.patches[0].jpeg) == (other.number, other.carried, other.patches[0].jpeg)
        assert (len(one.maps), len(other.maps)) == (min(5, len(images)), 0)


def test_a_survey_of_codewords_keeps_no_features(sighted, photos, monkeypatch):
    surveyed, kept = codewords._surveyed, []
    monkeypatch.setattr(codewords, "_surveyed", lambda seen, *rest: kept.extend(seen) or surveyed(seen, *rest))
    explain.codewords(sighted, data.open(str(photos)))
    assert kept
    assert not any(here.features.untyped_storage().nbytes() for here in kept)


def test_the_codewords_page_is_one_file(sighted, photos, tmp_path):
    sighted.save(tmp_path / "model")
    out = tmp_path / "codewords.html"
    done = CliRunner().invoke(app, ["codewords", str(tmp_path / "model"), str(photos), "-o", str(out)])
    assert done.exit_code == 0, done.output
    text = out.read_text("utf-8")
    assert text.count("<article>") == 4
    assert "data:image/jpeg" in text
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", text)


def test_a_model_without_codewords_has_none_to_show(photos):
    with pytest.raises(ConfigError, match="no codewords"):
        explain.codewords(model("average"), data.open(str(photos)))
