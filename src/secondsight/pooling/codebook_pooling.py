"""What the codebook poolings share: names, bounds on the output, fitting state, and the order of the steps."""

from __future__ import annotations

import sys
from abc import abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from secondsight.errors import ConfigError, RunError, ShapeError, require_known
from secondsight.functional.pooling.blocks import BLOCK_NORMALISATIONS, normalise_blocks
from secondsight.functional.pooling.full_precision import full_precision, widened
from secondsight.pooling.contract import Features, Grid, Locals, Mask, Pooling
from secondsight.pooling.feature_samples import sample

MAX_OUT_DIM = 2**18
"""A wider output is refused: its projection to 512 dimensions alone would hold more than 134 million weights."""

FIT_POINTS = 2**17
"""Local features that a fit looks at, drawn from the whole stream with equal chances (128 MB at d = 256); 0 is all."""


class CodebookPooling(Pooling):
    """A pooling whose output is a sum over locations, one or more blocks for every codeword, and a normalisation of it.

    Subclasses give ``sums`` (the blocks of an image) and ``terms`` (what each location adds to them).
    """

    takes_out_dim = False

    name_options = ("codewords",)
    normalisations: ClassVar[tuple[str, ...]] = BLOCK_NORMALISATIONS
    learned: ClassVar[bool] = False
    """Whether the codebook is a set of parameters (which start at random) or must be fitted before use."""

    def __init__(
        self, in_dim: int, blocks: tuple[int, int], *, normalise: str, power: float = 0.5, fit_points: int = FIT_POINTS
    ):
        out_dim = blocks[0] * blocks[1]
        if out_dim > MAX_OUT_DIM:
            raise ConfigError(
                f"{self.family}: {blocks[0]:,} blocks of {blocks[1]:,} make {out_dim:,} dimensions of in_dim {in_dim}; "
                f"at most {MAX_OUT_DIM:,}: take fewer {' or '.join(self.name_options)}, or reduce the features first"
            )
        super().__init__(in_dim, max(out_dim, 1))
        require_known("normalisation", normalise, self.normalisations)
        if not 0 < power <= 1:
            raise ConfigError(f"{self.family}: power must be over 0 and at most 1, got {power}")
        if fit_points < 0:
            raise ConfigError(f"{self.family}: fit_points must be at least 1, or 0 for all, got {fit_points}")
        self.normalise = normalise
        self.power = power
        self.fit_points = fit_points
        self.additive = normalise == "none"
        self._ready = self.learned
        if not self.learned:
            self.register_buffer("fitted", torch.tensor(False))
            self.register_load_state_dict_post_hook(_restore)

    @abstractmethod
    def sums(self, x: Locals, mask: Mask, grid: Grid | None) -> Float[Tensor, "b blocks dims"]:
        """The blocks of every image, before normalisation; ``x`` is zero where masked out."""

    @abstractmethod
    def terms(self, x: Locals, mask: Mask, grid: Grid | None) -> Float[Tensor, "b l blocks dims"]:
        """What each location adds to ``sums``."""

    def forward(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b out"]:
        with full_precision(self._prepared(x, mask)) as x:
            return self.normalised(self.sums(x, mask, grid))

    def normalised(self, v: Float[Tensor, "b blocks dims"]) -> Float[Tensor, "b out"]:
        """The blocks as one vector, normalised as ``normalise`` says."""
        return normalise_blocks(v, self.normalise, self.power)

    def local(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b l out"]:
        if self.normalise != "none":
            raise ConfigError(
                f"{self.family} with normalise={self.normalise!r} is not a sum over locations, so it has no local "
                "contributions; build it with normalise='none'"
            )
        with full_precision(self._prepared(x, mask)) as x:
            return self.terms(x, mask, grid).flatten(2)

    def _prepared(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if not self._ready:
            raise RunError(
                f"{self.family} has no codebook yet: call fit(features) with local features of training images first, "
                "or load a fitted state_dict"
            )
        return self.checked(x, mask)

    def points(self, features: Features, seed: int) -> Float[Tensor, "m d"]:
        """A fair sample of the stream to fit from, as float32 or wider."""
        points = sample(features, self.fit_points or sys.maxsize, seed=seed)
        if points.shape[1] != self.in_dim:
            raise ShapeError(
                f"{self.family} expects local features (…, {self.in_dim}) to fit from, got (…, {points.shape[1]})"
            )
        return points if points.dtype == torch.float64 else points.float()

    def values(self, *names: str) -> tuple[Tensor, ...]:
        """Parameters and buffers by name, in single precision where they are kept in half."""
        return tuple(widened(getattr(self, name)) for name in names)

    def mark_fitted(self) -> None:
        """Remember, in the state_dict too, that the codebook is there."""
        self._ready = True
        if not self.learned:
            self.get_buffer("fitted").fill_(True)


def set_values(module: nn.Module, **values: Tensor) -> None:
    """Copy fitted values into the module's buffers and parameters, whatever their type and device."""
    with torch.no_grad():
        for name, value in values.items():
            getattr(module, name).copy_(value)


def _restore(module: nn.Module, _keys) -> None:
    module._ready = bool(module.fitted)  # type: ignore[assignment]
