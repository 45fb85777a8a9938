"""Activations that were computed before: memory-mapped half-precision rows, and batches of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from secondsight.data.cache.store import row_bytes
from secondsight.data.loading.failures import Failures
from secondsight.data.loading.picture_rows import Images
from secondsight.errors import DataError

LARGEST = 65504.0  # of half precision
SMALL = 2.0**-6  # half keeps eleven digits down to 2⁻¹⁴, so rows below this are scaled up


def to_half(x: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """x ≈ scale · half, row by row: (b, …) float16 and (b,) float32.

    The scale is 1, unless the largest value of the row is beyond the range of half precision, or so small that the
    others would lose digits: then it is the power of two that brings the largest value to [1, 2). NaN and infinity stay
    what they are.
    """
    rows = x.detach().to("cpu", torch.float32)
    largest = rows.flatten(1).abs().amax(dim=1) if rows[0].numel() else torch.zeros(len(rows))
    odd = torch.isfinite(largest) & ((largest > LARGEST) | ((largest > 0) & (largest < SMALL)))
    power = torch.where(odd, torch.floor(torch.log2(largest.clamp(min=2.0**-126))), 0.0)
    scale = torch.exp2(power)
    half = (rows / scale.reshape(-1, *[1] * (rows.ndim - 1))).to(torch.float16)
    return half.contiguous().numpy(), scale.numpy()


@dataclass(frozen=True, eq=False)
class CachedFeatures:
    """Activations of a set of images, memory-mapped; ``features[indices]`` reads some as float32."""

    images: Images
    stored: np.ndarray  # (rows, …) float16, memory-mapped: the whole store
    scales: np.ndarray  # (rows,) float32
    rows: np.ndarray  # (n,) int64: the row of every image, −1 where it could not be decoded
    failures: Failures
    path: Path
    damaged: int = 0  # rows that were not what had been written, and were computed again

    @property
    def labels(self) -> np.ndarray | None:
        return self.images.labels

    @property
    def shape(self) -> tuple[int, ...]:
        """(n, …), as an array's."""
        return (len(self), *self.stored.shape[1:])

    @property
    def nbytes(self) -> int:
        """On disk, for these images."""
        return len(np.unique(self.rows[self.rows >= 0])) * row_bytes(self.shape[1:])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, indices: int | slice | np.ndarray) -> np.ndarray:
        rows = self.rows[indices]
        if np.any(rows < 0):
            lost = np.ravel(np.arange(len(self))[indices])[np.ravel(rows) < 0][0]
            raise DataError(f"{self.name(int(lost))} could not be decoded and has no activations; see failures")
        scales = self.scales[rows].reshape(np.shape(rows) + (1,) * (len(self.shape) - 1))
        return self.stored[rows].astype(np.float32) * scales

    # ---- what BatchLoader needs

    def name(self, index: int) -> str:
        return str(self.images.path(index))

    def empty(self, count: int) -> Tensor:
        return torch.empty((count, *self.shape[1:]))

    def read_into(self, row: Tensor, index: int, epoch: int) -> None:
        number = int(self.rows[index])
        if number < 0:
            raise next(f for f in self.failures if f.index == index).error()
        row.copy_(torch.from_numpy(self.stored[number]))
        if (scale := float(self.scales[number])) != 1.0:
            row.mul_(scale)
