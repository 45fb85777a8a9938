"""VGG16 (Simonyan & Zisserman, 2015), its convolutions only, with torchvision's parameter names."""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from secondsight.backbones.backbone import Backbone
from secondsight.backbones.preprocessing import IMAGENET

# Channels and number of 3×3 convolutions of conv1 … conv5; each stage ends with a 2×2 max pooling.
_PLAN = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


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
                self.features.append(nn.Conv2d(channels, width, 3, padding=1))
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


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_uniform_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(module.bias)  # pyright: ignore[reportArgumentType] every convolution here has one
