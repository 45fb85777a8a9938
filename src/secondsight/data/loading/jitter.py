"""Colour jitter as one matrix: brightness, contrast, saturation and hue are all affine in (R, G, B)."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from secondsight.errors import ConfigError

LUMA = np.array([0.299, 0.587, 0.114])  # ITU-R 601, as Pillow's conversion to grey

# YIQ: luma and two colour axes; a turn in the plane of the last two is a turn of the hue.
_YIQ = np.array([LUMA, [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])
_RGB = np.linalg.inv(_YIQ)


@dataclass(frozen=True)
class Jitter:
    """x → clip(M x + t) for every pixel, with M = brightness · contrast · saturation · hue, drawn for every picture.

    Each strength s draws its factor uniformly from [1 − s, 1 + s]; ``hue`` draws a turn of up to that share of the
    circle. Contrast is about the mean luma of the picture, so t = (1 − contrast) · brightness · mean. There is one
    clipping at the end, where chains of separate operations clip (and lose) after each.
    """

    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value, most = getattr(self, field.name), 0.5 if field.name == "hue" else 1.0
            if not 0 <= value <= most:
                raise ConfigError(f"Jitter: {field.name} must be between 0 and {most}, got {value}")

    @property
    def key(self) -> str:
        return f"{self.brightness}:{self.contrast}:{self.saturation}:{self.hue}"

    def __call__(self, image: Tensor, rng: np.random.Generator) -> Tensor:
        """(3, S, S) uint8 to the same, channels last in memory."""
        if self == NO_JITTER:
            return image
        matrix, grey = self.draw(rng)
        mean = float(image.float().mean(dim=(1, 2)).numpy() @ LUMA)
        rows = np.column_stack([matrix, np.full(3, grey * mean)])
        pixels = np.ascontiguousarray(image.permute(1, 2, 0).numpy())
        # Pillow's one pass over bytes is five times as fast as the same matrix through float tensors.
        size = (image.shape[2], image.shape[1])
        mixed = Image.frombuffer("RGB", size, pixels, "raw", "RGB", 0, 1).convert("RGB", tuple(rows.flat))
        return torch.from_numpy(np.array(mixed)).permute(2, 0, 1)

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, float]:
        """M (3, 3), and how much of the mean luma is added: t = grey · mean."""
        u = 2 * rng.random(4) - 1
        brightness, contrast, saturation = 1 + u[:3] * (self.brightness, self.contrast, self.saturation)
        angle = 2 * math.pi * u[3] * self.hue
        cos, sin = math.cos(angle), math.sin(angle)
        turn = _RGB @ np.array([[1, 0, 0], [0, cos, -sin], [0, sin, cos]]) @ _YIQ
        fade = saturation * np.eye(3) + (1 - saturation) * np.tile(LUMA, (3, 1))
        return brightness * contrast * (fade @ turn), brightness * (1 - contrast)


NO_JITTER = Jitter()
