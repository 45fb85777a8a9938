"""EfficientNet-Lite (Tan & Le, 2019; Lite variants 2020): no squeeze-and-excitation, ReLU6, TensorFlow's padding.

The parameter names are those of the published PyTorch checkpoints, so that these load as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from secondsight.backbones.backbone import Backbone
from secondsight.backbones.preprocessing import Preprocessing
from secondsight.errors import ConfigError


@dataclass(frozen=True)
class Variant:
    """Width and depth multiply the plan of lite0; size is the input the weights were trained at."""

    width: float
    depth: float
    size: int


VARIANTS = (Variant(1.0, 1.0, 224), Variant(1.0, 1.1, 240), Variant(1.1, 1.2, 260))
"""lite0, lite1 and lite2."""

# Of lite0, each stage: blocks, kernel, stride, expansion, output channels.
_PLAN = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
_STEM, _HEAD = 32, 1280  # the Lite variants scale neither


class EfficientNetLite(Backbone):
    """stem, blocks0 … blocks6 (the seven stages of the plan), head; at its own input size 7×7, 8×8 or 9×9 × 1280.

    ``head=False`` leaves out the last 1×1 convolution and gives the 320 (lite2: 352) channels before it; ``both=True``
    gives these behind the 1280, as a last stage of its own name.
    """

    default_weights = "package"

    def __init__(self, variant: Variant, *, head: bool = True, both: bool = False):
        if both and not head:
            raise ConfigError("both = true gives the last layer beside the one before; it needs head = true")
        final = ["both"] if both else ["head"] if head else []
        stages = ["stem", *(f"blocks{index}" for index in range(len(_PLAN))), *final]
        last = _channels(_PLAN[-1][-1], variant.width)
        super().__init__(
            out_dim=_HEAD * head + last * (both or not head),
            preprocessing=Preprocessing(mean=(127, 127, 127), std=(128, 128, 128), range=255, size=variant.size),
            stages=stages,
        )
        self.layers = (_HEAD, last) if both else ()
        self._conv_stem = SameConv2d(3, _STEM, 3, stride=2, bias=False)
        self._bn0 = _norm(_STEM)
        self._swish = nn.ReLU6(inplace=True)
        blocks, self._ends = _blocks(variant)
        self._blocks = nn.ModuleList(blocks)
        self._conv_head, self._bn1 = None, None
        if head:
            self._conv_head = nn.Conv2d(last, _HEAD, 1, bias=False)
            self._bn1 = _norm(_HEAD)
        else:
            self.leaves_out = (*self.leaves_out, "_conv_head.", "_bn1.")
        self.apply(_initialise)

    def stage_modules(self, stage: str) -> Iterable[nn.Module]:
        if stage == "stem":
            return self._conv_stem, self._bn0, self._swish
        if stage in ("head", "both") and self._conv_head is not None and self._bn1 is not None:
            return self._conv_head, self._bn1, self._swish
        index = self.stages.index(stage) - 1
        start = self._ends[index - 1] if index else 0
        return list(self._blocks)[start : self._ends[index]]

    def run(self, x: Tensor, start: int, stop: int) -> Tensor:
        if stop < len(self.stages) or self.stages[-1] != "both":
            return super().run(x, start, stop)
        before = super().run(x, start, stop - 1)
        return torch.cat([super().run(before, stop - 1, stop), before], 1)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        return -(-height // 32), -(-width // 32)


class InvertedResidual(nn.Module):
    """1×1 expansion → depthwise k×k → 1×1 projection, with a shortcut where the shape stays."""

    def __init__(self, channels: int, out: int, *, kernel: int, stride: int, expansion: int):
        super().__init__()
        wide = channels * expansion
        self._expand_conv, self._bn0 = None, None
        if expansion != 1:
            self._expand_conv = nn.Conv2d(channels, wide, 1, bias=False)
            self._bn0 = _norm(wide)
        self._depthwise_conv = SameConv2d(wide, wide, kernel, stride=stride, groups=wide, bias=False)
        self._bn1 = _norm(wide)
        self._project_conv = nn.Conv2d(wide, out, 1, bias=False)
        self._bn2 = _norm(out)
        self._swish = nn.ReLU6(inplace=True)
        self._shortcut = stride == 1 and channels == out

    def forward(self, x: Tensor) -> Tensor:
        y = x
        if self._expand_conv is not None and self._bn0 is not None:
            y = self._swish(self._bn0(self._expand_conv(y)))
        y = self._swish(self._bn1(self._depthwise_conv(y)))
        y = self._bn2(self._project_conv(y))
        return x + y if self._shortcut else y


class SameConv2d(nn.Conv2d):
    """TensorFlow's SAME: ⌈n / stride⌉ outputs, and where the padding is odd the extra row and column come last."""

    def __init__(self, channels: int, out: int, kernel: int, *, stride: int, groups: int = 1, bias: bool):
        # At stride 1 the padding is the same on both sides, whatever the size: the convolution does it without a copy.
        padding = kernel // 2 if stride == 1 else 0
        super().__init__(channels, out, kernel, stride=stride, padding=padding, groups=groups, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        if self.stride[0] == 1:
            return super().forward(input)
        (top, bottom), (left, right) = (self._padding(size) for size in input.shape[-2:])
        return super().forward(F.pad(input, (left, right, top, bottom)))

    def _padding(self, size: int) -> tuple[int, int]:
        stride, kernel = self.stride[0], self.kernel_size[0]
        total = max(kernel - (size % stride or stride), 0)
        return total // 2, total - total // 2


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def _blocks(variant: Variant) -> tuple[list[InvertedResidual], list[int]]:
    """All blocks in a row, and after how many of them each stage ends."""
    blocks, ends, channels = [], [], _STEM
    for index, (depth, kernel, stride, expansion, width) in enumerate(_PLAN):
        out = _channels(width, variant.width)
        if 0 < index < len(_PLAN) - 1:  # the Lite variants deepen neither the first nor the last stage
            depth = math.ceil(depth * variant.depth)
        for repeat in range(depth):
            first = stride if repeat == 0 else 1
            blocks.append(InvertedResidual(channels, out, kernel=kernel, stride=first, expansion=expansion))
            channels = out
        ends.append(len(blocks))
    return blocks, ends


def _channels(channels: int, width: float) -> int:
    """``channels · width`` rounded to a multiple of 8, never down by more than a tenth."""
    scaled = channels * width
    rounded = max(8, int(scaled + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * scaled else rounded


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_uniform_(module.weight, mode="fan_out", nonlinearity="relu")
        module.weight.data.mul_(module.groups**0.5)  # fan_out counts all groups; a channel only sees its own
