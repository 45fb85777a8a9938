"""Recipes are strict: a mistake is an error that says where it is and what was meant."""

from __future__ import annotations

import math
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from secondsight import shipped
from secondsight.errors import ConfigError, UnknownName
from secondsight.train import assembly, recipe_file, schedule
from secondsight.train.recipe import Recipe, ScheduleSection


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("[train]\nseed = 1\nepocs = 3", "line 3", "unknown key 'train.epocs'; did you mean 'epochs'?"),
        ("[trian]\nepochs = 3", "line 1", "unknown key 'trian'; did you mean 'train'?"),
        ("epochs = 3", "line 1", "unknown key 'epochs'; it belongs in [train]"),
        ("[train]\nepochs = 'many'", "line 2", "train.epochs: Input should be a valid integer, got 'many'"),
        ("[train]\nepochs = 1.5", "line 2", "train.epochs"),
        ("[train]\nepochs = 0", "line 2", "greater than or equal to 1"),
        ("[optimizer]\nlr = true", "line 2", "optimizer.lr"),
        ("[loss]\nname = 'tripplet'", "line 2", "unknown loss 'tripplet'; did you mean 'triplet'?"),
        ("[data]\ntransform = 'rezise'", "line 2", "did you mean 'resize'?"),
        ("[optimizer]\nname = 'lion'", "line 2", "'sgd', 'adam' or 'adamw'"),
        ("[validation]\nks = [1, 10]\nmetric = 'recall@5'", "", "unknown metric 'recall@5'"),
        ("[train\nepochs = 1", "", "is not valid TOML"),
    ],
)
def test_a_mistake_in_a_recipe_is_an_error_that_names_the_place_and_the_cure(tmp_path, text, place, words):
    with pytest.raises(ConfigError) as caught:
        recipe_file.read(written(tmp_path, text))
    assert words in str(caught.value)
    assert place in str(caught.value)
    assert "recipe.toml" in str(caught.value)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("train.epoch=3", "--set train.epoch=3: unknown key 'train.epoch'; did you mean 'epochs'?"),
        ("train.epochs=three", "--set train.epochs=three: train.epochs"),
        ("nothing", "expected key=value"),
        ("train.epochs.more=1", "--set train.epochs.more"),
    ],
)
def test_a_mistake_in_an_override_names_the_override(tmp_path, word, message):
    with pytest.raises(ConfigError, match="--set") as caught:
        recipe_file.read(written(tmp_path, "[train]\nepochs = 2"), [word])
    assert message in str(caught.value)


def test_overrides_reach_every_kind_of_value(tmp_path):
    words = ["train.epochs=7", "optimizer.lr=1", "loss.name=triplet", "loss.options.margin=0.3", "model.freeze=none"]
    recipe = recipe_file.read(written(tmp_path, "[model]\nfreeze = 'stem'"), [*words, "validation.ks=[1, 5]"])
    assert (recipe.train.epochs, recipe.optimizer.lr, recipe.loss.name) == (7, 1.0, "triplet")
    assert recipe.loss.options == {"margin": 0.3}
    assert recipe.model.freeze is None
    assert recipe.validation.ks == (1, 5)


def test_a_recipe_survives_being_written_and_read():
    recipe = recipe_file.make({"loss": {"name": "bier", "options": {"sizes": [1, 2]}}, "model": {"reduce": 0}})
    assert recipe_file.make(tomllib.loads(recipe_file.dumps(recipe))) == recipe
    assert recipe_file.differences(recipe, recipe) == []


def test_recipes_are_frozen():
    with pytest.raises(Exception, match="frozen"):
        Recipe().train.epochs = 3  # type: ignore[misc]


@pytest.mark.parametrize("name", sorted(shipped.files()))
def test_every_shipped_recipe_is_valid_and_says_what_it_is(name):
    file = shipped.find(name)
    recipe_file.read(file)
    assert 20 < len(shipped.describe(file)) < 120
    assert shipped.find(str(file)) == file
    assert shipped.find(f"{name}.toml") == file
    recipe = recipe_file.read(file, ["model.weights=random"])
    model, _ = assembly.build_model(recipe, classes=100)  # its names are known: backbone, stage, pooling, options
    assert model.dim == 512


def test_the_papers_recipe_is_the_papers():
    recipe = recipe_file.read(shipped.find("paper-cub"))
    assert (recipe.model.backbone, recipe.model.norm_exponent, recipe.data.transform) == ("vgg16", 1.0, "resize")
    assert recipe.model.pooling_options == {"scale": 1.0, "learn_scale": False}
    assert (recipe.optimizer.name, recipe.optimizer.lr, recipe.batch) == ("sgd", 1e-5, 64)
    assert (recipe.loss.name, recipe.loss.options["margin"]) == ("triplet", 0.1)


def test_an_unknown_recipe_names_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'photos'"):
        shipped.find("photo")


def test_listing_recipes_does_not_load_torch():
    code = (
        "import sys; from secondsight.cli.recipes import recipes as r; r(None, False); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "photos" in done.stdout


def rate(step: int, **section) -> float:
    return schedule.factor(step, schedule=ScheduleSection(**section), steps_per_epoch=10, total=100)


def test_schedules_follow_their_formulas():
    assert [rate(s, warmup=1.0) for s in (0, 4, 9)] == pytest.approx([0.1, 0.5, 1.0])
    assert rate(55, warmup=1.0) == pytest.approx((1 + math.cos(math.pi * 0.5)) / 2)
    assert rate(99, name="cosine", warmup=0.0, final=0.1) == pytest.approx(0.1, abs=1e-3)
    assert [rate(s, name="step", warmup=0.0, every=3.0, gamma=0.1) for s in (0, 29, 30, 60)] == pytest.approx(
        [1, 1, 0.1, 0.01]
    )
    assert rate(99, name="constant", warmup=0.0) == 1.0


@pytest.mark.parametrize("name", ["hdc", "bier", "triplet"])
def test_the_model_puts_the_parts_together_as_the_loss_says(name):
    recipe = recipe_file.make({"model": {"weights": "random", "dim": 12}, "loss": {"name": name}})
    model, loss = assembly.build_model(recipe, classes=5)
    z = torch.randn(4, 12)
    expected = torch.nn.functional.normalize(loss.transform_at_test(z), dim=1)
    torch.testing.assert_close(model.normalise(z), expected)
