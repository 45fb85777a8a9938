"""``timm:``: the smallest models of timm itself, and what is said when timm cannot be had."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from secondsight.backbones import build
from secondsight.errors import MissingExtra, ShapeError, UnknownName, WeightsError

BESIDE = Path(sys.prefix) / "timm"  # `make` puts timm here: its torchvision must not be seen by other packages


@pytest.fixture(scope="module")
def timm():
    """timm, with a torchvision whose compiled half may be missing: two operators that no backbone uses are declared."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, operator):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    if BESIDE.is_dir():
        sys.path.append(str(BESIDE))
    try:
        yield pytest.importorskip("timm", reason=f"timm is neither installed nor in {BESIDE}")
    finally:
        if BESIDE.is_dir():
            sys.path.remove(str(BESIDE))


def photos(*size: int) -> torch.Tensor:
    return torch.randint(0, 256, (2, 3, *size), dtype=torch.uint8)


@pytest.mark.parametrize(
    ("model", "extra"),
    [("test_vit", 1), ("test_vit2", 8), ("test_resnet", None), ("test_convnext", None), ("test_mambaout", None)],
)
def test_features_are_timms_own_on_a_grid(timm, model, extra):
    backbone, images = build(f"timm:{model}", weights=None).eval(), photos(160, 160)
    data = timm.data.resolve_model_data_config(backbone.network)
    mean, std = (torch.tensor(data[key])[:, None, None] for key in ("mean", "std"))
    with torch.no_grad():
        features, theirs = backbone(images), backbone.network.forward_features((images / 255 - mean) / std)
    if extra is not None:
        expected = theirs[:, backbone.network.num_prefix_tokens :]
    elif getattr(backbone.network, "output_fmt", "NCHW") == "NHWC":
        expected = theirs.flatten(1, 2)
    else:
        expected = theirs.flatten(2).mT
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-4)
    h, w = backbone.grid(160, 160)
    assert features.shape == (2, h * w, backbone.out_dim)
    h, w = backbone.grid(192, 128)
    assert backbone(photos(192, 128)).shape == (2, h * w, backbone.out_dim)


@pytest.mark.parametrize("model", ["test_vit", "test_resnet"])
def test_config_rebuilds_it_and_only_what_matters_trains(timm, model):
    backbone, images = build(f"timm:{model}", weights=None).eval(), photos(160, 160)
    again = build(**backbone.config, weights=None).eval()
    again.load_state_dict(backbone.state_dict())
    with torch.no_grad():
        assert torch.equal(again(images), backbone(images))
    backbone.train()(images).square().sum().backward()
    for name, parameter in backbone.named_parameters():
        assert parameter.requires_grad == (parameter.grad is not None), name


def test_a_prefix_of_timms_modules_can_be_frozen(timm):
    backbone = build("timm:test_vit", weights=None, freeze="blocks.1").train()
    backbone(photos(160, 160)).sum().backward()
    trained = {name for name, parameter in backbone.named_parameters() if parameter.grad is not None}
    assert trained
    assert not any(name.startswith(("network.blocks.0", "network.blocks.1", "network.pos_embed")) for name in trained)


def test_the_fingerprint_knows_parameters_that_belong_to_no_stage(timm):
    backbone = build("timm:test_vit", weights=None, freeze="all")
    before = backbone.prefix_fingerprint()
    backbone.network.cls_token.data += 1
    assert backbone.prefix_fingerprint() != before


def test_weights_may_come_from_a_file(timm, tmp_path):
    donor = timm.create_model("test_resnet", num_classes=10)
    torch.save(donor.state_dict(), tmp_path / "w.pth")
    backbone = build("timm:test_resnet", weights=tmp_path / "w.pth")
    assert torch.equal(backbone.network.conv1[0].weight, donor.conv1[0].weight)


def test_unknown_models_and_impossible_sizes_are_explained(timm):
    with pytest.raises(UnknownName, match="unknown timm model 'test_resnett'; did you mean 'test_resnet'"):
        build("timm:test_resnett")
    with pytest.raises(ShapeError, match="refuses an image of 170×160 pixels"):
        build("timm:test_vit", weights=None)(photos(170, 160))


def test_without_a_network_pretrained_weights_are_explained(timm, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(WeightsError, match=r"timm:test_vit cannot be created: .* pass weights=PATH"):
        build("timm:test_vit")


def test_without_timm_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtra, match=r"secondsight\[timm\]"):
        build("timm:resnet18")


def test_a_timm_that_cannot_be_imported_is_reported_with_its_cause(monkeypatch, tmp_path):
    """What a torchvision made for another torch does to timm."""
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(MissingExtra, match=r"operator torchvision::nms does not exist.*made for the installed torch"):
        build("timm:resnet18")
