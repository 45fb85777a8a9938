"""Files in 8 bits and in half precision: what they save and what they cost is measured, and worthless ones refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from secondsight import Embedder, data, inference
from secondsight.backbones import BACKBONES
from secondsight.cli.main import app
from secondsight.errors import ConfigError, DataError, RunError, UnknownName
from secondsight.export import export
from secondsight.inference import int8
from secondsight.inference.int8 import costly
from secondsight.inference.onnx_file import write
from train_tiny import Tiny, write_digits

pytestmark = pytest.mark.usefixtures("traced")


class Huge(Tiny):
    """Features far beyond the range of half precision."""

    def tokens(self, x):
        return super().tokens(x * 1e6)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return data.open(str(write_digits(tmp_path_factory.mktemp("digits"), classes=6, images=12)))


def build(backbone: str = "tiny", **options) -> Embedder:
    torch.manual_seed(0)
    keywords = {"pooling": "jcf-4", "dim": 24, "reduce": 16, "size": 32, **options}
    return Embedder.build(backbone=backbone, weights=None, **keywords).eval()


def test_int8_says_what_it_saves_and_what_it_costs(digits, tmp_path):
    report, cost = export(build(), tmp_path / "m.onnx", precision="int8", images=digits, fixed_size=True)
    assert report.description.precision == "int8"
    assert cost is not None
    assert cost.cosine > 0.97
    assert cost.recall is not None
    assert cost.quantised is not None
    kinds = {node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node}
    assert ("QuantizeLinear" in kinds) == (cost.quantised.layers > 0)
    one, many = (inference.load(tmp_path / "m.onnx")(np.zeros((n, 3, 32, 32), np.uint8)) for n in (1, 7))
    assert one.shape == (1, 24)
    np.testing.assert_allclose(many, one.repeat(7, 0), atol=1e-5)


def test_layers_that_a_sparse_assignment_chooses_are_one_layer_in_8_bits(digits, tmp_path):
    model = build(pooling="jcf-8-4", pooling_options={"assign": "top-1"})
    _, cost = export(model, tmp_path / "m.onnx", precision="int8", images=digits, fixed_size=True)
    assert cost is not None
    assert cost.cosine > 0.9  # a location between two codewords may change sides
    assert cost.quantised is not None
    assert cost.quantised.layers + len(cost.quantised.kept) <= 5  # two convolutions, reduction, codebook, projectors
    noise = np.random.default_rng(0).integers(0, 256, (9, 3, 32, 32), np.uint8)
    for n in (1, 9):  # codewords without a location, and with many
        assert np.isfinite(inference.load(tmp_path / "m.onnx")(noise[:n])).all()


def test_a_relu_becomes_part_of_the_8_bit_layer_before_it(tmp_path):
    write(build(), tmp_path / "m.onnx", fixed_size=True)
    pixels = np.random.default_rng(0).integers(0, 256, (16, 3, 32, 32), np.uint8)
    int8.quantise(tmp_path / "m.onnx", tmp_path / "small.onnx", pixels, budget=2.0)
    assert "Relu" in {node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node}
    assert "Relu" not in {node.op_type for node in onnx.load(tmp_path / "small.onnx").graph.node}


def test_half_keeps_the_pooling_in_single_precision(tmp_path):
    report, cost = export(build(), tmp_path / "m.onnx", precision="float16", fixed_size=True)
    assert report.description.precision == "float16"
    assert cost is not None
    assert cost.cosine > 0.9999
    assert cost.recall is None
    assert cost.bytes[1] < cost.bytes[0]


def test_features_beyond_half_precision_are_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(BACKBONES, "huge", Huge)
    with pytest.raises(RunError, match="does not keep its direction in half precision"):
        export(build("huge"), tmp_path / "m.onnx", precision="float16", fixed_size=True)
    assert not list(tmp_path.iterdir())


def test_int8_without_images_or_with_too_few_is_refused(digits, tmp_path):
    with pytest.raises(ConfigError, match="--data"):
        export(build(), tmp_path / "m.onnx", precision="int8")
    with pytest.raises(DataError, match="at least 16 images"):
        export(build(), tmp_path / "m.onnx", precision="int8", images=digits.subset(np.arange(10)), fixed_size=True)
    with pytest.raises(UnknownName, match="int8"):
        export(build(), tmp_path / "m.onnx", precision="int4")
    assert not list(tmp_path.iterdir())


def test_the_command_keeps_int8_where_the_runtime_finds_it(digits, tmp_path):
    build().save(tmp_path / "model")
    arguments = ["export", str(tmp_path / "model"), "-o", str(tmp_path / "m.onnx"), "--int8", "--fixed-size"]
    result = CliRunner().invoke(app, [*arguments, "--data", str(digits.root)])
    assert result.exit_code == 0, result.output
    for said in ("size", "speed", "cosine", "R@1"):
        assert said in result.output
    model = build()
    run = inference.runtime(model, "onnx-int8", beside=tmp_path / "model")
    x = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    np.testing.assert_array_equal(run(x).numpy(), inference.load(tmp_path / "m.onnx")(x.numpy()))
    both = CliRunner().invoke(app, [*arguments, "--half"])
    assert isinstance(both.exception, ConfigError)


@given(st.dictionaries(st.text(min_size=1), st.floats(0, 2), max_size=20), st.floats(0.001, 1))
def test_what_stays_in_float_is_the_least_that_meets_the_budget(losses, budget):
    kept = costly(losses, budget)
    rest = [loss for name, loss in losses.items() if name not in kept]
    assert sum(rest) <= budget + 1e-9
    if kept:
        assert min(losses[name] for name in kept) >= max(rest, default=0)
        assert sum(rest) + losses[kept[-1]] > budget - 1e-9
