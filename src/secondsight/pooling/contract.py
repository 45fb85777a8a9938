"""The contract that every pooling keeps: a set of local features becomes one vector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar, TypeAlias

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from secondsight.errors import ConfigError, ShapeError
from secondsight.pooling.names import options_in

Features: TypeAlias = "Tensor | Iterable[Tensor]"
"""Local features to fit from: one tensor (…, d), or a re-iterable stream of such tensors."""

Locals: TypeAlias = Float[Tensor, "b l d"]
"""Local features: L of d numbers for each of B images."""

Mask: TypeAlias = Bool[Tensor, "b l"] | None
"""True where a location is real; None where all are."""

Grid: TypeAlias = tuple[int, int]
"""(h, w) with h · w = L: location l = row · w + column."""


class Pooling(nn.Module):
    """``forward(x: (B, L, d), mask: (B, L) | None) -> (B, D)``, un-normalised.

    ``x`` holds any number of local features, so images of any size and token sequences of any length work; ``mask`` is
    True where a location is real. A location that is masked out contributes nothing, whatever it holds, and an image
    with no location gives zeros. The order of locations does not matter, unless ``uses_grid``.
    """

    family: ClassVar[str]
    """What papers and recipes call it, without numbers: ``jcf``."""

    summary: ClassVar[str]
    """What it is, in a line, for ``secondsight poolings``."""

    paper: ClassVar[str]
    """Where it comes from."""

    expects: ClassVar[str] = ""
    """What it asks for beyond local features: a fit before use, the grid, features after a ReLU."""

    name_options: ClassVar[tuple[str, ...]] = ()
    """The options that the numbers behind the family stand for: ``jcf-32-8`` is ``codewords=32, projectors=8``."""

    examples: ClassVar[tuple[str, ...]] = ()
    """Names that ``secondsight poolings`` lists; the family alone where empty. Any other numbers work too."""

    takes_out_dim: ClassVar[bool] = True
    """Whether any ``out_dim`` can be asked for; where not, ``build`` adds a projection to it."""

    skips_reduction: ClassVar[bool] = False
    """Whether the model gives it all of the backbone's channels; the others get them reduced first."""

    two_layers: ClassVar[bool] = False
    """Whether it pools the channels of two layers side by side; its option ``before`` says how many the second has."""

    fit_takes_channels: ClassVar[bool] = False
    """Whether ``fit`` takes ``channels`` (d, c): the backbone's channels, as directions among the d that are left."""

    additive: bool = False
    """Whether ``local`` exists, with ``local(x).sum(1) == forward(x)``."""

    uses_grid: bool = False
    """Whether positions matter; then ``grid`` = (h, w) with h · w = L is required."""

    def __init__(self, in_dim: int, out_dim: int):
        super().__init__()
        at_least_one(type(self).__name__, in_dim=in_dim, out_dim=out_dim)
        self.in_dim = in_dim
        self.out_dim = out_dim

    @property
    def native_dim(self) -> int:
        """Numbers that it gives before any projection to ``out_dim``."""
        return self.out_dim

    @classmethod
    def from_name(cls, name: str, **options) -> Pooling:
        """Build from a paper's word for it, e.g. ``jcf-32-8``; ``options`` are the constructor's keywords."""
        return cls(**options_in(name, cls.family, cls.name_options), **options)

    def forward(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b out"]:
        raise NotImplementedError

    def local(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b l out"]:
        """What each location adds to the output: ``local(x).sum(1) == forward(x)``, but for rounding.

        The output is not normalised here. Divided by its length, these are shares of a cosine *with that length held
        fixed*: what the similarity is made of. What it would become without a location is another question.
        """
        raise ConfigError(
            f"{type(self).__name__} is not a sum over locations, so it has no local contributions; "
            "the additive poolings (average, bp, jcf, cbp, fbn …) have them"
        )

    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """Initialise from data (codebook, mixture, principal axes); nothing to do unless the method has such a step."""

    def readout_parameters(self) -> Iterator[nn.Parameter]:
        """Parameters that weigh what was pooled, and may learn at a rate of their own (``optimizer.end_lr``): a last
        matrix, gains of codewords. Most poolings have none.
        """
        yield from ()

    @property
    def keeps_sums(self) -> bool:
        """Whether ``kept_sums`` and ``ended`` exist: where only the readout learns, the sums are made once and kept."""
        return False

    def kept_sums(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b ..."]:
        """All that the readout weighs, and nothing that depends on it: ``ended(kept_sums(x)) == forward(x)``."""
        raise NotImplementedError

    def ended(self, sums: Float[Tensor, "b ..."]) -> Float[Tensor, "b out"]:
        """What follows ``kept_sums``."""
        raise NotImplementedError

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


def at_least_one(what: str, **values: int) -> None:
    """Refuse counts below 1, by name."""
    for name, value in values.items():
        if value < 1:
            raise ConfigError(f"{what}: {name} must be at least 1, got {value}")


def positive(what: str, **values: float) -> None:
    """Refuse numbers that are not over 0, by name."""
    for name, value in values.items():
        if not value > 0:
            raise ConfigError(f"{what}: {name} must be over 0, got {value}")
