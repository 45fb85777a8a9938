"""ResNet-50 (He et al., 2016), without its classifier, with torchvision's parameter names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import Tensor, nn

from secondsight.backbones.backbone import Backbone
from secondsight.backbones.preprocessing import CAFFE, IMAGENET, Preprocessing
from secondsight.errors import ConfigError, require_known


@dataclass(frozen=True)
class Version:
    """What goes together: where a stage's stride sits, BatchNorm's epsilon, and the pixels that were trained on."""

    stride_on_1x1: bool
    eps: float
    preprocessing: Preprocessing
    default_weights: str | None


VERSIONS = {
    # torchvision, timm: the stride is on the 3×3 convolution.
    "v1.5": Version(False, 1e-5, IMAGENET, "hub:timm/resnet50.tv_in1k/model.safetensors"),
    # The original and Keras: the stride is on the first 1×1, and the pixels are Caffe's.
    "v1": Version(True, 1e-3, CAFFE, None),
}

_PLAN = ((64, 3), (128, 4), (256, 6), (512, 3))  # channels and blocks of layer1 … layer4
_EXPANSION = 4


class ResNet50(Backbone):
    """stem, layer1 … layer4 (the paper's conv1 … conv5); at 224 pixels 7×7 features, 14×14 with ``last_stride=1``.

    ``version="v1"`` is the original with the stride on the first 1×1 of a stage; it brings Keras' epsilon (``eps``
    overrides it) and Caffe's pixels along, because the weights of that version were trained with them.
    """

    aliases = {"conv1": "stem", "conv2": "layer1", "conv3": "layer2", "conv4": "layer3", "conv5": "layer4"}  # noqa: RUF012

    def __init__(self, *, version: str = "v1.5", last_stride: int = 2, eps: float | None = None):
        require_known("version of resnet50", version, VERSIONS)
        if last_stride not in (1, 2):
            raise ConfigError(f"resnet50: last_stride must be 1 or 2, got {last_stride}")
        chosen = VERSIONS[version]
        stages = ["stem", *(f"layer{number}" for number in range(1, 5))]
        super().__init__(out_dim=_PLAN[-1][0] * _EXPANSION, preprocessing=chosen.preprocessing, stages=stages)
        self.default_weights = chosen.default_weights
        self.version = version
        self.last_stride = last_stride
        eps = chosen.eps if eps is None else eps
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64, eps=eps)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = 64
        for (width, depth), name, stride in zip(_PLAN, stages[1:], (1, 2, 2, last_stride), strict=True):
            blocks = []
            for index in range(depth):
                first = stride if index == 0 else 1
                blocks.append(Bottleneck(channels, width, stride=first, stride_on_1x1=chosen.stride_on_1x1, eps=eps))
                channels = width * _EXPANSION
            self.add_module(name, nn.Sequential(*blocks))
        self.apply(_initialise)

    def stage_modules(self, stage: str) -> Iterable[nn.Module]:
        if stage == "stem":
            return self.conv1, self.bn1, self.relu, self.maxpool
        return (self.get_submodule(stage),)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        stride = 16 * self.last_stride
        return -(-height // stride), -(-width // stride)  # every halving rounds up


def resnet50_v1(*, last_stride: int = 2, eps: float | None = None) -> ResNet50:
    """``resnet50`` with ``version="v1"``."""
    return ResNet50(version="v1", last_stride=last_stride, eps=eps)


class Bottleneck(nn.Module):
    """1×1 → 3×3 → 1×1 with a shortcut; the shortcut is projected where the shape changes."""

    def __init__(self, channels: int, width: int, *, stride: int, stride_on_1x1: bool, eps: float):
        super().__init__()
        out = width * _EXPANSION
        first, second = (stride, 1) if stride_on_1x1 else (1, stride)
        self.conv1 = nn.Conv2d(channels, width, 1, stride=first, bias=False)
        self.bn1 = nn.BatchNorm2d(width, eps=eps)
        self.conv2 = nn.Conv2d(width, width, 3, stride=second, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width, eps=eps)
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out, eps=eps)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or channels != out:
            shortcut = nn.Conv2d(channels, out, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(out, eps=eps))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        return self.relu(self.bn3(self.conv3(x)) + shortcut)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_uniform_(module.weight, mode="fan_out", nonlinearity="relu")
