"""Run directories that were damaged, shared by two, or lost a part: the same bits, or a sentence."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import secondsight
import train_tiny
from secondsight import files
from secondsight.errors import ConfigError, RunError
from secondsight.train import checkpoint, train
from secondsight.train.health import Watch
from secondsight.train.run_directory import read_metrics
from secondsight.train.run_summary import summarise


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    return train_tiny.write_digits(tmp_path_factory.mktemp("digits") / "images")


@pytest.fixture(scope="module")
def whole(digits, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "whole"
    train(train_tiny.recipe(digits, "train.keep=5"), out, quiet=True)
    return out


@pytest.fixture
def run(whole, tmp_path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def again(digits: Path, run: Path):
    return train(train_tiny.recipe(digits, "train.keep=5"), run, resume=True, quiet=True)


def weights(model: Path) -> dict:
    return load_file(model / "model.safetensors")


def test_the_second_process_in_a_run_directory_is_told_so(digits, tmp_path):
    run = tmp_path / "run"
    with files.locked(run / ".lock"), pytest.raises(RunError, match="another process is training here"):
        train(train_tiny.recipe(digits), run, quiet=True)
    assert not (run / "config.toml").exists()
    assert train(train_tiny.recipe(digits, "train.epochs=1"), run, quiet=True).complete


def test_a_finished_run_without_best_makes_it_again(digits, whole, run):
    shutil.rmtree(run / "best")
    result = again(digits, run)
    assert result.complete
    one, other = weights(run / "best"), weights(whole / "best")
    assert all(one[name].equal(other[name]) for name in other)
    assert secondsight.load(run / "best").origin == secondsight.load(whole / "best").origin


def test_without_the_checkpoint_of_best_the_last_one_takes_its_place(digits, run):
    state = checkpoint.newest(run / "checkpoints", say=lambda words: None)
    assert state is not None
    best = state.state["progress"]["best_step"]
    shutil.rmtree(run / "best")
    if best != state.step:
        shutil.rmtree(run / "checkpoints" / f"step-{best:08d}")
    assert again(digits, run).best is not None
    assert secondsight.load(run).dim == 24


@pytest.mark.parametrize("content", ["[1, 2]", "{}", "", "null", '{"checksum": 3}', "[" * 100_000, "\x00\xff"])
def test_a_state_that_is_none_falls_back_to_the_one_before(digits, whole, run, content):
    (checkpoint.listing(run / "checkpoints")[0] / checkpoint.STATE).write_text(content)
    again(digits, run)
    one, other = weights(run / "best"), weights(whole / "best")
    assert all(one[name].equal(other[name]) for name in other)


def test_metrics_that_are_a_folder_are_named(digits, run):
    (run / "metrics.jsonl").unlink()
    (run / "metrics.jsonl").mkdir()
    with pytest.raises(RunError, match=r"metrics\.jsonl: cannot be written \(Is a directory\)"):
        again(digits, run)


def test_a_last_line_that_was_cut_off_anywhere_is_left_out(run):
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text().splitlines()
    rows = len(read_metrics(metrics))
    for cut in range(len(lines[-1])):
        metrics.write_text("\n".join([*lines[:-1], lines[-1][:cut]]))
        assert len(read_metrics(metrics)) == rows - 1
    summarise(run)
    metrics.write_text("\n".join([lines[0], "garbage", *lines[1:]]))
    with pytest.raises(RunError, match=r"metrics\.jsonl:2: not a line of metrics"):
        summarise(run)


def test_two_classes_are_not_called_chance():
    import numpy as np

    watch, labels = Watch.__new__(Watch), np.repeat([0, 1], 20)
    watch.said, watch.best = [], 0.0
    assert watch.validation({"recall@1": 0.925}, labels, k=1, step=1) == []
    assert watch.validation({"recall@1": 0.65}, np.repeat([0, 1], 500), k=1, step=1) == []  # seven standard errors
    assert "as good as chance" in watch.validation({"recall@1": 0.51}, labels, k=1, step=2)[0]


def test_missing_images_are_skipped_in_training_where_that_is_asked_for(digits, tmp_path):
    rows = [(path.relative_to(digits.parent), path.parent.name) for path in sorted(digits.rglob("*.png"))]
    table = digits.parent / "with-gaps.csv"
    table.write_text("path,label\n" + "".join(f"{p},{c}\n" for p, c in rows) + "images/0/gone.png,0\n")
    with pytest.raises(ValueError, match=r"1 of 81 listed images are missing.*--missing skip"):
        train(train_tiny.recipe(table), tmp_path / "refused", quiet=True)
    recipe = train_tiny.recipe(table, "data.missing=skip", "train.epochs=3")
    assert train(recipe, tmp_path / "run", quiet=True).complete
    (unreadable,) = json.loads((tmp_path / "run" / "report.json").read_text())["unreadable"]
    assert "gone.png" in str(unreadable)


@pytest.mark.parametrize("stopped", [True, False], ids=["before it was finished", "after it was finished"])
def test_an_image_that_could_not_be_read_is_embedded_the_next_time(digits, tmp_path, stopped):
    from secondsight import Embedder, data
    from secondsight.embed.directory import embed_to, finish

    pictures, out = Path(shutil.copytree(digits, tmp_path / "pictures")), tmp_path / "out"
    images, gone = data.open(pictures), sorted(pictures.rglob("*.png"))[3]
    model = Embedder.build(backbone="tiny", weights="random", pooling="average", dim=8, reduce=0).eval()
    some = {"block": 8, "batch_size": 8}
    gone.rename(tmp_path / "elsewhere.png")
    embed_to(out, model, images, workers=0, **some)
    if not stopped:
        count, failures = finish(out, images, **some)
        assert (count, len(failures)) == (len(images) - 1, 1)
    (tmp_path / "elsewhere.png").rename(gone)
    assert embed_to(out, model, images, workers=0, **some) == 1  # that block alone
    count, failures = finish(out, images, **some)
    assert (count, len(failures)) == (len(images), 0)
    assert sorted(path.name for path in out.iterdir()) == ["embedding.json", "items.csv", "vectors.npy"]


def test_what_is_no_picture_is_said_each_time_and_not_tried_again(digits, tmp_path):
    from secondsight import Embedder, data
    from secondsight.embed.directory import embed_to, finish

    pictures, out = Path(shutil.copytree(digits, tmp_path / "pictures")), tmp_path / "out"
    sorted(pictures.rglob("*.png"))[3].write_bytes(b"no picture")
    images = data.open(pictures)
    model = Embedder.build(backbone="tiny", weights="random", pooling="average", dim=8, reduce=0).eval()
    embed_to(out, model, images, workers=0)
    first = finish(out, images)
    assert embed_to(out, model, images, workers=0) == 0
    again = finish(out, images)
    assert first[0] == again[0] == len(images) - 1
    assert list(first[1]) == list(again[1])
    assert len(again[1]) == 1


def test_a_damaged_feature_cache_trains_the_same_model(digits, tmp_path, capfd):
    words = ("data.transform=resize", "model.freeze=first", f"data.cache_dir={tmp_path / 'cache'}", "train.epochs=1")
    train(train_tiny.recipe(digits, *words), tmp_path / "one", quiet=True)
    (stored,) = (tmp_path / "cache").glob("*/rows.f16")
    with stored.open("r+b") as file:
        file.seek(4096)
        file.write(bytes(80_000))
    assert "damaged" not in capfd.readouterr().err
    train(train_tiny.recipe(digits, *words), tmp_path / "two")
    assert "stored rows are damaged (a disk fault?); they are computed again" in capfd.readouterr().err
    one, other = weights(tmp_path / "one" / "best"), weights(tmp_path / "two" / "best")
    assert all(one[name].equal(other[name]) for name in other)


def test_another_number_of_threads_goes_on_and_ends_within_rounding(digits, whole, run):
    newest, *others = checkpoint.listing(run / "checkpoints")
    shutil.rmtree(newest)
    assert others, "there is nothing to go on from"
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        assert again(digits, run).complete
    finally:
        torch.set_num_threads(before)
    mine, theirs = (load_file(checkpoint.listing(one / "checkpoints")[0] / checkpoint.TENSORS) for one in (run, whole))
    for name in theirs:
        torch.testing.assert_close(mine[name], theirs[name], rtol=1e-3, atol=1e-4)


def test_pictures_may_vanish_while_a_run_is_under_way(digits, tmp_path):
    pictures = Path(shutil.copytree(digits, tmp_path / "pictures"))
    words = ("train.epochs=20", "data.transform=random-crop")
    child = train_tiny.processes().Process(
        target=train_tiny.train_quietly, args=(str(pictures), str(tmp_path / "run"), words, False), daemon=True
    )
    child.start()
    while child.is_alive() and not read_metrics(tmp_path / "run" / "metrics.jsonl"):
        time.sleep(0.001)
    for folder in pictures.iterdir():
        sorted(folder.iterdir())[0].unlink()
    child.join(300)
    assert child.exitcode == 0
    assert secondsight.load(tmp_path / "run").dim == 24


def test_a_rank_that_is_no_number(monkeypatch):
    from secondsight.cli.options import device, place_among_processes

    monkeypatch.setenv("RANK", "abc")
    with pytest.raises(ConfigError, match="RANK='abc' in the environment is not a number"):
        place_among_processes()
    with pytest.raises(ConfigError, match="--device 'foo'"):
        device("foo")
    with pytest.raises(ConfigError, match="--device 'cuda:99'"):
        device("cuda:99")
    assert device("cpu") == "cpu"
