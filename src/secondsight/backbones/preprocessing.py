"""The preprocessing that a network was trained with: each backbone carries its own, so nobody can mix them up."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from secondsight.errors import ConfigError, ShapeError


def _triple(name: str, values: Any) -> tuple[float, float, float]:
    try:
        red, green, blue = (float(value) for value in values)
    except (TypeError, ValueError):
        raise ConfigError(f"preprocessing: {name} must be three numbers, got {values!r}") from None
    if not all(math.isfinite(value) for value in (red, green, blue)):
        raise ConfigError(f"preprocessing: {name} must be finite, got {values!r}")
    return red, green, blue


@dataclass(frozen=True)
class Preprocessing:
    """What a network expects: ``y = (range · x − mean) / std`` of an image ``x`` in 0–1, channels in this order.

    >>> Preprocessing(mean=(127, 127, 127), std=(128, 128, 128), range=255).describe()
    'RGB, 0–255, mean 127 127 127, std 128 128 128'
    """

    mean: tuple[float, float, float]  # in the order of `channels`, in units of `range`
    std: tuple[float, float, float]
    channels: Literal["RGB", "BGR"] = "RGB"
    range: float = 1.0  # the value of a white pixel before mean and std are applied
    size: int = 224  # height and width in pixels at which the weights were trained

    def __post_init__(self):
        object.__setattr__(self, "mean", _triple("mean", self.mean))
        object.__setattr__(self, "std", _triple("std", self.std))
        object.__setattr__(self, "range", float(self.range))
        if self.channels not in ("RGB", "BGR"):
            raise ConfigError(f"preprocessing: channels must be 'RGB' or 'BGR', got {self.channels!r}")
        if min(self.std) <= 0 or not self.range > 0:
            raise ConfigError(f"preprocessing: std and range must be positive, got std {self.std}, range {self.range}")
        if int(self.size) != self.size or self.size < 1:
            raise ConfigError(f"preprocessing: size must be a positive number of pixels, got {self.size!r}")

    @classmethod
    def of(cls, value: Preprocessing | dict[str, Any]) -> Preprocessing:
        """``value`` itself, or built from the dictionary that ``as_dict`` makes and a TOML file holds."""
        if isinstance(value, Preprocessing):
            return value
        fields = [field.name for field in dataclasses.fields(cls)]
        wrong = sorted(set(value) - set(fields)) or sorted({"mean", "std"} - set(value))
        if wrong:
            raise ConfigError(
                f"preprocessing: {', '.join(wrong)} missing or unknown; it has {', '.join(fields)} (mean, std required)"
            )
        return cls(**value)

    def as_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, for TOML and JSON."""
        return {
            key: list(value) if isinstance(value, tuple) else value for key, value in dataclasses.asdict(self).items()
        }

    def describe(self) -> str:
        mean, std = (" ".join(f"{value:g}" for value in triple) for triple in (self.mean, self.std))
        return f"{self.channels}, 0–{self.range:g}, mean {mean}, std {std}"

    def affine(self) -> tuple[Tensor, Tensor]:
        """``scale`` and ``shift``, both (3, 1, 1), with ``y = scale · x + shift`` for ``x`` in 0–1."""
        scale = [self.range / std for std in self.std]
        shift = [-mean / std for mean, std in zip(self.mean, self.std, strict=True)]
        return torch.tensor(scale)[:, None, None], torch.tensor(shift)[:, None, None]


IMAGENET = Preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
"""torchvision's: RGB in 0–1, standardised."""

CAFFE = Preprocessing(mean=(103.939, 116.779, 123.68), std=(1, 1, 1), channels="BGR", range=255)
"""Caffe's, which Keras kept for ResNet v1: BGR in 0–255, centred, not scaled."""


def check_images(images: Tensor, *, of: str) -> None:
    """Raise unless ``images`` is (B, 3, H, W), uint8 in 0–255 or floating in 0–1."""
    if images.ndim != 4 or images.shape[1] != 3:
        raise ShapeError(f"{of} expects RGB images (batch, 3, height, width), got {tuple(images.shape)}{_hint(images)}")
    if images.dtype == torch.uint8:
        return
    if not images.is_floating_point():
        raise ShapeError(f"{of} expects images in uint8 (0–255) or floating point (0–1), got {images.dtype}")
    # Reading the values would break a graph capture, and a meta or empty tensor has none.
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or images.is_meta or images.numel() == 0:
        return
    low, high = (value.item() for value in torch.aminmax(images.detach()))
    # Bicubic resizing overshoots a little; 0–255 and mean-and-std images are far beyond. Written so that NaN fails too.
    if not (low >= -0.5 and high <= 1.5):
        raise ShapeError(
            f"{of} expects floating-point images in 0–1, got values from {low:.4g} to {high:.4g}; pass uint8, or "
            "divide by 255, and leave mean and std to the backbone"
        )


def _hint(images: Tensor) -> str:
    if images.ndim == 3 and images.shape[0] == 3:
        return "; one image needs a batch dimension: images[None]"
    if images.ndim == 4 and images.shape[-1] == 3:
        return "; channels come first: images.permute(0, 3, 1, 2)"
    if images.ndim == 4 and images.shape[1] in (1, 4):
        return "; convert greyscale and RGBA images to RGB"
    return ""
