"""A decoded picture becomes a (3, S, S) uint8 tensor: what a network sees, before its own normalisation.

A transform is a pure function of the picture and of (seed, epoch, index), so that a run can be repeated and resumed
image by image, whoever decodes it. Resizing averages over every pixel it leaves out (antialiasing): results are those
of Pillow, to one grey level (bicubic: but for some pixels at hard edges). Memory is channels-last, which is how
pictures are decoded and how convolutions like them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from secondsight.data.loading.jitter import NO_JITTER, Jitter
from secondsight.errors import ConfigError, require_known

Interpolation = Literal["bilinear", "bicubic"]

# The decoder may shrink a JPEG to this many times what is needed. The result then agrees with the full decoding to 42
# dB on average; with 1.0 it would be 36 dB, because nothing would be left to average over.
HEADROOM = 1.25


@runtime_checkable
class Transform(Protocol):
    """``transform(pixels (H, W, 3) uint8, seed=, epoch=, index=) -> (3, S, S) uint8``.

    ``out``, where it is given, is (3, S, S) memory, channels last, that the result may be written to and returned as: a
    loader gives the row of its batch, for fresh memory costs half as much again as resizing. It may be ignored.
    """

    deterministic: ClassVar[bool]
    """Whether seed, epoch and index make no difference; only then can features be cached."""

    @property
    def size(self) -> int:
        """S."""
        ...

    @property
    def target(self) -> int:
        """The decoder may shrink a picture as long as no side falls below this."""
        ...

    @property
    def key(self) -> str:
        """Names the transform and all its settings: equal keys, equal results."""
        ...

    def __call__(
        self, pixels: np.ndarray, *, seed: int = 0, epoch: int = 0, index: int = 0, out: Tensor | None = None
    ) -> Tensor: ...


@dataclass(frozen=True)
class Resize:
    """To S×S, whatever the shape: the paper's."""

    size: int = 224
    interpolation: Interpolation = "bilinear"

    deterministic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check(self.size, self.interpolation)

    @property
    def target(self) -> int:
        return math.ceil(HEADROOM * self.size)

    @property
    def key(self) -> str:
        return f"resize-{self.size}-{self.interpolation}"

    def __call__(
        self, pixels: np.ndarray, *, seed: int = 0, epoch: int = 0, index: int = 0, out: Tensor | None = None
    ) -> Tensor:
        return resized(pixels, self.size, self.size, self.interpolation, out=out)

    def seen(self, height: int, width: int) -> tuple[float, float, float, float]:
        """The part of a picture that comes out: left, top, right, bottom, as fractions of its sides."""
        return 0.0, 0.0, 1.0, 1.0


@dataclass(frozen=True)
class ResizeCrop:
    """The shorter side to ``resize`` (unless given: size / 0.875, as is customary), then the S×S centre."""

    size: int = 224
    resize: int | None = None
    interpolation: Interpolation = "bilinear"

    deterministic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check(self.size, self.interpolation)
        if self.shorter < self.size:
            raise ConfigError(f"ResizeCrop: resize {self.resize} is smaller than the crop of {self.size} taken from it")

    @property
    def shorter(self) -> int:
        """The shorter side before cropping."""
        return round(self.size / 0.875) if self.resize is None else self.resize

    @property
    def target(self) -> int:
        return math.ceil(HEADROOM * self.shorter)

    @property
    def key(self) -> str:
        return f"resize{self.shorter}-crop-{self.size}-{self.interpolation}"

    def __call__(
        self, pixels: np.ndarray, *, seed: int = 0, epoch: int = 0, index: int = 0, out: Tensor | None = None
    ) -> Tensor:
        high, wide, top, left = self._sides(*pixels.shape[:2])
        whole = resized(pixels, high, wide, self.interpolation)
        return whole[:, top : top + self.size, left : left + self.size]

    def seen(self, height: int, width: int) -> tuple[float, float, float, float]:
        """The part of a picture that comes out: left, top, right, bottom, as fractions of its sides."""
        high, wide, top, left = self._sides(height, width)
        return left / wide, top / high, (left + self.size) / wide, (top + self.size) / high

    def _sides(self, height: int, width: int) -> tuple[int, int, int, int]:
        """Height and width after resizing, and where the crop begins, from the top and from the left."""
        # Rounding as torchvision's Resize and CenterCrop do: published networks were evaluated with it.
        high = self.shorter if height <= width else int(self.shorter * height / width)
        wide = self.shorter if width <= height else int(self.shorter * width / height)
        return high, wide, round((high - self.size) / 2), round((wide - self.size) / 2)


@dataclass(frozen=True)
class RandomResizedCrop:
    """A random part of the picture to S×S, mirrored half of the time, in slightly other colours.

    The part has ``scale`` of the area (uniform) and an aspect within ``ratio`` (log-uniform); where ten tries find none
    that fits, the largest centre part with an allowed aspect is taken.
    """

    size: int = 224
    scale: tuple[float, float] = (0.2, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    jitter: Jitter = NO_JITTER
    interpolation: Interpolation = "bilinear"

    deterministic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _check(self.size, self.interpolation)
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise ConfigError(f"RandomResizedCrop: scale must be 0 < low ≤ high ≤ 1, got {self.scale}")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise ConfigError(f"RandomResizedCrop: ratio must be 0 < low ≤ high, got {self.ratio}")
        if not 0 <= self.flip <= 1:
            raise ConfigError(f"RandomResizedCrop: flip is a probability, got {self.flip}")

    @property
    def target(self) -> int:
        # The smallest part of a picture with sides ≥ m has sides ≥ m · √(scale / aspect): enough if that is S.
        aspect = max(self.ratio[1], 1 / self.ratio[0])
        return math.ceil(self.size * math.sqrt(aspect / self.scale[0]))

    @property
    def key(self) -> str:
        low, high = self.scale
        thin, wide = self.ratio
        return f"random-{self.size}-{low}:{high}-{thin}:{wide}-{self.flip}-{self.jitter.key}-{self.interpolation}"

    def __call__(
        self, pixels: np.ndarray, *, seed: int = 0, epoch: int = 0, index: int = 0, out: Tensor | None = None
    ) -> Tensor:
        rng = np.random.default_rng((seed, epoch, index))
        top, left, height, width = self.part(pixels.shape[0], pixels.shape[1], rng)
        part = pixels[top : top + height, left : left + width]
        image = resized(part, self.size, self.size, self.interpolation, out=out)
        if rng.random() < self.flip:
            image = image.flip(-1)
        return self.jitter(image, rng)

    def part(self, height: int, width: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
        """(top, left, height, width) of the part to show."""
        for _ in range(10):
            area, shape, y, x = rng.random(4)
            pixels = height * width * (self.scale[0] + area * (self.scale[1] - self.scale[0]))
            aspect = math.exp(math.log(self.ratio[0]) + shape * math.log(self.ratio[1] / self.ratio[0]))
            w, h = round(math.sqrt(pixels * aspect)), round(math.sqrt(pixels / aspect))
            if 0 < w <= width and 0 < h <= height:
                return int(y * (height - h + 1)), int(x * (width - w + 1)), h, w
        aspect = min(max(width / height, self.ratio[0]), self.ratio[1])
        w, h = min(width, max(1, round(height * aspect))), min(height, max(1, round(width / aspect)))
        return (height - h) // 2, (width - w) // 2, h, w


@dataclass(frozen=True)
class Viewed:
    """What another transform makes of a picture, seen through a function of pixels: its mirror image, say."""

    transform: Transform
    name: str
    view: Callable[[Tensor], Tensor]

    deterministic: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.transform.deterministic:
            raise ConfigError(f"only a deterministic transform has other views, not {self.transform.key}")

    @property
    def size(self) -> int:
        return self.transform.size

    @property
    def target(self) -> int:
        return self.transform.target

    @property
    def key(self) -> str:
        return f"{self.name}-{self.transform.key}"

    def __call__(
        self, pixels: np.ndarray, *, seed: int = 0, epoch: int = 0, index: int = 0, out: Tensor | None = None
    ) -> Tensor:
        return self.view(self.transform(pixels, seed=seed, epoch=epoch, index=index))


def resized(
    pixels: np.ndarray, height: int, width: int, interpolation: Interpolation = "bilinear", *, out: Tensor | None = None
) -> Tensor:
    """(H, W, 3) uint8 to (3, height, width) uint8, antialiased, as ``torch.nn.functional.interpolate`` does it.

    torch has vectorised code for exactly this case: uint8, channels last, a batch of one (5 times as fast as Pillow's).
    """
    if out is None:
        out = torch.empty((height, width, 3), dtype=torch.uint8).permute(2, 0, 1)
    batch = torch.from_numpy(np.require(pixels, requirements=["C", "W"]))[None].permute(0, 3, 1, 2)
    row = out.permute(1, 2, 0)[None].permute(0, 3, 1, 2)
    _RESIZE[interpolation](batch, [height, width], False, None, None, out=row)
    return out


_RESIZE = {
    "bilinear": torch.ops.aten._upsample_bilinear2d_aa.out,
    "bicubic": torch.ops.aten._upsample_bicubic2d_aa.out,
}


def _check(size: int, interpolation: str) -> None:
    if size < 1:
        raise ConfigError(f"a transform's size is a number of pixels ≥ 1, got {size}")
    require_known("interpolation", interpolation, ["bilinear", "bicubic"])


TRANSFORMS: dict[str, Callable[[int], Transform]] = {
    "resize": lambda size: Resize(size),
    "resize-crop": lambda size: ResizeCrop(size),
    "random-crop": lambda size: RandomResizedCrop(size),
    "random-crop-jitter": lambda size: RandomResizedCrop(size, jitter=Jitter(0.3, 0.3, 0.3, 0.05)),
}


def build(name: str, size: int = 224) -> Transform:
    """The transform of that name.

    >>> build("resize", 224).key
    'resize-224-bilinear'
    """
    return TRANSFORMS[require_known("transform", name, TRANSFORMS)](size)
