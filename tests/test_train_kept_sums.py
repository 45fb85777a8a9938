"""What does not learn is summed up once and kept: the same numbers as without, the same bits after an interruption."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import secondsight
import train_tiny
from secondsight import pooling
from secondsight.train import kept_sums, loop, train
from secondsight.train.assembly import assemble, make_fabric
from secondsight.train.forecast import dry_run
from secondsight.train.run_directory import read_metrics
from test_train_resume import assert_same_run

ENDS = (
    "data.transform=resize",
    "model.freeze=all",
    "model.pooling_options={start='square', power=0.5, whiten=0.25, width=28, assign='top-1', gains=true}",
    "optimizer.head_lr=0.0",
    "optimizer.end_lr=5e-3",
    "validation.at_start=true",
    "loss.name=multi-similarity",
)


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    return train_tiny.write_digits(tmp_path_factory.mktemp("digits") / "images")


@pytest.fixture
def words(tmp_path) -> tuple[str, ...]:
    return (*ENDS, f"data.cache_dir={tmp_path / 'cache'}")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("jcf-4-2", {"assign": "top-1", "gains": True, "power": 0.5, "whiten": 0.25}),
        ("jcf-4", {"assign": "hard", "gains": True, "start": "average", "reduce": "mean"}),
        ("jcf-4-2", {"assign": "soft", "whiten": 0.25}),
        ("jcf-4", {"assign": "top-2", "codebooks": 2}),
        ("average", {"whiten": 0.25, "power": 0.5}),
    ],
)
def test_the_end_of_the_sums_is_the_pooling(name, options):
    torch.manual_seed(0)
    pool = pooling.build(name, 16, 8, **options)
    assert pool.keeps_sums
    with torch.no_grad():
        for parameter in pool.readout_parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    x, mask = torch.randn(3, 11, 16), torch.rand(3, 11) > 0.3
    for m in (None, mask):
        assert torch.allclose(pool.ended(pool.kept_sums(x, m)), pool(x, m), rtol=1e-4, atol=1e-5)


def test_gradients_of_the_ends_are_those_of_the_pooling():
    torch.manual_seed(0)
    pool = pooling.build("jcf-4-2", 16, 8, assign="top-1", gains=True, power=0.5, whiten=0.25)
    x, ends = torch.randn(3, 11, 16), list(pool.readout_parameters())
    kept = torch.autograd.grad(pool.ended(pool.kept_sums(x).detach()).square().sum(), ends)
    whole = torch.autograd.grad(pool(x).square().sum(), ends)
    for one, other in zip(kept, whole, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "options", [{"assign": "soft", "gains": True}, {"assign": "top-2", "gains": True}, {"dropout": 0.1}]
)
def test_sums_that_would_not_do_are_not_kept(options):
    assert not pooling.build("jcf-4-2", 16, 8, **options).keeps_sums


def test_a_run_on_kept_sums_learns_what_it_learned_without(digits, words, tmp_path, monkeypatch):
    recipe, done = train_tiny.recipe(digits, *words), []
    monkeypatch.setattr(loop, "keep_sums", lambda parts, say: done.append(kept_sums.keep_sums(parts, say)) or done[-1])
    train(recipe, tmp_path / "kept", quiet=True)
    assert done == [True]
    monkeypatch.setattr(loop, "keep_sums", lambda parts, say: False)
    train(recipe, tmp_path / "plain", quiet=True)
    kept, plain = (secondsight.load(tmp_path / name / "best").state_dict() for name in ("kept", "plain"))
    for name in plain:
        assert torch.allclose(kept[name].float(), plain[name].float(), rtol=1e-3, atol=1e-4), name
    kept, plain = (read_metrics(tmp_path / name / "metrics.jsonl") for name in ("kept", "plain"))
    for one, other in zip(kept, plain, strict=True):
        assert one.keys() == other.keys()
        for figure in {"loss", "recall@1", "map@r", "mean_cosine"} & one.keys():
            assert one[figure] == pytest.approx(other[figure], rel=1e-4, abs=1e-6)


def test_an_interrupted_run_goes_on_to_the_same_bits(digits, words, tmp_path):
    recipe = train_tiny.recipe(digits, *words, "train.checkpoint_every=2")
    train(recipe, tmp_path / "whole", quiet=True)
    train(
        recipe.model_copy(update={"train": recipe.train.model_copy(update={"epochs": 3})}), tmp_path / "cut", quiet=True
    )
    checkpoints = sorted((tmp_path / "cut" / "checkpoints").iterdir())
    for folder in checkpoints[1:]:  # as if it had been killed after the first one that is kept
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    train(recipe, tmp_path / "cut", resume=True, quiet=True)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_it_is_done_only_where_nothing_else_learns(digits, words, tmp_path):
    def kept(*more: str) -> bool:
        recipe = train_tiny.recipe(digits, *words, *more)
        return kept_sums.keep_sums(assemble(recipe, make_fabric(recipe), fit=True, say=print))

    assert kept()
    assert not kept("optimizer.head_lr=1e-3")
    assert not kept("model.freeze=first")
    assert not kept("data.cache=false")


def test_no_room_is_said_and_training_goes_on(digits, words, monkeypatch):
    recipe = train_tiny.recipe(digits, *words)
    parts, said = assemble(recipe, make_fabric(recipe), fit=True, say=print), []
    monkeypatch.setattr(kept_sums, "RESERVE", 1 << 60)
    assert not kept_sums.keep_sums(parts, said.append)
    assert "are not free" in said[0]
    assert not parts.inputs.summed


def test_a_dry_run_counts_them(digits, words):
    assert dry_run(train_tiny.recipe(digits, *words)).total_seconds > 0
