"""Killed anywhere, a run goes on as if nothing had happened: the same weights bit for bit, the same metrics."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

import secondsight
import train_tiny
from secondsight.errors import RunError, UnknownName
from secondsight.train import checkpoint, train
from secondsight.train.run_directory import read_metrics

# Dropout draws random numbers, EMA and momentum have state of their own, and checkpoints fall within epochs.
OVERRIDES = ("train.epochs=8", "train.checkpoint_every=2", "train.ema=0.9", "model.pooling_options.dropout=0.2")


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    return train_tiny.write_digits(tmp_path_factory.mktemp("digits") / "images")


@pytest.fixture(scope="module")
def untouched(digits, tmp_path_factory) -> Path:
    """The same run, never interrupted."""
    return run_whole(digits, tmp_path_factory.mktemp("untouched") / "run")


def run_whole(digits: Path, out: Path, *overrides: str) -> Path:
    child = start(digits, out, overrides or OVERRIDES, resume=False)
    child.join(300)
    assert child.exitcode == 0
    return out


def start(digits: Path, out: Path, overrides: tuple[str, ...] = OVERRIDES, *, resume: bool = True):
    child = train_tiny.processes().Process(
        target=train_tiny.train_quietly, args=(str(digits), str(out), overrides, resume), daemon=True
    )
    child.start()
    return child


def assert_same_run(one: Path, other: Path) -> None:
    """The last checkpoint and best/ are equal bit for bit, and so are the metrics but for what a clock says."""
    mine, theirs = (checkpoint.listing(run / "checkpoints")[0] for run in (one, other))
    assert mine.name == theirs.name
    a, b = (load_file(path / checkpoint.TENSORS) for path in (mine, theirs))
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].equal(b[name]), name
    assert secondsight.load(one / "best").fingerprint() == secondsight.load(other / "best").fingerprint()
    assert timeless(one) == timeless(other)


def timeless(run: Path) -> list[dict]:
    return [{k: v for k, v in row.items() if k != "images_per_second"} for row in read_metrics(run / "metrics.jsonl")]


def test_the_same_recipe_gives_the_same_weights(digits, untouched, tmp_path):
    assert_same_run(run_whole(digits, tmp_path / "again"), untouched)


def test_a_run_killed_twenty_times_ends_with_the_weights_of_one_that_was_not(digits, untouched, tmp_path):
    chance, kills, writes = random.Random(0), 0, 0
    for attempt in range(20):
        out, complete = tmp_path / f"run{attempt}", False
        while not complete:
            child = start(digits, out)
            if kills < 20:
                wait_for_a_moment(child, out, chance)
            complete = finish(child, kill=kills < 20)
            kills += not complete
            writes += not complete and bool(half_written(out))
        assert_same_run(out, untouched)
        if kills >= 20:
            break
    assert kills == 20
    assert writes > 2  # some of them while a checkpoint or a model was half written


def wait_for_a_moment(child, out: Path, chance: random.Random) -> None:
    """Until a checkpoint or a model is half written, a little after the first step, or while the run still starts."""
    what = chance.choice(["write", "write", "step", "step", "start"])
    before = half_written(out), size(out / "metrics.jsonl")
    while what == "write" and child.is_alive() and half_written(out) <= before[0]:
        time.sleep(0.0005)
    while what == "step" and child.is_alive() and size(out / "metrics.jsonl") == before[1]:
        time.sleep(0.0005)
    child.join(0 if what == "write" else chance.uniform(0, 0.15))


def half_written(out: Path) -> set[str]:
    return {path.name for pattern in ("checkpoints/.step-*.tmp", ".best.*.tmp") for path in out.glob(pattern)}


def size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def finish(child, *, kill: bool) -> bool:
    """End the child with kill −9, or let it end by itself; whether it did."""
    if kill and child.is_alive():
        child.kill()
    child.join()
    assert child.exitcode in (0, -9)
    return child.exitcode == 0


def test_a_damaged_checkpoint_is_passed_over_and_said(digits, untouched, tmp_path, capsys):
    out = tmp_path / "run"
    run_whole(digits, out)
    newest = checkpoint.listing(out / "checkpoints")[0] / checkpoint.TENSORS
    content = bytearray(newest.read_bytes())
    content[-1] ^= 1  # one flipped bit
    newest.write_bytes(content)
    train(train_tiny.recipe(digits, *OVERRIDES), out, resume=True)
    assert "damaged" in (said := capsys.readouterr().err)
    assert "falling back" in said
    assert_same_run(out, untouched)


@pytest.mark.parametrize("file", [checkpoint.STATE, checkpoint.TENSORS])
@pytest.mark.parametrize("harm", ["cut", "gone", "empty", "changed"])
def test_every_kind_of_damage_is_noticed(file, harm, tmp_path):
    import torch

    saved = checkpoint.Checkpoint(3, {"model.w": torch.arange(100.0)}, {"note": "x" * 50})
    path = checkpoint.save(tmp_path, saved, keep=2)
    content = (path / file).read_bytes()
    {
        "cut": lambda: (path / file).write_bytes(content[:-7]),
        "gone": lambda: (path / file).unlink(),
        "empty": lambda: (path / file).write_bytes(b""),
        "changed": lambda: (path / file).write_bytes(content.replace(b"x", b"y").replace(b"\x80", b"\x81")),
    }[harm]()
    with pytest.raises(checkpoint.Damaged):
        checkpoint.load(path)
    with pytest.raises(RunError, match="none of the 1 checkpoints is sound"):
        checkpoint.newest(tmp_path, say=lambda words: None)


def test_checkpoints_are_rotated_and_hold_no_pickle(untouched):
    kept = checkpoint.listing(untouched / "checkpoints")
    assert [path.name for path in kept] == ["step-00000040", "step-00000038"]
    for path in kept:
        assert sorted(file.name for file in path.iterdir()) == [checkpoint.STATE, checkpoint.TENSORS]
        json.loads((path / checkpoint.STATE).read_text())


def test_resuming_with_another_recipe_says_which_keys_differ(digits, untouched):
    other = train_tiny.recipe(digits, *OVERRIDES, "optimizer.lr=0.5", "loss.name=triplet")
    with pytest.raises(RunError, match=r"optimizer\.lr \(0\.001 → 0\.5\)") as caught:
        train(other, untouched, resume=True, quiet=True)
    assert "loss.name ('proxy-anchor' → 'triplet')" in str(caught.value)


def test_a_run_is_not_overwritten(digits, untouched):
    with pytest.raises(RunError, match="already holds a run"):
        train(train_tiny.recipe(digits, *OVERRIDES), untouched, quiet=True)


def test_a_command_that_failed_before_the_first_step_may_be_corrected(digits, tmp_path):
    with pytest.raises(UnknownName, match="unknown stage of tiny 'conv9'"):
        train(train_tiny.recipe(digits, *OVERRIDES, "model.freeze=conv9"), tmp_path / "run", quiet=True)
    assert train(train_tiny.recipe(digits, "train.epochs=1"), tmp_path / "run", quiet=True).complete


def test_resuming_with_other_images_is_an_error(digits, untouched, tmp_path):
    import shutil

    shutil.copytree(digits, tmp_path / "images")
    next((tmp_path / "images" / "0").iterdir()).unlink()
    moved = train_tiny.recipe(tmp_path / "images", *OVERRIDES)
    with pytest.raises(RunError, match="not the images"):
        train(moved, untouched, resume=True, quiet=True)


def test_a_finished_run_can_be_resumed_and_stays_as_it_is(digits, untouched):
    before = (untouched / "metrics.jsonl").read_bytes()
    result = train(train_tiny.recipe(digits, *OVERRIDES), untouched, resume=True, quiet=True)
    assert result.complete
    assert (untouched / "metrics.jsonl").read_bytes() == before


def test_ctrl_c_saves_and_the_run_goes_on_exactly(digits, untouched, tmp_path):
    import os
    import signal

    out = tmp_path / "run"
    child = start(digits, out, resume=False)
    while child.is_alive() and not read_metrics(out / "metrics.jsonl"):
        time.sleep(0.001)
    os.kill(child.pid, signal.SIGINT)
    child.join(300)
    assert child.exitcode == 0
    steps = [row["step"] for row in read_metrics(out / "metrics.jsonl") if row["kind"] == "train"]
    assert checkpoint.listing(out / "checkpoints")[0].name == f"step-{steps[-1]:08d}"
    child = start(digits, out)
    child.join(300)
    assert_same_run(out, untouched)
