"""It learns: every loss and scheme fits 64 images, and what is chosen is chosen on classes that were held out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import secondsight
import train_tiny
from secondsight import data
from secondsight.data.loader import read_image
from secondsight.data.transforms import Resize
from secondsight.losses import LOSSES
from secondsight.train import train
from secondsight.train.assembly import build_model, make_fabric
from secondsight.train.rundir import read_metrics
from secondsight.train.step import Network, forward_backward
from secondsight.train.validation import judge


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    return train_tiny.write_digits(tmp_path_factory.mktemp("digits") / "images", classes=8, images=8)


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def features(digits) -> tuple[torch.Tensor, torch.Tensor]:
    """64 images, 8 of each of 8 classes, as the frozen backbone sees them; and their labels."""
    torch.manual_seed(0)
    images = data.open(digits)
    pixels = torch.stack([read_image(images.path(i), Resize(16)) for i in range(len(images))])
    with torch.no_grad():
        return train_tiny.Tiny()(pixels), torch.tensor(images.require_labels())


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_loss_and_scheme_fits_64_images_completely(name, features):
    """The loop's own step, a few hundred times on one batch; only the head learns."""
    x, labels = features
    recipe = train_tiny.recipe(Path("unused"), f"loss.name={name}", "model.freeze=all", "model.norm_exponent=0.0")
    model, loss = build_model(recipe, classes=8)
    model.fit_features(x)
    optimizer = torch.optim.Adam([*model.pooling.parameters(), *model.reduction.parameters(), *loss.parameters()], 0.01)
    fabric = make_fabric(recipe)
    network = fabric.setup(Network(model, cached=True, size=(16, 16)))
    for step in range(400):
        if step % 100 == 0:
            with torch.no_grad():
                loss.on_epoch([(network(x), labels)])
        optimizer.zero_grad()
        forward_backward(fabric, network, loss, [x], labels, seed=(0, step))
        optimizer.step()
        if step % 20 == 19 and recall(model, network(x), labels) == 1.0:
            return
    assert recall(model, network(x), labels) == 1.0


def recall(model, z: torch.Tensor, labels: torch.Tensor) -> float:
    return judge(model.normalise(z.detach()), labels.numpy(), [1])["recall@1"]


def test_training_from_the_cache_is_training_without_it(digits, cache, tmp_path):
    figures = []
    for cached in ("true", "false"):
        words = ["data.transform=resize", "model.freeze=first", f"data.cache={cached}", f"data.cache_dir='{cache}'"]
        train(train_tiny.recipe(digits, *words), tmp_path / cached, quiet=True)
        rows = read_metrics(tmp_path / cached / "metrics.jsonl")
        figures.append([row["loss"] for row in rows if row["kind"] == "train"])
    assert figures[0] == pytest.approx(figures[1], rel=2e-2)  # stored in half precision


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["data.transform=resize"], "nothing of the backbone is frozen"),
        (["data.transform=random-crop", "model.freeze=first"], "random"),
    ],
)
def test_a_cache_that_cannot_be_is_an_error_that_says_why(words, reason, digits, tmp_path):
    with pytest.raises(secondsight.errors.ConfigError, match=reason):
        train(train_tiny.recipe(digits, *words, "data.cache=true"), tmp_path / "run", quiet=True)


def test_chunks_train_as_the_whole_batch_does(digits, tmp_path):
    losses = []
    for chunk in ("none", "3"):
        train(train_tiny.recipe(digits, f"train.chunk={chunk}"), tmp_path / chunk, quiet=True)
        losses.append([r["loss"] for r in read_metrics(tmp_path / chunk / "metrics.jsonl") if r["kind"] == "train"])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_chunks_refuse_a_batch_norm_that_learns(digits, tmp_path):
    with pytest.raises(secondsight.errors.ConfigError, match="freeze_norm"):
        train(train_tiny.recipe(digits, "train.chunk=3", "model.freeze_norm=false"), tmp_path / "run", quiet=True)


def test_averaged_weights_are_what_is_judged_and_kept(digits, tmp_path):
    """With a decay near 1 the average hardly leaves the start, so best/ does not either."""
    still = ["train.ema=0.999999", "optimizer.head_lr=0.1"]
    train(train_tiny.recipe(digits, "train.epochs=1", *still), tmp_path / "ema", quiet=True)
    model = secondsight.load(tmp_path / "ema" / "best")
    assert model.dim == 24


def test_validation_classes_are_never_trained_on(digits):
    from secondsight.train.sets import held_out_classes, open_sets

    for share in (0.25, 0.5):
        sets = open_sets(train_tiny.recipe(digits, f"validation.share={share}"))
        assert sets.validation is not None
        assert not set(sets.train.classes) & set(sets.validation.classes)
        assert len(sets.validation.classes) == round(8 * share)
    folds = [held_out_classes(40, 0.2, fold=fold, seed=0) for fold in range(3)]
    assert not np.array_equal(folds[1], folds[2])
