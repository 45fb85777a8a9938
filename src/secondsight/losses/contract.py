"""The contract that every loss keeps: embeddings and labels of one (global) batch become one number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from secondsight.errors import ConfigError, DataError, ShapeError
from secondsight.functional.losses.pairs import unit, unit_parts


@dataclass(frozen=True)
class Expects:
    """What a loss needs of a batch to learn from it."""

    images_per_class: int
    classes: int
    words: str
    """The same in a sentence, for ``secondsight losses``."""


@dataclass(frozen=True)
class LossPart:
    """A slice of the embedding that is made a unit vector and scaled at test time."""

    size: int
    scale: float


class Loss(nn.Module):
    """``forward(z: (B, D), labels: (B,)) -> scalar``; z is un-normalised and holds the whole batch, of all processes.

    A loss is a function of (z, labels) and its own state alone, so that processes which hold the same batch compute the
    same loss and the same gradients; whatever is drawn at random comes from a counter in ``state_dict``. Where a batch
    has nothing to teach (no positive pair) the loss is 0 with zero gradients, still part of the graph. A batch of one
    class is an error for the losses that need negatives from the batch.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    """Where it comes from."""

    provider: ClassVar[str] = "secondsight"
    """Who computes it: we, or pytorch-metric-learning."""

    expects: ClassVar[Expects]

    wants_embeddings: ClassVar[bool] = False
    """Whether ``on_epoch`` needs the embeddings of the training set; it is cheap to call where not."""

    def __init__(self, *, dim: int, classes: int):
        super().__init__()
        for what, value in (("dim", dim), ("classes", classes)):
            if value < 1:
                raise ConfigError(f"{self.name}: {what} must be at least 1, got {value}")
        self.dim = dim
        self.classes = classes

    @property
    def parts(self) -> tuple[LossPart, ...]:
        """How the embedding is put together at test time; empty where it is used as it is."""
        return ()

    @property
    def collapsed(self) -> float | None:
        """The loss of a batch that has collapsed to one point, where that is the same number for every batch."""
        return None

    def transform_at_test(self, z: Float[Tensor, "*n d"]) -> Float[Tensor, "*n d"]:
        """The embedding to search with."""
        if not self.parts:
            return z
        return unit_parts(z, [part.size for part in self.parts], [part.scale for part in self.parts])

    def on_epoch(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Called before each epoch with (embeddings, labels) of the training set, the same on every process."""

    def forward(self, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        return self.compute(*self.checked(z, labels))

    def compute(self, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The loss of a batch that has been checked."""
        raise NotImplementedError

    def checked(self, z: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """z in at least float32 and labels in int64, after their shapes and the number of classes have been checked."""
        if z.ndim != 2 or z.shape[1] != self.dim:
            raise ShapeError(f"{self.name}: expected embeddings (batch, {self.dim}), got {tuple(z.shape)}")
        if labels.shape != z.shape[:1]:
            raise ShapeError(f"{self.name}: {tuple(labels.shape)} labels do not fit embeddings {tuple(z.shape)}")
        if self.expects.classes > 1 and len(labels) and bool((labels == labels[0]).all()):
            raise DataError(
                f"{self.name}: all {len(labels)} images of the batch have label {int(labels[0])}; without another "
                "class there is nothing to tell apart: put at least 2 classes in a batch"
            )
        return (z.float() if z.dtype in (torch.float16, torch.bfloat16) else z), labels.long()

    def check_range(self, labels: Tensor) -> None:
        """Labels index the loss's own table of classes: they must be in it."""
        if not len(labels):
            return
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= self.classes:
            raise DataError(
                f"{self.name}: labels go from {low} to {high}, but the loss was built for 0…{self.classes - 1}: "
                "number the training classes from 0 without gaps, or build the loss with more classes"
            )


def nothing(z: Tensor) -> Tensor:
    """0 with zero gradients, part of z's graph; finite however large z is."""
    return unit(z).sum() * 0


def require_positive(name: str, **options: float | int) -> None:
    """Options that must be above 0."""
    for option, value in options.items():
        if not value > 0:
            raise ConfigError(f"{name}: {option} must be above 0, got {value}")


def cut(name: str, dim: int, sizes: tuple[int, ...] | None, shares: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes of an embedding's parts: as given, or in proportion to ``shares``.

    >>> cut("bier", 512, None, (96, 160, 256))
    (96, 160, 256)
    """
    if sizes is None:
        if dim < len(shares):
            raise ConfigError(f"{name}: an embedding of {dim} dimensions cannot be cut into {len(shares)} parts")
        ends = [max(i + 1, round(dim * sum(shares[: i + 1]) / sum(shares))) for i in range(len(shares))]
        return tuple(end - start for start, end in zip([0, *ends[:-1]], ends, strict=True))
    if sum(sizes) != dim or min(sizes, default=0) < 1:
        raise ConfigError(
            f"{name}: sizes {tuple(sizes)} must be positive and add up to the embedding's {dim} dimensions"
        )
    return tuple(sizes)
