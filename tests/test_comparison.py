"""Comparing poolings: the same budget for all, results as they come, nothing run twice."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from secondsight import comparison
from secondsight.comparison import Budget, Outcome, compare, entries, markdown, plot, summary
from secondsight.errors import ConfigError, UnknownName
from secondsight.train import validation


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    for label in range(4):
        (root / str(label)).mkdir()
        for i in range(4):
            pixels = np.full((32, 32, 3), 60 * label, np.uint8) + random.integers(0, 40, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / str(label) / f"{i}.png")
    return root


@pytest.fixture(scope="module")
def finished(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("comparison") / "out"
    budget = Budget(str(folder), "efficientnet-lite0", weights="random", epochs=1, batch=(2, 2), dim=8, reduce=16)
    said: list[str] = []
    outcomes = compare(entries(["average", "jcf-4-2"]), budget, out, say=said.append)
    return out, budget, outcomes, said


def test_a_jcf_is_compared_as_the_paper_writes_it_and_with_our_start():
    both = entries(["jcf-8", "vlad-4"])
    assert [entry.title for entry in both] == ["jcf-8 (literal)", "jcf-8", "vlad-4"]
    literal, ours, _ = both
    assert literal.norm_exponent == 1.0
    assert literal.options == {"scale": 1.0, "learn_scale": False}
    assert ours.options == {"start": "average"}
    with pytest.raises(UnknownName, match="jcf"):
        entries(["jfc-3"])


def test_every_pooling_starts_and_ends_on_the_same_held_out_classes(finished):
    out, _, outcomes, said = finished
    assert [o.title for o in outcomes] == ["average", "jcf-4-2 (literal)", "jcf-4-2"]
    assert len(said) == 3
    for outcome in outcomes:
        assert {"recall@1", "recall@8", "map@r"} <= set(outcome.untrained) & set(outcome.trained)
        assert outcome.dim == 8
        assert outcome.parameters > 0
        assert outcome.gflops > 0
    assert comparison.read(out) == outcomes
    assert outcomes[0].parameters == 1280 * 8
    assert outcomes[1].parameters == 1280 * 16 + 1 + 4 * 16 + 1 + 2 * 4 * 2 + 2 * 2 * 16 * 8, (
        "reduction, codebook, mixers, uv"
    )


def test_what_is_there_is_not_run_again(finished):
    out, budget, outcomes, _ = finished
    said: list[str] = []
    assert compare(entries(["average", "jcf-4-2"]), budget, out, say=said.append) == outcomes
    assert said == []


def test_a_run_that_was_stopped_is_no_result_and_the_same_call_finishes_it(finished, tmp_path):
    _, budget, _, _ = finished
    long, chosen = replace(budget, epochs=100), entries(["jcf-4-2"])[1:]
    metrics = tmp_path / "runs" / "jcf-4-2-0" / "metrics.jsonl"

    def interrupt() -> None:
        while not (metrics.exists() and '"kind": "train"' in metrics.read_text()):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    watcher = threading.Thread(target=interrupt, daemon=True)
    with pytest.raises(KeyboardInterrupt):
        compare(chosen, long, tmp_path, say=lambda words: watcher.start())
    assert comparison.read(tmp_path) == []
    before = metrics.read_text()
    (outcome,) = compare(chosen, long, tmp_path)
    assert metrics.read_text().startswith(before), "it went on"
    assert outcome.trained["recall@1"] == json.loads(metrics.read_text().splitlines()[-1])["recall@1"]
    assert comparison.read(tmp_path) == [outcome]


def test_a_signal_in_the_last_validation_keeps_the_run_and_stops_the_comparison(finished, tmp_path, monkeypatch):
    _, budget, outcomes, _ = finished

    def judge(*given):
        if (tmp_path / "runs" / "average-0" / "best").exists():  # the start has been judged
            os.kill(os.getpid(), signal.SIGINT)
        return real(*given)

    real = validation.judge
    monkeypatch.setattr(validation, "judge", judge)
    with pytest.raises(KeyboardInterrupt):
        compare(entries(["average", "max"]), budget, tmp_path)
    assert [(o.title, o.trained) for o in comparison.read(tmp_path)] == [("average", outcomes[0].trained)]


def test_another_budget_is_another_comparison(finished):
    out, budget, _, _ = finished
    other = Budget(**{**vars(budget), "epochs": 2})
    with pytest.raises(ConfigError, match=r"epochs: 1 there, 2 asked"):
        compare(entries(["average"]), other, out)


def test_the_table_says_the_budget_and_the_plot_is_a_picture(finished, tmp_path):
    out, budget, outcomes, _ = finished
    text = (out / comparison.TABLE).read_text()
    assert text == markdown(outcomes, budget)
    assert "efficientnet-lite0 frozen" in text
    assert "1 epochs" in text
    plot(outcomes, tmp_path / "plot.svg")
    assert "</svg>" in (tmp_path / "plot.svg").read_text()


def test_the_summary_is_the_mean_over_seeds_with_its_spread():
    def outcome(seed, recall):
        figures = {"recall@1": recall}
        return Outcome("x", "x", seed, figures, figures, 1, 1.0, 1, 1, 0.0)

    (row,) = summary([outcome(0, 0.5), outcome(1, 0.6), outcome(2, 0.7)])
    assert row["recall"] == pytest.approx(60)
    assert row["spread"] == pytest.approx(10)
    assert row["seeds"] == 3


def test_results_are_plain_json_lines(finished):
    lines = (finished[0] / comparison.RESULTS).read_text().splitlines()
    assert [json.loads(line)["seed"] for line in lines] == [0, 0, 0]
