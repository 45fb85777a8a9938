"""Runtimes: one interface, the same vectors, the faster one chosen once and remembered."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from typer.testing import CliRunner

from secondsight import Embedder, index, inference
from secondsight.cli.main import app
from secondsight.errors import ConfigError, UnknownName, WeightsError
from secondsight.inference import Runtime, runtimes
from train_tiny import Tiny, write_digits

pytestmark = pytest.mark.usefixtures("traced")


@pytest.fixture(scope="module")
def model(traced) -> Embedder:
    torch.manual_seed(0)
    return Embedder.build(backbone="tiny", weights=None, pooling="jcf-4-2", dim=24, reduce=16, size=64).eval()


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("model")


def images(count: int = 5) -> torch.Tensor:
    return torch.randint(0, 256, (count, 3, 64, 64), dtype=torch.uint8)


@pytest.mark.parametrize("name", ["torch", "onnx", "auto"])
def test_every_runtime_gives_the_models_vectors(model, place, name):
    run = inference.runtime(model, name, beside=place)
    x = images()
    with torch.no_grad():
        torch.testing.assert_close(run(x), model(x), atol=1e-5, rtol=0)
    assert run.name in ("torch", "onnx")


def test_auto_measures_once_and_remembers_beside_the_model(model, place):
    first = inference.runtime(model, "auto", beside=place)
    kept = place / "runtimes" / "runtime.json"
    before = kept.read_text()
    answer = json.loads(before)[runtimes.machine(torch.device("cpu"))]
    assert answer["chosen"] == max(answer["images_per_second"], key=answer["images_per_second"].get) == first.name
    assert set(answer["images_per_second"]) == {"torch", "onnx"}
    again = inference.runtime(model, "auto", beside=place)
    assert kept.read_text() == before
    assert again.name == first.name
    assert "images/s" in again.said()


def test_a_kept_file_that_was_damaged_is_made_again(model, place):
    inference.runtime(model, "onnx", beside=place)
    kept = place / "runtimes" / "model.onnx"
    content = bytearray(kept.read_bytes())
    content[len(content) // 2] ^= 1
    kept.write_bytes(content)
    run, x = inference.runtime(model, "onnx", beside=place), images()
    with torch.no_grad():
        torch.testing.assert_close(run(x), model(x), atol=1e-5, rtol=0)
    assert kept.read_bytes() != bytes(content)


def test_auto_does_not_measure_for_a_handful_of_images(model, tmp_path, monkeypatch):
    monkeypatch.setenv("SECONDSIGHT_CACHE", str(tmp_path))
    assert inference.runtime(model, "auto", images=10).name == "torch"
    assert not list(tmp_path.rglob("*.json"))


def test_the_verbs_take_it(model, place, tmp_path):
    digits = write_digits(tmp_path / "digits", classes=2, images=4)
    model.save(place / "saved")
    vectors = {}
    for name in ("torch", "onnx"):
        out = tmp_path / name
        result = CliRunner().invoke(
            app, ["embed", str(place / "saved"), str(digits), "-o", str(out), "--runtime", name]
        )
        assert result.exit_code == 0, result.output
        vectors[name] = np.load(out / "vectors.npy")
    np.testing.assert_allclose(vectors["torch"], vectors["onnx"], atol=1e-5)
    judged = CliRunner().invoke(app, ["evaluate", str(place / "saved"), str(digits), "--runtime", "onxx"])
    assert isinstance(judged.exception, UnknownName)


def test_an_index_embeds_by_a_runtime_but_not_by_one_with_other_vectors(model, place, tmp_path):
    digits = write_digits(tmp_path / "digits", classes=2, images=4)
    model.save(place / "saved")
    made = {}
    for name in ("torch", "onnx"):
        arguments = ["index", str(digits), "-o", str(tmp_path / name), "--model", str(place / "saved")]
        result = CliRunner().invoke(app, [*arguments, "--runtime", name])
        assert result.exit_code == 0, result.output
        made[name] = index.open(tmp_path / name)
    ids = [item.id for item in made["torch"].items()]
    assert len(ids) == 8
    np.testing.assert_allclose(made["torch"].vectors(ids), made["onnx"].vectors(ids), atol=1e-3)
    refused = CliRunner().invoke(
        app, ["search", str(tmp_path / "torch"), str(next(digits.rglob("*.png"))), "--runtime", "onnx-int8"]
    )
    assert isinstance(refused.exception, ConfigError)


def test_an_index_knows_what_made_its_vectors_and_takes_only_what_agrees(model, tmp_path):
    digits = write_digits(tmp_path / "digits", classes=2, images=3)
    made = index.create(tmp_path / "eight.index", model)
    made.use(Runtime("onnx-int8", model))
    made.add(digits)
    assert made.info()["runtime"] == "onnx-int8"
    again, picture = index.open(tmp_path / "eight.index"), next((digits / "0").iterdir())
    with pytest.raises(ConfigError, match="onnx-int8 made"):
        again.search(picture)  # by torch
    with pytest.raises(ConfigError, match="not mixed"):
        again.use(Runtime("onnx", model))
    other = tmp_path / "other.png"
    ImageOps.invert(Image.open(picture).convert("L")).save(other)
    with pytest.raises(ConfigError, match="not mixed"):
        again.add([other])
    again.use(Runtime("onnx-int8", model))
    assert (again.search(picture).ids >= 0).sum() == 6
    assert (again.search(0).ids >= 0).sum() == 5


def test_runtimes_that_agree_share_an_index(model, tmp_path):
    digits = write_digits(tmp_path / "digits", classes=2, images=3)
    made = index.create(tmp_path / "both.index", model, digits / "0")
    assert made.info()["runtime"] == "torch"
    made.use(Runtime("onnx", model))
    made.add(digits / "1")
    assert len(made) == 6


def test_what_is_kept_of_another_model_is_not_used(model, place):
    other = Embedder.build(backbone=Tiny(), pooling="average", size=64).eval()
    inference.runtime(model, "onnx", beside=place)
    x = images()
    run = inference.runtime(other, "onnx", beside=place)
    with torch.no_grad():
        torch.testing.assert_close(run(x), other(x), atol=1e-5, rtol=0)


def test_a_directory_that_cannot_be_written_to_leaves_it_to_the_users_cache(model, tmp_path, monkeypatch):
    monkeypatch.setenv("SECONDSIGHT_CACHE", str(tmp_path / "cache"))
    closed = tmp_path / "model"
    closed.mkdir()
    (closed / "runtimes").write_text("in the way")  # root may write to read-only directories; a file stops it too
    inference.runtime(model, "auto", beside=closed)
    assert (tmp_path / "cache" / "runtimes" / model.fingerprint()[:16] / "runtime.json").is_file()


def test_int8_is_never_made_without_images(model, tmp_path, monkeypatch):
    monkeypatch.setenv("SECONDSIGHT_CACHE", str(tmp_path))
    with pytest.raises(WeightsError, match="secondsight export MODEL --int8 --data IMAGES"):
        inference.runtime(model, "onnx-int8")


def test_an_unknown_runtime_names_the_nearest(model):
    with pytest.raises(UnknownName, match="did you mean 'onnx'"):
        inference.runtime(model, "onxx")


def test_only_int8_is_kept_apart():
    assert inference.agree("torch", "compile")
    assert inference.agree("onnx-int8", "onnx-int8")
    assert not inference.agree("onnx-int8", "auto")
