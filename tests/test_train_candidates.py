"""``secondsight train --data FOLDER`` looks at the folder before it settles on a pooling."""

from __future__ import annotations

import numpy as np
import pytest

from secondsight import data
from secondsight.train.candidates import OF_A_CLASS, some_classes, suited
from secondsight.train.sets import open_sets
from train_tiny import recipe, write_digits


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp("digits") / "all", classes=10, images=40)


LITERAL = ("model.pooling_options={scale = 1.0, learn_scale = false}", "model.norm_exponent=1.0")


def test_a_layer_that_starts_blind_gives_way_to_a_simpler_one(digits, tmp_path):
    heard: list[str] = []
    wanted = recipe(digits, "model.pooling=jcf-8", "model.dim=16", "model.reduce=2", *LITERAL)
    found = suited(wanted, say=heard.append)
    assert found.model.pooling in ("average", "gem")
    assert found.model.pooling_options["whiten"] == 0.25
    assert found.train == wanted.train
    assert f"{found.model.pooling} is taken" in heard[-1]


def test_a_layer_that_is_as_good_stays_as_the_recipe_has_it(digits):
    heard: list[str] = []
    wanted = recipe(
        digits,
        "model.pooling=jcf-4-2",
        "model.dim=16",
        "model.reduce=32",
        "model.norm_exponent=0.0",
        "model.pooling_options={start = 'square', power = 0.5, whiten = 0.25, width = 32}",
    )
    assert suited(wanted, say=heard.append) == wanted
    assert "jcf-4-2 is kept" in heard[-1]


def test_only_training_classes_are_looked_at(digits):
    wanted = recipe(digits, "model.dim=16")
    training = open_sets(wanted).train
    looked_at = some_classes(training)
    assert set(looked_at.classes) <= set(training.classes)
    assert np.bincount(looked_at.require_labels()).max() <= OF_A_CLASS


def test_a_handful_of_images_decides_nothing(tmp_path):
    heard: list[str] = []
    wanted = recipe(write_digits(tmp_path / "few", classes=8, images=6), "model.dim=16")
    assert suited(wanted, say=heard.append) == wanted
    assert not heard


def test_of_many_classes_some_are_looked_at_with_enough_images_each(monkeypatch, digits):
    monkeypatch.setattr("secondsight.train.candidates.IMAGES", 60)
    images = some_classes(data.open(str(digits)))
    counts = np.bincount(images.require_labels())
    assert len(counts) < 10
    assert counts.min() == OF_A_CLASS
