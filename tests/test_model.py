"""The embedder as a whole: built from names, saved, loaded, identified."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from safetensors import SafetensorError

import secondsight
from secondsight import Embedder
from secondsight.errors import ConfigError, SecondsightError, ShapeError, UnknownName, WeightsError
from secondsight.functional.pooling import pointwise
from secondsight.model.reduction import Reduction


def build(**options) -> Embedder:
    small = {"backbone": "efficientnet-lite0", "weights": None, "pooling": "jcf-4-2", "dim": 32, "reduce": 16}
    return Embedder.build(**(small | options))


def images(b=2, size=64):
    return torch.randint(0, 256, (b, 3, size, size), dtype=torch.uint8)


def test_embeddings_have_unit_length_and_the_asked_size():
    z = build().eval()(images())
    assert z.shape == (2, 32)
    torch.testing.assert_close(z.norm(dim=1), torch.ones(2))


def test_raw_embeddings_are_what_is_normalised():
    model, x = build().eval(), images()
    torch.testing.assert_close(torch.nn.functional.normalize(model.raw(x), dim=1), model(x))


def test_with_mirror_images_an_embedding_is_the_mean_of_both_and_the_same_for_both():
    model, x = build(mirror=True).eval(), images()
    one = Embedder.from_config(model.config.model_copy(update={"mirror": False})).eval()
    one.load_state_dict(model.state_dict())
    torch.testing.assert_close(model.raw(x), (one.raw(x) + one.raw(x.flip(-1))) / 2)
    torch.testing.assert_close(model(x), model(x.flip(-1)))
    assert not torch.allclose(one(x), one(x.flip(-1)), atol=1e-4), "mirror images do differ"
    torch.testing.assert_close(model.train().raw(x), one.train().raw(x))  # what learns sees one image at a time


def test_average_pooling_sees_all_channels_and_the_others_see_the_reduced_ones():
    average, jcf = build(pooling="average"), build()
    assert average.reduction is None
    assert average.pooling.in_dim == average.backbone.out_dim == 1280
    assert jcf.pooling.in_dim == 16
    assert build(reduce=0).pooling.in_dim == 1280


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"pooling": "average", "size": 96},
        {"norm_exponent": 0.0, "pooling_options": {"start": "average"}},
        {"freeze": "blocks3", "normalise": ((8, 0.25), (24, 0.75))},
        {"mirror": True},
    ],
)
def test_a_loaded_model_gives_bit_identical_embeddings(tmp_path, options):
    model, x = build(**options).eval(), images(3)
    model.fit(model.backbone(x), grid=model.backbone.grid(64, 64))
    model.save(tmp_path / "model")
    loaded = secondsight.load(tmp_path / "model")
    assert torch.equal(loaded(x), model(x))
    assert loaded.fingerprint() == model.fingerprint()
    assert loaded.config == model.config
    assert loaded.backbone.frozen == model.backbone.frozen
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["config.toml", "model.safetensors"]


@pytest.mark.parametrize("pooling", ["jcf-32-8", "jcf-pairs-32-8", "jcf-32", "average"])
def test_a_model_is_loaded_and_used_without_torchs_compiler(tmp_path, pooling):
    """Its import takes a second, a third of the time in which a search from the command line answers."""
    build(pooling=pooling, backbone_options={"both": "pairs" in pooling}).save(tmp_path / "m")
    code = (
        "import sys, torch, secondsight\n"
        f"model = secondsight.load({str(tmp_path / 'm')!r})\n"
        "with torch.no_grad(): model(torch.zeros(1, 3, 64, 64, dtype=torch.uint8))\n"
        "print(sorted({'torch._dynamo', 'sympy'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_full_disk_is_said_as_one(tmp_path, monkeypatch):
    def full(*_, **__):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(OSError, match="No space left on device") as caught:
        build().save(tmp_path / "model")
    assert caught.value.errno == errno.ENOSPC
    assert not (tmp_path / "model").exists()


def test_the_fingerprint_sees_every_weight_and_every_option():
    model = build(norm_exponent=0.5)
    prints = {model.fingerprint(), build(norm_exponent=0.5, pooling="jcf-4").fingerprint()}
    with torch.no_grad():
        model.pooling.uv[0, 0, 0] += 1e-3
    prints.add(model.fingerprint())
    assert len(prints) == 3


def test_parts_are_normalised_apart_and_given_their_length():
    model = build(normalise=((8, 3.0), (24, 0.5)))
    z = torch.randn(5, 32)
    parts = [
        torch.nn.functional.normalize(p, dim=1) * w for p, w in zip(z.split([8, 24], dim=1), (3.0, 0.5), strict=True)
    ]
    torch.testing.assert_close(model.normalise(z), torch.nn.functional.normalize(torch.cat(parts, 1), dim=1))
    with pytest.raises(ConfigError, match="add up to 9"):
        build(normalise=((4, 1.0), (5, 1.0)))


def test_images_of_any_size_and_masks_work():
    model = build().eval()
    for size in (32, 96, 130):
        assert model(images(1, size)).shape == (1, 32)
    features = model.backbone(images())
    mask = torch.ones(features.shape[:2], dtype=torch.bool)
    mask[1] = False
    z = model.pool(features, mask)
    assert (z[1] == 0).all()
    assert torch.isfinite(model.normalise(z)).all()


def test_a_model_saved_in_format_1_gives_the_same_embeddings():
    """Version 0.1.0 wrote the directory; ``format-1-vectors.npy`` is what it made of these images.

    On the processor that it ran on they are the same bits; another one sums in another order (2e-7 apart, seen).
    """
    import train_tiny  # noqa: F401 registers the backbone

    saved = Path(__file__).parent / "saved"
    model = secondsight.load(saved / "format-1")
    assert (model.size, model.views, model.backbone.frozen) == (16, ("plain", "mirror"), "first")
    x = (torch.rand(6, 3, 16, 16, generator=torch.Generator().manual_seed(1)) * 255).byte()
    with torch.no_grad():
        np.testing.assert_allclose(model(x), np.load(saved / "format-1-vectors.npy"), rtol=0, atol=1e-6)


class TestReduction:
    def test_exponent_one_is_the_paper_s_l2_normalisation(self):
        x, m = torch.randn(2, 5, 8), Reduction(8, 4)
        torch.testing.assert_close(m(x), torch.nn.functional.normalize(x @ m.weight, dim=-1))

    def test_exponent_zero_keeps_the_norms_up_to_the_data_s_mean(self):
        x, m = torch.randn(2, 500, 8) * 7, Reduction(8, 4, norm_exponent=0.0)
        m.fit(x)
        y = x @ m.weight
        torch.testing.assert_close(m(x), y / y.norm(dim=-1).mean())

    def test_many_locations_go_through_a_convolution_that_is_the_same_product(self):
        x, w = torch.randn(8, 300, 12, requires_grad=True), torch.randn(12, 5, requires_grad=True)
        assert x.shape[0] * x.shape[1] >= pointwise.MANY
        g = torch.randn(8, 300, 5)
        found, expected = pointwise.pointwise(x, w), x @ w
        torch.testing.assert_close(found, expected)
        for ours, theirs in zip(
            torch.autograd.grad(found, (x, w), g), torch.autograd.grad(expected, (x, w), g), strict=True
        ):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)

    def test_a_learned_exponent_gets_a_gradient(self):
        m = Reduction(8, 4, norm_exponent=0.5, learn_exponent=True)
        m(torch.randn(2, 5, 8)).square().sum().backward()
        assert m.exponent.grad is not None
        assert m.exponent.grad.abs() > 0

    def test_fit_keeps_the_directions_of_most_energy_uncentred(self):
        basis = torch.linalg.qr(torch.randn(8, 8)).Q
        x = (torch.randn(5000, 8) * torch.tensor([1.0, 3, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1])) @ basis.T
        x = x + 10 * basis[:, 2]  # a mean direction with little variance
        m = Reduction(8, 3)
        m.fit(x.view(50, 100, 8))
        kept = (m.weight @ m.weight.T).diagonal()
        energy = (basis.T @ m.weight @ m.weight.T @ basis).diagonal()
        assert (energy[:3] > 0.99).all(), "the mean direction is among those kept"
        assert kept.sum().item() == pytest.approx(3, abs=1e-3)

    def test_with_nothing_to_reduce_the_channels_stay_as_they_are(self):
        x, m = torch.randn(2, 500, 8) * 7, Reduction(8, 8, norm_exponent=0.0)
        m.fit(x)
        torch.testing.assert_close(m(x), x / x.norm(dim=-1).mean())

    def test_zero_features_stay_finite(self):
        m = Reduction(8, 4)
        x = torch.zeros(1, 3, 8, requires_grad=True)
        m(x).sum().backward()
        assert torch.isfinite(m(x)).all()
        assert torch.isfinite(x.grad).all()

    def test_wrong_channels_are_refused(self):
        with pytest.raises(ShapeError, match="8 channels"):
            Reduction(8, 4)(torch.randn(1, 3, 9))
        with pytest.raises(ConfigError, match="norm_exponent"):
            Reduction(8, 4, norm_exponent=2.0)


class TestBadDirectories:
    @pytest.fixture
    def saved(self, tmp_path):
        build().save(tmp_path / "m")
        return tmp_path / "m"

    def test_not_a_model(self, tmp_path):
        with pytest.raises(WeightsError, match=r"no config\.toml"):
            secondsight.load(tmp_path)

    def test_an_unknown_key_names_the_nearest(self, saved):
        text = (saved / "config.toml").read_text()
        (saved / "config.toml").write_text("dimm = 3\n" + text)
        with pytest.raises(ConfigError, match=r"unknown key 'dimm'; did you mean 'dim'"):
            secondsight.load(saved)

    def test_an_ill_typed_value_names_its_place(self, saved):
        text = (saved / "config.toml").read_text()
        (saved / "config.toml").write_text(text.replace("dim = 32", 'dim = "wide"'))
        with pytest.raises(ConfigError, match=r"dim.*'wide'"):
            secondsight.load(saved)

    def test_a_config_of_another_model_lists_what_does_not_fit(self, saved):
        text = (saved / "config.toml").read_text()
        (saved / "config.toml").write_text(text.replace("jcf-4-2", "jcf-4"))
        with pytest.raises(WeightsError, match=r"unexpected \['pooling\.mixers\.0\.weight'"):
            secondsight.load(saved)

    def test_shapes_that_do_not_fit_are_named(self, saved):
        text = (saved / "config.toml").read_text()
        (saved / "config.toml").write_text(text.replace("dim = 32", "dim = 64"))
        with pytest.raises(WeightsError, match=r"pooling\.uv has shape \(2, 16, 64\)"):
            secondsight.load(saved)

    def test_damaged_weights(self, saved):
        (saved / "model.safetensors").write_bytes(b"not weights")
        with pytest.raises(WeightsError, match="damaged"):
            secondsight.load(saved)

    def test_broken_toml(self, saved):
        (saved / "config.toml").write_text("[[[")
        with pytest.raises(ConfigError, match="not valid TOML"):
            secondsight.load(saved)

    def test_unknown_names(self):
        with pytest.raises(UnknownName, match="backbone"):
            build(backbone="vgg61")
        with pytest.raises(SecondsightError, match="pooling"):
            build(pooling="jjcf")

    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            ("dim", "1000000000", "dim: Input should be less than or equal to 1048576"),
            ("reduce", "1000000000", "reduce: Input should be less than or equal to 1048576"),
            ("reduce", "-3", "reduce: Input should be greater than or equal to 0"),
            ("keep", "-5", "keep: Input should be greater than or equal to 1"),
            ("keep", "900000", r"does not fit its config: missing \['keep'\]"),
            ("pooling", '"jcf-100000-100000"', r"\(4, 16\), the config asks for \(100000, 16\)"),
            ("pooling_options", "{ width = 1000000000, whiten = 0.25 }", "does not fit its config: missing"),
            ("format", "99", "a newer one is needed"),
            ("size", "1000000000", "size: Input should be less than or equal to 16384"),
            ("backbone", "3", "backbone: Input should be a valid string"),
            ("backbone", '""', "unknown backbone"),
        ],
    )
    def test_a_config_that_asks_for_too_much_is_refused_before_memory_is_taken(self, saved, key, value, message):
        text = (saved / "config.toml").read_text()
        lines = [line for line in text.splitlines() if not line.startswith((f"{key} ", f"[{key}]"))]
        (saved / "config.toml").write_text("\n".join([f"{key} = {value}", *lines]))
        with pytest.raises(SecondsightError, match=message):
            secondsight.load(saved)

    def test_nesting_and_length_are_bounded(self, saved):
        for text in ("a = " + "[" * 100_000, ".".join(["a"] * 50_000) + " = 1", "#" * (2 << 20)):
            (saved / "config.toml").write_text(text)
            with pytest.raises(ConfigError, match="not a configuration"):
                secondsight.load(saved)

    def test_weights_that_were_changed_or_are_of_another_kind_are_noticed(self, saved):
        from safetensors import safe_open
        from safetensors.torch import load_file, save_file

        path = saved / "model.safetensors"
        with safe_open(path, framework="pt") as file:
            stored = file.metadata()
        weights = load_file(path)
        weights["pooling.uv"][0, 0, 0] += 1
        save_file(weights, path, metadata=stored)
        with pytest.raises(WeightsError, match="fingerprint differs"):
            secondsight.load(saved)
        save_file({**weights, "pooling.uv": weights["pooling.uv"].to(torch.int8)}, path, metadata=stored)
        with pytest.raises(WeightsError, match=r"pooling\.uv is torch\.int8"):
            secondsight.load(saved)
