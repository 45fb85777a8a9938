"""Each network against an independent account of it: transformers' ResNet, the published checkpoints, plain loops."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import ResNetConfig, ResNetModel

from secondsight.backbones import build
from secondsight.backbones.lite import SameConv2d


def test_parameters_are_those_of_the_published_networks_without_classifier():
    counts = {
        name: sum(parameter.numel() for parameter in build(name, weights=None).parameters())
        for name in ("vgg16", "resnet50", "resnet50-v1", "efficientnet-lite0")
    }
    assert counts["vgg16"] == 138_357_544 - 123_642_856  # torchvision's vgg16 less its three linear layers
    assert counts["resnet50"] == counts["resnet50-v1"] == 25_557_032 - 2_049_000
    assert counts["efficientnet-lite0"] == 4_652_008 - 1_281_000


def test_vgg16_is_thirteen_convolutions_and_five_poolings():
    backbone = build("vgg16", weights=None).eval()
    convolutions = [module for module in backbone.modules() if isinstance(module, nn.Conv2d)]
    images = torch.rand(2, 3, 64, 96)
    x = (images - torch.tensor([0.485, 0.456, 0.406])[:, None, None]) / torch.tensor([0.229, 0.224, 0.225])[
        :, None, None
    ]
    for index, convolution in enumerate(convolutions):
        x = F.conv2d(x, convolution.weight, convolution.bias, padding=1).relu()
        if index in (1, 3, 6, 9, 12):
            x = F.max_pool2d(x, 2)
    with torch.no_grad():
        torch.testing.assert_close(backbone(images), x.flatten(2).transpose(1, 2), rtol=1e-4, atol=1e-4)


def their_name(ours: str) -> str:
    """Our (torchvision's) parameter names in transformers' words."""
    parts = ours.split(".")
    kind = parts[-1]
    if parts[0] in ("conv1", "bn1"):
        return f"embedder.embedder.{'convolution' if parts[0] == 'conv1' else 'normalization'}.{kind}"
    place = f"encoder.stages.{int(parts[0][-1]) - 1}.layers.{parts[1]}"
    if parts[2] == "downsample":
        return f"{place}.shortcut.{'convolution' if parts[3] == '0' else 'normalization'}.{kind}"
    part = "convolution" if parts[2].startswith("conv") else "normalization"
    return f"{place}.layer.{int(parts[2][-1]) - 1}.{part}.{kind}"


@pytest.mark.parametrize(("version", "in_first"), [("v1.5", False), ("v1", True)])
def test_resnet50_is_that_of_transformers(version, in_first):
    theirs = ResNetModel(ResNetConfig(downsample_in_bottleneck=in_first)).eval()
    for module in theirs.modules():
        if isinstance(
            module, nn.BatchNorm2d
        ):  # statistics and scales as in a trained network, so that values stay tame
            nn.init.uniform_(module.weight, 0.3, 0.6)
            nn.init.uniform_(module.running_var, 0.5, 2)
            nn.init.normal_(module.running_mean, std=0.1)
    state = theirs.state_dict()
    ours = build("resnet50", weights=None, version=version, eps=1e-5).eval()
    ours.load_state_dict({name: state[their_name(name)] for name in ours.state_dict()})
    images = torch.rand(2, 3, 75, 96)
    with torch.no_grad():
        expected = theirs(ours.prepare(images)).last_hidden_state.flatten(2).transpose(1, 2)
        torch.testing.assert_close(ours(images), expected, rtol=1e-4, atol=1e-4)


def test_the_versions_of_resnet50_stride_on_different_convolutions():
    v15, v1 = build("resnet50", weights=None), build("resnet50", weights=None, version="v1")
    assert (v15.layer2[0].conv1.stride, v15.layer2[0].conv2.stride) == ((1, 1), (2, 2))
    assert (v1.layer2[0].conv1.stride, v1.layer2[0].conv2.stride) == ((2, 2), (1, 1))
    assert (v15.bn1.eps, v1.bn1.eps) == (1e-5, 1e-3)
    assert build("resnet50-v1", weights=None, eps=1e-5).layer4[2].bn3.eps == 1e-5


@pytest.mark.parametrize("kernel", [3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [(6, 6), (7, 7), (6, 9), (1, 2)])
def test_same_padding_is_tensorflows(kernel, stride, size):
    """Output i is the window that starts at stride · i − ⌊total padding / 2⌋: written as loops."""
    convolution = SameConv2d(1, 1, kernel, stride=stride, bias=False)
    image = torch.randn(1, 1, *size)
    outputs = [-(-n // stride) for n in size]
    before = [max((out - 1) * stride + kernel - n, 0) // 2 for out, n in zip(outputs, size, strict=True)]
    expected = torch.zeros(outputs)
    for i in range(outputs[0]):
        for j in range(outputs[1]):
            for a in range(kernel):
                for b in range(kernel):
                    row, column = stride * i + a - before[0], stride * j + b - before[1]
                    if 0 <= row < size[0] and 0 <= column < size[1]:
                        expected[i, j] += convolution.weight[0, 0, a, b].detach() * image[0, 0, row, column]
    torch.testing.assert_close(convolution(image)[0, 0].detach(), expected)


# Features of the reference package (efficientnet_lite_pytorch 0.1.0, with the same weights) for the image below:
# mean, standard deviation, largest location norm.
REFERENCE = {
    "efficientnet-lite0": (0.172865, 0.716756, 41.779),
    "efficientnet-lite1": (0.175558, 0.672341, 42.2807),
    "efficientnet-lite2": (0.156114, 0.628625, 44.88),
}


def plaid(size: int) -> torch.Tensor:
    """A picture that anyone can compute: crossing waves of three different lengths."""
    rows, columns = torch.arange(size)[:, None], torch.arange(size)[None, :]
    return torch.stack([(rows * k + columns * (7 - k)) % 256 for k in (2, 3, 5)])[None].to(torch.uint8)


@pytest.mark.parametrize("name", REFERENCE)
def test_efficientnet_lite_gives_the_features_of_its_reference_implementation(name):
    backbone = build(name).eval()
    with torch.no_grad():
        features = backbone(plaid(backbone.preprocessing.size))
    found = (features.mean().item(), features.std().item(), features.norm(dim=-1).max().item())
    assert found == pytest.approx(REFERENCE[name], rel=1e-4)
