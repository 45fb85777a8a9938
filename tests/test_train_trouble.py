"""Trouble is said in words, with what to try; nothing that was trained is lost."""

from __future__ import annotations

import os
import resource
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import secondsight
import train_tiny
from secondsight import losses
from secondsight.backbones import BACKBONES
from secondsight.errors import ConfigError, DataError, RunError
from secondsight.train import checkpoint, train
from secondsight.train.health import STUCK, Watch, chance_recall, mean_cosine
from secondsight.train.run_directory import read_metrics
from secondsight.train.sets import adapted
from secondsight.train.step import Outcome


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    return train_tiny.write_digits(tmp_path_factory.mktemp("digits") / "images")


def outcome(z: torch.Tensor, loss: float = 1.0) -> Outcome:
    return Outcome(loss, z, torch.zeros_like(z))


def test_mean_cosine_is_the_mean_over_pairs():
    z = torch.randn(7, 5)
    u = torch.nn.functional.normalize(z, dim=1)
    pairs = (u @ u.T)[~torch.eye(7, dtype=torch.bool)]
    assert mean_cosine(z) == pytest.approx(float(pairs.mean()), abs=1e-6)


def test_a_collapsed_embedding_is_said_once_in_words():
    watch = Watch(losses.build("triplet", dim=8, classes=4))
    point = torch.ones(6, 8) + 1e-4 * torch.randn(6, 8)
    said = [words for step in range(50) for words in watch.step(outcome(point), step=step)]
    assert len(said) == 1
    assert "collapsing" in said[0]
    assert "learning rate" in said[0]
    assert not Watch(losses.build("triplet", dim=8, classes=4)).step(outcome(torch.randn(6, 8)), step=1)


def test_a_loss_that_stays_at_its_margin_is_said():
    watch = Watch(losses.build("triplet", dim=8, classes=4, margin=0.2))
    said = [words for step in range(STUCK) for words in watch.step(outcome(torch.randn(6, 8), 0.2), step=step)]
    assert len(said) == 1
    assert "margin (0.2)" in said[0]


def test_recall_at_chance_or_halved_is_said():
    labels = np.repeat(np.arange(20), 5)
    watch = Watch(losses.build("triplet", dim=8, classes=4))
    assert chance_recall(labels) == pytest.approx(4 / 99)
    assert watch.validation({"recall@1": 0.6}, labels, k=1, step=1) == []
    assert "recall@1 at step 2 fell to 0.200" in watch.validation({"recall@1": 0.2}, labels, k=1, step=2)[0]
    assert "chance" in watch.validation({"recall@1": 0.05}, labels, k=1, step=3)[0]
    two = np.repeat(np.arange(2), 20)  # chance is 0.487: twice as much is more than perfect
    assert Watch(losses.build("triplet", dim=8, classes=4)).validation({"recall@1": 0.925}, two, k=1, step=1) == []


def test_chance_recall_is_what_random_orders_have():
    rng = np.random.default_rng(0)
    labels = np.array([0] * 5 + [1] * 3 + [2] * 8)
    for k in (1, 3):
        hits = []
        for _ in range(4000):
            query = rng.integers(16)
            others = rng.permutation(np.delete(np.arange(16), query))[:k]
            hits.append((labels[others] == labels[query]).any())
        assert chance_recall(labels, k) == pytest.approx(np.mean(hits), abs=0.03)


class Failing(torch.nn.Module):
    """Gives NaN from its 13th training step on: in the third epoch of five steps."""

    steps = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += self.training
        return x * torch.nan if self.steps > 12 else x


def test_a_loss_that_is_not_a_number_stops_with_step_and_images_and_keeps_the_checkpoints(
    digits, tmp_path, monkeypatch
):
    def failing() -> train_tiny.Tiny:
        backbone = train_tiny.Tiny()
        backbone.second.append(Failing())
        return backbone

    monkeypatch.setitem(BACKBONES, "failing", failing)
    recipe = train_tiny.recipe(digits, "model.backbone=failing", "train.epochs=4")
    with pytest.raises(RunError, match=r"the loss became nan at step 12 \(epoch 2\)") as caught:
        train(recipe, tmp_path / "run", quiet=True)
    assert str(caught.value).count(".png") == 8  # the whole batch
    assert "Nothing was updated with it, and the checkpoints are sound" in str(caught.value)
    kept = checkpoint.listing(tmp_path / "run" / "checkpoints")[0]
    assert all(tensor.isfinite().all() for tensor in load_file(kept / checkpoint.TENSORS).values())


def test_the_images_that_poison_a_batch_are_named(digits):
    from secondsight.data import open as open_images
    from secondsight.train.health import check_finite

    images = open_images(digits)
    z = torch.randn(4, 3)
    z[2, 1] = torch.nan
    with pytest.raises(RunError) as caught:
        check_finite(outcome(z, float("nan")), images=images, batch=[0, 5, 9, 11], epoch=1, step=7)
    assert str(images.path(9)) in str(caught.value)
    assert str(images.path(5)) not in str(caught.value)


def folder(root: Path, counts: list[int]) -> Path:
    for label, count in enumerate(counts):
        (root / f"class{label}").mkdir(parents=True)
        for i in range(count):
            Image.fromarray(np.full((16, 16, 3), 20 * label + i, np.uint8)).save(root / f"class{label}" / f"{i}.png")
    return root


@pytest.mark.parametrize(
    ("counts", "overrides", "words"),
    [
        ([6], ["validation.share=0.0"], "retrieval needs two or more"),
        ([6], [], "both need two"),
        ([1, 1, 1, 1], [], "none of its 4 classes has 2 images"),
        ([1] * 4 + [4] * 3, [], "both need two"),
        ([3] * 4 + [1] * 4, ["data.min_images=1"], "one image; retrieval needs two"),
        ([4] * 6, ["train.classes_per_batch=5"], "--set train.classes_per_batch=3"),
        ([4] * 8, ["train.images_per_class=9"], "--set train.images_per_class=4"),
        ([4] * 8, ["validation.share=0.9"], "both need two"),
    ],
)
def test_images_that_cannot_fill_a_batch_are_an_error_with_a_cure(counts, overrides, words, tmp_path):
    with pytest.raises(DataError) as caught:
        train(train_tiny.recipe(folder(tmp_path / "images", counts), *overrides), tmp_path / "run", quiet=True)
    assert words in str(caught.value)


def test_a_recipe_without_images_says_how_to_give_some(tmp_path):
    with pytest.raises(ConfigError, match="--data"):
        train(train_tiny.recipe(Path("x"), "data.path=''"), tmp_path / "run", quiet=True)


def test_the_default_recipe_is_made_to_fit_a_small_folder(tmp_path):
    said: list[str] = []
    wanted = train_tiny.recipe(
        folder(tmp_path / "few", [3] * 3), "train.classes_per_batch=16", "train.images_per_class=4"
    )
    fitted = adapted(wanted, [], say=said.append)
    assert (fitted.validation.share, fitted.train.classes_per_batch, fitted.train.images_per_class) == (0.0, 3, 3)
    assert "too few to hold some out" in said[0]
    kept = adapted(wanted, ["train.classes_per_batch=16"], say=said.append)
    assert kept.train.classes_per_batch == 16  # what was asked for stays, and will be an error


def test_unreadable_images_are_replaced_by_others_of_their_class(digits, tmp_path, capsys):
    shutil.copytree(digits, tmp_path / "images")
    for c in range(8):
        next((tmp_path / "images" / str(c)).iterdir()).write_bytes(b"not an image")
    assert train(train_tiny.recipe(tmp_path / "images"), tmp_path / "run").complete
    said = " ".join(capsys.readouterr().err.split())
    assert "could not be used: every figure is of the others only" in said
    assert "warning: WARNING" not in said


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc/sys").exists(), reason="needs a place nobody can write to")
def test_a_run_directory_that_cannot_be_written_is_an_error(digits):
    with pytest.raises(RunError, match="cannot be written"):
        train(train_tiny.recipe(digits), "/proc/sys/run", quiet=True)


def test_a_full_disk_ends_the_run_with_a_message_and_keeps_what_was_trained(digits, tmp_path):
    """A limit on the size of files, set from outside once there is a checkpoint, stands for the disk."""
    out, words = tmp_path / "run", ("train.epochs=30",)
    child = train_tiny.processes().Process(target=run_until_it_fails, args=(str(digits), str(out), words), daemon=True)
    child.start()
    while child.is_alive() and not checkpoint.listing(out / "checkpoints"):
        time.sleep(0.001)
    resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    child.join(300)
    assert child.exitcode == 7
    said = (tmp_path / "said").read_text()
    kept = checkpoint.listing(out / "checkpoints")[0]
    assert "cannot be written" in said
    assert f"{kept.name} is safe" in said
    assert train(train_tiny.recipe(digits, *words), out, resume=True, quiet=True).complete
    whole = train(train_tiny.recipe(digits, *words), tmp_path / "whole", quiet=True)
    assert secondsight.load(out / "best").fingerprint() == secondsight.load(whole.directory / "best").fingerprint()


def run_until_it_fails(digits: str, out: str, words: tuple[str, ...]) -> None:
    torch.set_num_threads(1)
    try:
        train(train_tiny.recipe(Path(digits), *words), out, quiet=True)
    except RunError as error:
        (Path(out).parent / "said").write_text(str(error))
        os._exit(7)


def test_early_stopping_keeps_the_best_model(digits, tmp_path):
    result = train(
        train_tiny.recipe(
            digits, "train.epochs=50", "validation.patience=2", "optimizer.lr=0.0", "optimizer.head_lr=0.0"
        ),
        tmp_path / "run",
        quiet=True,
    )
    assert result.complete
    assert result.step == 15  # the first epoch is the best, two more bring nothing
    rows = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl") if row["kind"] == "validation"]
    assert [row["best"] for row in rows] == [True, False, False]
