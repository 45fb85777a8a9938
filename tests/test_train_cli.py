"""The command line: what a user types, and what comes back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import secondsight
import train_tiny
from secondsight.cli.main import app
from secondsight.cli.train import _recipe
from secondsight.errors import ConfigError, UnknownName
from secondsight.train import recipe_file

run = CliRunner().invoke


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    return train_tiny.write_digits(tmp_path_factory.mktemp("digits") / "images")


@pytest.fixture(scope="module")
def recipe(digits) -> Path:
    path = digits.parent / "tiny.toml"
    path.write_text(recipe_file.dumps(train_tiny.recipe(digits)))
    return path


@pytest.fixture(scope="module")
def runs(recipe, tmp_path_factory) -> list[Path]:
    """Two finished runs that differ in their loss."""
    folder = tmp_path_factory.mktemp("runs")
    for loss in ("triplet", "proxy-nca"):
        done = run(app, ["train", str(recipe), "--loss", loss, "--out", str(folder / loss)])
        assert done.exit_code == 0, done.output
    return [folder / "triplet", folder / "proxy-nca"]


def test_a_run_leaves_everything_that_was_promised(runs):
    out = runs[0]
    assert {p.name for p in out.iterdir()} == {
        "best",
        "checkpoints",
        "config.toml",
        "metrics.jsonl",
        "report.html",
        "report.json",
    }
    report = json.loads((out / "report.json").read_text())
    assert report["complete"]
    assert len(report["history"]) == 3
    assert secondsight.load(out / "best").dim == 24
    page = (out / "report.html").read_text()
    assert "held-out classes" in page
    assert "data:image/jpeg;base64" in page


def test_a_finished_run_can_be_named_to_resume_it(runs):
    done = run(app, ["train", str(runs[0]), "--resume"])
    assert done.exit_code == 0, done.output
    assert "best recall@1" in done.output


def test_compare_shows_what_differs_and_draws_it(runs, tmp_path):
    done = run(app, ["compare", *map(str, runs), str(tmp_path), "--plot", str(tmp_path / "curves.png")])
    assert done.exit_code == 0, done.output
    header = done.output[: done.output.index("─")].split()
    assert "loss." in header  # the section stands above the key
    assert "optimizer." not in header
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    rows = json.loads(run(app, ["compare", *map(str, runs), "--json"]).output)
    assert [row["loss.name"] for row in rows] == ["triplet", "proxy-nca"]
    assert all(0 <= row["recall@1"] <= 1 for row in rows)


def test_a_dry_run_says_what_the_run_would_take_and_leaves_nothing(recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(
        app, ["train", str(recipe), "--dry-run", "--set", "model.freeze=first", "--set", "data.transform=resize"]
    )
    assert done.exit_code == 0, done.output
    for word in (
        "parameters",
        "learn from",
        "40 images of 4 classes",
        "two steps",
        "GB at its peak",
        "cache",
        "15 steps",
    ):
        assert word in done.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("recipe", "name"), [([], "images-average"), (["photos"], "photos-average")])
def test_a_folder_is_enough(recipe, name, digits, tmp_path, monkeypatch):
    """No recipe: the default one, made to fit the folder. One that is named is made to fit as well."""
    monkeypatch.chdir(tmp_path)
    small = ["model.size=32", "model.backbone=tiny", "model.weights=random", "model.freeze=none", "train.epochs=1"]
    words = [piece for word in [*small, "model.dim=16", "model.reduce=16"] for piece in ("--set", word)]
    done = run(app, ["train", *recipe, "--data", str(digits), "--pooling", "average", *words])
    assert done.exit_code == 0, done.output
    assert "classes_per_batch = 6" in done.output
    assert secondsight.load(tmp_path / "runs" / name / "best").dim == 16


@pytest.mark.parametrize(
    ("backbone", "stage"),
    [("efficientnet-lite2", "blocks5"), ("vgg16", "conv4"), ("resnet50", "layer3"), ("hf:x", "all")],
)
def test_another_backbone_learns_from_a_stage_that_it_has(backbone, stage):
    from secondsight.cli.train import _recipe

    assert _recipe("photos", None, None, backbone, None, [])[0].model.freeze == stage


def test_another_pooling_learns_as_a_whole_where_the_recipes_own_has_ends():
    from secondsight.cli.train import _recipe

    def rates(pooling):
        optimizer = _recipe("quick-frozen", None, pooling, None, None, [])[0].optimizer
        return optimizer.head_lr, optimizer.end_lr

    assert rates("jcf-16") == (0.0, 5e-3)
    assert rates("average") == (None, None)


def test_without_validation_it_says_what_best_is_and_how_to_judge_it(recipe, tmp_path):
    done = run(app, ["train", str(recipe), "--set", "validation.share=0.0", "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    assert "no classes are held out (validation.share = 0): best/ is the model after the last epoch" in done.output
    assert "epoch 1 of" in done.output
    assert f"secondsight evaluate {tmp_path / 'run'} DATA" in done.output


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (["train", "photo"], UnknownName, "did you mean 'photos'"),
        (["train", "photos", "--set", "train.epoch=1"], ConfigError, "did you mean 'epochs'"),
        (["train", "photos", "--pooling", "jfc", "--data", "."], UnknownName, "did you mean 'jcf'"),
        (["train", "photos", "--loss", "tripplet"], ConfigError, "did you mean 'triplet'"),
    ],
)
def test_mistakes_are_answered_with_what_was_meant(arguments, error, words):
    done = run(app, arguments)
    assert isinstance(done.exception, error)
    assert words in str(done.exception)


def test_nothing_to_train_on_is_said():
    assert "--data ./photos" in str(run(app, ["train"]).exception)


def test_tensorboard_gets_the_curves(recipe, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = tmp_path / "run"
    done = run(app, ["train", str(recipe), "--out", str(out), "--set", "train.tensorboard=true"])
    assert done.exit_code == 0, done.output
    board = EventAccumulator(str(out / "tensorboard")).Reload()
    assert [event.step for event in board.Scalars("train/loss")] == list(range(1, 16))
    assert len(board.Scalars("validation/recall@1")) == 3


def test_a_folder_that_is_called_like_a_recipe_does_not_hide_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("paper-cub", "photos"):
        (tmp_path / name).mkdir()
    assert _recipe("paper-cub", None, None, None, None, [])[0].data.path == "cub200"
    with pytest.raises(ConfigError, match="secondsight train --data photos"):  # this recipe has no pictures of its own
        _recipe("photos", None, None, None, None, [])
