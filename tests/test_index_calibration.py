"""What scores mean: probabilities that are right on classes they were not fitted on, and cuts that say "nothing"."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from index_pictures import folder, small_model, unit
from secondsight import index
from secondsight.calibration import Calibration
from secondsight.errors import ConfigError
from secondsight.evaluate.calibration import EXPECTED, LIKELY, Pairs, from_chance, from_labels, isotonic
from secondsight.model import load

DIM = 16


def classes(n_classes: int, each: int, seed: int = 0, noise: float = 0.7) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_classes), each)
    vectors = rng.standard_normal((n_classes, DIM))[labels] + noise * rng.standard_normal((len(labels), DIM))
    return unit(vectors), np.array([f"class {i}" for i in labels])


def test_the_probability_is_the_share_of_pairs_of_one_class_on_other_classes_too():
    known = from_labels(*classes(60, 8))
    assert known is not None
    vectors, labels = classes(60, 8, seed=5)
    scores = vectors @ vectors.T
    above = ~np.eye(len(vectors), dtype=bool)
    same = labels[:, None] == labels[None]
    for low, high in ((0.2, 0.5), (0.5, 0.8), (0.8, 0.97)):
        said = known(scores)
        chosen = above & (said >= low) & (said < high)
        assert chosen.sum() > 50
        assert same[chosen].mean() == pytest.approx(said[chosen].mean(), abs=0.1)
    assert known.error is not None
    assert known.error < 0.06
    assert known(np.array([known.cut + 0.01]))[0] >= 0.5


def test_pairs_are_counted_as_a_loop_counts_them():
    vectors, labels = classes(4, 3)
    codes = np.unique(labels, return_inverse=True)[1]
    found = Pairs.count(vectors, codes, np.array([0, 5]))
    same = other = 0
    for i in (0, 5):
        for j in range(12):
            if i != j:
                same += codes[i] == codes[j]
                other += codes[i] != codes[j]
    assert (found.same.sum(), found.other.sum()) == (same, other)


def test_isotonic_is_monotone_and_keeps_what_is_monotone_already():
    x = np.arange(6.0)
    assert isotonic(x, x / 5, np.ones(6)).tolist() == (x / 5).tolist()
    assert isotonic(x, np.array([0, 1, 0, 1, 1, 1.0]), np.ones(6)).tolist() == [0, 0.5, 0.5, 1, 1, 1]


def test_without_labels_the_probability_says_how_many_others_are_as_similar():
    vectors, _ = classes(50, 10)
    known = from_chance(vectors, len(vectors))
    assert known is not None
    scores = vectors @ vectors.T
    np.fill_diagonal(scores, -2)
    for s in (0.3, 0.6, 0.8):
        expected = (scores >= s).sum(1).mean()
        assert known(np.array([s]))[0] == pytest.approx(1 / (1 + expected), abs=0.08)
    assert (scores >= known.cut).sum(1).mean() <= 3


def test_a_query_that_nothing_matches_gets_that_as_its_answer(tmp_path):
    vectors, labels = classes(40, 10, noise=0.3)
    rng = np.random.default_rng(9)
    for given in (labels.tolist(), None):
        made = index.create(tmp_path / f"{given is None}.index", dim=DIM)
        made.add_vectors(vectors, labels=given)
        known = made.calibrate()
        assert known is not None
        assert known.kind == ("chance" if given is None else "labels")
        strangers = made.search(unit(rng.standard_normal((50, DIM))), 5)
        assert strangers.matches.any(1).mean() < 0.2
        friends = made.search(vectors[::10], 5)
        assert friends.matches.any(1).mean() > 0.9
        assert (friends.probability[:, 0] >= friends.probability[:, 4]).all()
        assert friends.meaning == known.meaning
        assert made.info()["scores"]["cut"] == known.cut


def test_a_calibration_survives_being_written_down():
    known = from_chance(classes(10, 10)[0], 100)
    assert known is not None
    assert Calibration.from_dict(known.to_dict()) == known


def test_too_little_to_learn_from_is_nothing_learned(tmp_path):
    assert from_labels(np.eye(4), np.array(["a", "b", "c", "d"])) is None
    assert from_labels(np.eye(4), np.array(["a"] * 4)) is None
    assert from_chance(np.eye(8), 8) is None
    made = index.create(tmp_path / "few.index", dim=8)
    made.add_vectors(np.eye(8))
    assert made.calibrate() is None
    hits = made.search(np.ones(8), 3)
    assert np.isnan(hits.probability).all()
    assert hits.matches.all()


def test_an_index_without_labels_takes_the_meaning_of_scores_from_its_model(tmp_path):
    model = small_model()
    learned = from_labels(*classes(20, 10))
    assert learned is not None
    model.calibration = dataclasses.replace(learned, kind="validation")
    photos = folder(tmp_path / "photos", each=15)
    plain = index.create(tmp_path / "plain.index", model, photos, labelled=False)
    assert plain.calibration() == model.calibration
    assert "the model's validation classes" in plain.info()["scores"]["learned from"]
    labelled = index.create(tmp_path / "labelled.index", model, photos, labelled=True)
    assert labelled.info()["scores"]["learned from"] == "the labels of this collection"
    again = load(plain.path)
    assert again.calibration == model.calibration
    assert again.fingerprint() == model.fingerprint()


def test_a_calibration_that_was_changed_or_is_another_models_is_refused(tmp_path):
    model = small_model()
    model.calibration = from_labels(*classes(20, 10))
    model.save(tmp_path / "m")
    file = tmp_path / "m" / "calibration.json"
    text = file.read_text()
    for wrong in (text.replace('"pairs": ', '"pairs": 1'), "[]", "{}", text[:100]):
        file.write_text(wrong)
        with pytest.raises(ConfigError, match="remove it"):
            load(tmp_path / "m")
    small_model(1).save(tmp_path / "n")
    (tmp_path / "n" / "calibration.json").write_text(text)
    with pytest.raises(ConfigError, match="is of model"):
        load(tmp_path / "n")
    file.unlink()
    assert load(tmp_path / "m").calibration is None


def test_what_is_shown_as_a_match_and_the_number_beside_it_agree_at_every_score():
    """Between two points of the calibration, too, where the line crosses the level from which hits are matches."""
    scores = np.linspace(-1, 1, 20_001)
    vectors, labels = classes(40, 3)
    for known, level in (
        (from_labels(vectors, labels), LIKELY),
        (from_chance(vectors, 500), 1 / (1 + EXPECTED)),
        (from_chance(vectors, 3), 1 / (1 + EXPECTED)),  # so few that every hit is likely enough
    ):
        assert known is not None
        np.testing.assert_array_equal(scores >= known.cut, known(scores) >= level)
