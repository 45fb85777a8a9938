"""``secondsight export``: one file, from pixels to unit vectors, that says what it is and agrees with torch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from secondsight import Embedder, inference
from secondsight.backbones import BACKBONES
from secondsight.cli.main import app
from secondsight.errors import ConfigError, RunError, SecondsightError, ShapeError, WeightsError
from secondsight.inference.description import sealed
from secondsight.inference.onnx_file import drawn
from secondsight.inference.onnx_file import write as export
from train_tiny import Tiny

SIZE = 64

pytestmark = pytest.mark.usefixtures("traced")


class Unlike(Tiny):
    """Gives one thing while it is traced and another while it runs: what an exporter's defect looks like."""

    def forward(self, images):
        return super().forward(images) * (torch.arange(32) if torch.compiler.is_exporting() else 1)


class Unsayable(Tiny):
    """Uses an operator that ONNX has no word for."""

    def forward(self, images):
        return torch.special.bessel_j0(super().forward(images))


def build(backbone: str = "tiny", **options) -> Embedder:
    torch.manual_seed(0)
    options = {"pooling": "jcf-4-2", "dim": 24, "reduce": 16, "size": SIZE, **options}
    model = Embedder.build(backbone=backbone, weights=None, **options)
    with torch.no_grad():
        model.eval().fit(model.backbone(images(32)))
    return model.eval()


def images(count: int, height: int = SIZE, width: int = SIZE) -> torch.Tensor:
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8)


@pytest.fixture(scope="module")
def whole(traced, tmp_path_factory) -> tuple[Embedder, Path]:
    """A model with everything that comes after the pooling: mirror images, a linear map, parts normalised apart."""
    model = build(mirror=True)
    model = Embedder.from_config(
        model.config.model_copy(update={"keep": 12, "normalise": ((5, 2.0), (7, 1.0))}), backbone=model.backbone
    ).eval()
    nn.init.normal_(model.keep)
    path = tmp_path_factory.mktemp("export") / "whole.onnx"
    export(model, path)
    return model, path


@pytest.mark.parametrize(("count", "height", "width"), [(1, 64, 64), (7, 64, 64), (2, 96, 160), (0, 64, 64)])
def test_the_file_gives_the_models_vectors_for_any_number_and_size(whole, count, height, width):
    model, path = whole
    x = images(count, height, width)
    with torch.no_grad():
        ours = model(x).numpy()
    theirs = inference.load(path)(x.numpy())
    assert theirs.shape == (count, 12) == ours.shape
    np.testing.assert_allclose(theirs, ours, atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(theirs, axis=1), 1, atol=1e-6)


def test_the_file_is_valid_and_whole(whole):
    path = whole[1]
    proto = onnx.load(path)
    onnx.checker.check_model(proto, full_check=True)
    assert [i.name for i in proto.graph.input] == ["images"]
    assert [o.name for o in proto.graph.output] == ["vectors"]
    assert proto.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.UINT8
    assert not any(tensor.external_data for tensor in proto.graph.initializer)
    convolutions = [node for node in proto.graph.node if node.op_type == "Conv"]
    assert len(convolutions) == 2  # the mirror image goes through the same network, not through a copy


def test_the_file_says_which_model_it_is_and_how_to_resize(whole):
    model, path = whole
    told = inference.load(path).description
    assert told.fingerprint == model.fingerprint()
    assert (told.dim, told.views, told.multiple) == (12, 2, 32)
    assert (told.picture.name, told.picture.size, told.picture.interpolation) == ("resize", SIZE, "bilinear")


def test_a_crop_keeps_the_side_it_is_taken_from(tmp_path):
    report = export(build(transform="resize-crop"), tmp_path / "m.onnx", fixed_size=True)
    assert (report.description.picture.size, report.description.picture.resize) == (64, 73)
    assert report.description.multiple == 0


def test_it_is_compared_with_torch_at_two_batches_and_two_sizes(tmp_path):
    report = export(build(), tmp_path / "m.onnx", pictures=drawn(2))
    assert {(check.images, check.size) for check in report.checks} == {(1, 64), (5, 64), (5, 96)}
    assert report.cosine > 0.99999


@pytest.mark.parametrize("shape", [(1, 3, 60, 64), (1, 3, 0, 64), (1, 1, 64, 64), (3, 64, 64)])
def test_images_it_cannot_take_are_refused_with_what_it_takes(whole, shape):
    with pytest.raises(ShapeError, match=r"whole\.onnx takes"):
        inference.load(whole[1])(np.zeros(shape, np.uint8))


def test_floating_point_images_are_refused(whole):
    with pytest.raises(ShapeError, match="uint8"):
        inference.load(whole[1])(np.zeros((1, 3, 64, 64), np.float32))


def test_a_file_that_disagrees_with_torch_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setitem(BACKBONES, "unlike", Unlike)
    with pytest.raises(RunError, match="does not agree with torch: cosine"):
        export(build("unlike"), tmp_path / "m.onnx", fixed_size=True)
    assert not list(tmp_path.iterdir())


def test_an_operator_that_onnx_does_not_know_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(BACKBONES, "unsayable", Unsayable)
    with pytest.raises(ConfigError, match="bessel_j0"):
        export(build("unsayable"), tmp_path / "m.onnx", fixed_size=True)
    assert not list(tmp_path.iterdir())


def changed(path: Path, target: Path, **fields) -> Path:
    """The file with other words in its description."""
    proto = onnx.load(path)
    told = json.loads(proto.metadata_props[0].value)
    proto.metadata_props[0].value = json.dumps({**told, **fields})
    target.write_bytes(sealed(proto.SerializeToString()))
    return target


def test_a_file_of_another_format_is_refused_with_the_cure(whole, tmp_path):
    with pytest.raises(WeightsError, match=r"format 99, this version of secondsight reads 1: export the model again"):
        inference.load(changed(whole[1], tmp_path / "m.onnx", format=99))


def test_a_damaged_description_is_refused(whole, tmp_path):
    with pytest.raises(WeightsError, match="damaged"):
        inference.load(changed(whole[1], tmp_path / "m.onnx", surprise=1))


@pytest.mark.parametrize("place", [0.1, 0.4, 0.7, 0.95])
def test_one_wrong_bit_is_noticed(whole, tmp_path, place):
    content = bytearray(Path(whole[1]).read_bytes())
    content[int(place * len(content))] ^= 1
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(WeightsError, match="not as it was written"):
        inference.load(tmp_path / "m.onnx")


def test_files_that_are_not_ours_are_refused(whole, tmp_path):
    with pytest.raises(WeightsError, match="no such file"):
        inference.load(tmp_path / "absent.onnx")
    (tmp_path / "text.onnx").write_text("not a graph")
    with pytest.raises(WeightsError, match=r"text\.onnx cannot be run"):
        inference.load(tmp_path / "text.onnx")
    proto = onnx.load(whole[1])
    del proto.metadata_props[:]
    onnx.save(proto, tmp_path / "other.onnx")
    with pytest.raises(WeightsError, match="not one of ours"):
        inference.load(tmp_path / "other.onnx")


def test_a_provider_that_is_not_there_is_named(whole):
    with pytest.raises(SecondsightError, match="NoSuchProvider"):
        inference.load(whole[1], providers=["NoSuchProvider"])


def test_the_command_writes_the_file_and_says_what_it_is(tmp_path):
    build(pooling="average").save(tmp_path / "run" / "best")
    result = CliRunner().invoke(
        app, ["export", str(tmp_path / "run" / "best"), "-o", str(tmp_path / "m.onnx"), "--fixed-size"]
    )
    assert result.exit_code == 0, result.output
    assert inference.load(tmp_path / "m.onnx").description.pooling == "average"
    assert "least cosine with torch" in result.output


def test_a_model_without_its_weights_is_refused_with_the_cure(tmp_path):
    model = Embedder.build(backbone=Tiny(), pooling="average", dim=8, size=64)
    model.save(tmp_path / "model")
    for file in (tmp_path / "model").glob("*.safetensors"):
        file.unlink()
    result = CliRunner().invoke(app, ["export", str(tmp_path / "model"), "-o", str(tmp_path / "m.onnx")])
    assert isinstance(result.exception, SecondsightError)
    assert "safetensors" in str(result.exception)
    assert not (tmp_path / "m.onnx").exists()
