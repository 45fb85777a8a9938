"""What a report says, how sure it is, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from secondsight.errors import ConfigError, DataError, SecondsightError, ShapeError, UnknownName
from secondsight.evaluate import retrieval
from secondsight.evaluate.bootstrap import intervals


def clouds(n: int = 200, classes: int = 10, seed: int = 0):
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    return rng.normal(size=(classes, 8))[labels] + rng.normal(size=(n, 8)), labels


def test_intervals_of_a_mean_have_the_width_that_theory_gives():
    scores = (np.random.default_rng(0).random((4000, 1)) < 0.3).astype(float)
    mean = scores.mean()
    low, high = intervals(scores, np.zeros(4000), times=2000, level=0.95)[0]
    assert low < mean < high
    assert (high - low) / 2 == pytest.approx(1.96 * np.sqrt(mean * (1 - mean) / 4000), rel=0.1)


def test_classes_that_rise_and_fall_together_widen_the_interval():
    classes = np.repeat(np.arange(40), 50)
    scores = (classes % 2).astype(float)[:, None]  # a class is right as a whole or wrong as a whole
    by_query = intervals(scores, classes, times=1000, level=0.95)[0]
    by_class = intervals(scores, classes, times=1000, level=0.95, resample="classes")[0]
    ratio = np.ptp(by_class) / np.ptp(by_query)
    assert ratio == pytest.approx(np.sqrt(50), rel=0.2)


def test_the_same_seed_gives_the_same_intervals_around_every_figure():
    x, labels = clouds()
    one, two, other = (retrieval(x, labels, seed=seed, bootstrap=200) for seed in (1, 1, 2))
    assert one.intervals == two.intervals != other.intervals
    assert set(one.intervals) == set(one.figures)
    for name, (low, high) in one.intervals.items():
        assert low <= one.figures[name] <= high


def test_a_report_is_readable_by_people_and_by_programs():
    report = retrieval(*clouds(), ks=(4, 1))
    text = str(report)
    assert "Recall@1" in text
    assert "MAP@R" in text
    assert f"{100 * report.recall[1]:.1f}" in text
    assert list(report.recall) == [1, 4]
    content = json.loads(report.to_json())
    assert content["figures"]["recall@1"] == report.recall[1]
    assert content["intervals"]["map@r"] == list(report.intervals["map@r"])
    assert len(content["per_class"]) == 10
    assert "recall@1" in repr(report)


def test_progress_is_told_the_whole_of_the_work():
    shares: list[float] = []
    retrieval(*clouds(), progress=shares.append)
    assert sum(shares) == pytest.approx(1)


X, Y = clouds()
BROKEN = X.copy()
BROKEN[[3, 77], 2] = np.nan


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"labels": Y[:-1]}, ShapeError, "200 embeddings need 200 labels"),
        ({"labels": Y[:, None]}, ShapeError, "one dimension"),
        ({"labels": Y + 0.5}, ConfigError, "integers or names"),
        ({"labels": np.zeros(200, int)}, DataError, "every item has the label 0"),
        ({"labels": np.arange(200)}, DataError, "none of the 200 queries"),
        ({"embeddings": BROKEN}, DataError, "2 of 200 embeddings hold .* numbers \\(rows 3, 77\\); make them again"),
        ({"embeddings": torch.full((200, 3), torch.inf)}, DataError, "rows 0, 1, 2, 3, 4 …"),
        ({"embeddings": X[0]}, ShapeError, "got shape \\(8,\\)"),
        ({"embeddings": X[:0], "labels": []}, DataError, "nothing to evaluate"),
        ({"embeddings": X[:, :0]}, DataError, "nothing to evaluate"),
        ({"embeddings": X.astype(complex)}, ConfigError, "complex"),
        ({"embeddings": np.full((200, 2), "a")}, ConfigError, "must be numbers"),
        ({"queries": [0, 1, 0]}, DataError, "queries: index 0 is given more than once"),
        ({"gallery": [0, 200]}, DataError, "gallery: index 200 is not among 0 … 199"),
        ({"queries": [-1]}, DataError, "index -1"),
        ({"queries": []}, DataError, "no items"),
        ({"queries": [0.5]}, ConfigError, "list of indices or a mask"),
        ({"gallery": np.ones(5, bool)}, ShapeError, "mask"),
        ({"ks": ()}, ConfigError, "whole numbers ≥ 1"),
        ({"ks": (1, 0)}, ConfigError, "got 0"),
        ({"ks": (1.5,)}, ConfigError, "got 1.5"),
        ({"metric": "cosin"}, UnknownName, "did you mean 'cosine'"),
        ({"resample": "class"}, UnknownName, "did you mean 'classes'"),
        ({"bootstrap": -1}, ConfigError, "resamples ≥ 0"),
        ({"level": 95}, ConfigError, "between 0 and 1"),
    ],
)
def test_bad_input_is_named_with_its_cure(given, kind, words):
    arguments = {"embeddings": X, "labels": Y, **given}
    with pytest.raises(kind, match=words) as caught:
        retrieval(arguments.pop("embeddings"), arguments.pop("labels"), **arguments)
    assert isinstance(caught.value, SecondsightError)
