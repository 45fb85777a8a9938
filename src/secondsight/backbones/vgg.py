"""VGG16 (Simonyan & Zisserman, 2015), its convolutions only, with torchvision's parameter names."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from secondsight.backbones.backbone import Backbone
from secondsight.backbones.preprocessing import IMAGENET
from secondsight.backbones.winograd import conv3x3

# Channels and number of 3×3 convolutions of conv1 … conv5; each stage ends with a 2×2 max pooling.
_PLAN = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))

WIDE = 128
"""Channels from which Winograd's form takes less time than the plain one on a CPU (``benchmarks/convolutions.py``)."""


class VGG16(Backbone):
    """conv1 … conv5; at 224 pixels 7×7 local features after pool5, or 14×14 with ``last_pool=False`` (conv5_3)."""

    default_weights = "hub:timm/vgg16.tv_in1k/model.safetensors"

    def __init__(self, *, last_pool: bool = True):
        names = [f"conv{number}" for number in range(1, len(_PLAN) + 1)]
        super().__init__(out_dim=_PLAN[-1][0], preprocessing=IMAGENET, stages=names)
        self.last_pool = last_pool
        self.features = nn.Sequential()
        self._ends = []
        channels = 3
        for width, depth in _PLAN:
            for _ in range(depth):
                self.features.append(Conv3x3(channels, width))
                self.features.append(nn.ReLU(inplace=True))
                channels = width
            self.features.append(nn.MaxPool2d(2))
            self._ends.append(len(self.features))
        if not last_pool:
            del self.features[-1]
        self.apply(_initialise)

    def stage_modules(self, stage: str) -> Iterable[nn.Module]:
        index = self.stages.index(stage)
        start = self._ends[index - 1] if index else 0
        return list(self.features)[start : self._ends[index]]

    def grid(self, height: int, width: int) -> tuple[int, int]:
        stride = 32 if self.last_pool else 16
        return height // stride, width // stride


class Conv3x3(nn.Conv2d):
    """A 3×3 convolution that takes the shorter way where there is one: many channels, on a CPU, in full precision."""

    def __init__(self, channels: int, width: int):
        super().__init__(channels, width, 3, padding=1)

    def _get_name(self) -> str:
        return "Conv2d"  # in print, and so in the name of a cache: what it computes, not how

    def forward(self, input: Tensor) -> Tensor:
        plain = torch.jit.is_tracing() or torch.compiler.is_compiling()  # exported programs: one convolution is clearer
        if plain or min(self.in_channels, self.out_channels) < WIDE or not _full_precision_on_cpu(input, self.weight):
            return super().forward(input)
        return conv3x3(input, self.weight, self.bias)


def _full_precision_on_cpu(*tensors: Tensor) -> bool:
    exact = all(t.device.type == "cpu" and t.dtype in (torch.float32, torch.float64) for t in tensors)
    return exact and not torch.is_autocast_enabled("cpu")


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_uniform_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(module.bias)  # pyright: ignore[reportArgumentType] every convolution here has one
