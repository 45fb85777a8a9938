"""The contract that every pooling keeps: a set of local features becomes one vector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from secondsight.errors import ConfigError, ShapeError

Features: TypeAlias = "Tensor | Iterable[Tensor]"
"""Local features to fit from: one tensor (…, d), or a re-iterable stream of such tensors."""

Grid: TypeAlias = tuple[int, int]
"""(h, w) with h · w = L: location l = row · w + column."""


class Pooling(nn.Module):
    """``forward(x: (B, L, d), mask: (B, L) | None) -> (B, D)``, un-normalised.

    ``x`` holds any number of local features, so images of any size and token sequences of any length work; ``mask`` is
    True where a location is real. A location that is masked out contributes nothing, whatever it holds, and an image
    with no location gives zeros. The order of locations does not matter, unless ``uses_grid``.
    """

    additive: ClassVar[bool] = False
    """Whether ``local(x).sum(1) == forward(x)`` can be had: then ``explain`` says exactly what a similarity is made of.

    That is a share, not a prediction: with a power, a location's part depends on the other locations, and a cosine's
    length does too. What would happen without a location is another question, which ``explain`` answers beside it.
    """

    uses_grid: ClassVar[bool] = False
    """Whether positions matter; then ``grid`` = (h, w) with h · w = L is required."""

    compact: ClassVar[bool] = True
    """Whether any ``out_dim`` can be asked for; where not, ``build`` adds a projection to ``out_dim``."""

    takes_all_channels: ClassVar[bool] = False
    """Whether it works on the backbone's features as they are; the others get them reduced to ``in_dim`` channels
    first.
    """

    wants_channels: ClassVar[bool] = False
    """Whether ``fit`` takes ``channels`` (d, c): the backbone's channels, as directions among the d that are left."""

    def __init__(self, in_dim: int, out_dim: int):
        super().__init__()
        for name, value in (("in_dim", in_dim), ("out_dim", out_dim)):
            if value < 1:
                raise ConfigError(f"{type(self).__name__}: {name} must be at least 1, got {value}")
        self.in_dim = in_dim
        self.out_dim = out_dim

    @classmethod
    def from_name(cls, name: str, **options) -> Pooling:
        """Build from a paper's word for it, e.g. ``jcf-32-8``; ``options`` are the constructor's keywords."""
        raise NotImplementedError

    def forward(
        self, x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None = None, *, grid: Grid | None = None
    ) -> Float[Tensor, "b out"]:
        raise NotImplementedError

    def local(
        self, x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None = None, *, grid: Grid | None = None
    ) -> Float[Tensor, "b l out"]:
        """Each location's part of the whole: ``local(x).sum(1) == forward(x)``."""
        raise ConfigError(
            f"{type(self).__name__} is not a sum over locations, so it has no local contributions; "
            "the additive poolings (average, bp, jcf, cbp, fbn …) have"
        )

    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """Initialise from data (codebook, mixture, principal axes); nothing to do unless the method has such a step."""

    def ends(self) -> Iterator[nn.Parameter]:
        """Parameters that may learn at a rate of their own (``optimizer.end_lr``); most poolings have none."""
        yield from ()

    def flops(self, locations: int) -> int:
        """Floating-point operations (a multiply-add is two) of one image with ``locations`` local features."""
        raise NotImplementedError

    def checked(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """``x`` with masked-out locations set to zero, after the shapes have been checked."""
        kind = type(self).__name__
        if x.ndim != 3 or x.shape[-1] != self.in_dim:
            raise ShapeError(f"{kind} expects local features (batch, locations, {self.in_dim}), got {tuple(x.shape)}")
        if mask is None:
            return x
        if mask.shape != x.shape[:2]:
            raise ShapeError(f"{kind}: mask {tuple(mask.shape)} does not fit local features {tuple(x.shape)}")
        if mask.dtype != torch.bool:
            raise ShapeError(f"{kind}: mask must be bool (True = a real location), got {mask.dtype}")
        return x.masked_fill(~mask[..., None], 0)  # not a product: 0 · NaN is NaN
