"""Compact bilinear pooling: a random sketch of Σ x ⊗ x that keeps its inner products.

Gao, Beijbom, Zhang, Darrell, "Compact Bilinear Pooling", CVPR 2016: Tensor Sketch (``cbp-ts-D``) and Random Maclaurin
(``cbp-rm-D``), each followed by the signed square root and ℓ2.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from secondsight.errors import ConfigError
from secondsight.functional.pooling.full_precision import full_precision
from secondsight.functional.pooling.normalise import normalisation
from secondsight.functional.pooling.sketch import (
    random_maclaurin,
    random_maclaurin_local,
    tensor_sketch,
    tensor_sketch_flops,
    tensor_sketch_local,
)
from secondsight.pooling.contract import Grid, Locals, Mask, Pooling


class CompactBilinear(Pooling):
    """A sketch of the bilinear feature, drawn once and never trained.

    Args:
        in_dim: d, the size of a local feature.
        out_dim: D, the size of the sketch. The variance of an inner product falls as 1/D.
        normalise: ``sqrt-l2`` (the paper's), ``l2``, or ``none``, with which the pooling is additive.
        seed: The same seed draws the same sketch, whatever else uses random numbers.
    """

    takes_out_dim = False
    name_options = ("out_dim",)
    additive = True

    def __init__(self, in_dim: int, out_dim: int = 8192, *, normalise: str = "sqrt-l2", seed: int = 0):
        super().__init__(in_dim, out_dim)
        self.normalise, self.seed = normalise, seed
        self.normalised = normalisation(normalise)
        self.additive = normalise == "none"
        self.draw(torch.Generator().manual_seed(seed))

    @abstractmethod
    def draw(self, generator: torch.Generator) -> None:
        """Register the sketch as buffers."""

    @abstractmethod
    def sketch(self, x: Float[Tensor, "b l d"]) -> Float[Tensor, "b out"]:
        """The sketch of Σ_l x_l ⊗ x_l."""

    @abstractmethod
    def sketch_local(self, x: Float[Tensor, "b l d"]) -> Float[Tensor, "b l out"]:
        """The sketch of every x_l ⊗ x_l."""

    def forward(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b out"]:
        with full_precision(self.checked(x, mask)) as x:
            z = self.sketch(x)
            return z if self.normalised is None else self.normalised(z)

    def local(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b l out"]:
        if not self.additive:
            raise ConfigError(
                f"{self.family} with normalise={self.normalise!r} is not a sum over locations, so it has no local "
                "contributions; build it with normalise='none'"
            )
        with full_precision(self.checked(x, mask)) as x:
            return self.sketch_local(x)


class TensorSketch(CompactBilinear):
    """z = FFT⁻¹(Σ_l FFT(ψ(x_l,h¹,s¹)) ∘ FFT(ψ(x_l,h²,s²))), computed from the Gram matrix where that is cheaper."""

    family = "cbp-ts"
    summary = "bp sketched by FFT (Tensor Sketch) to D numbers"
    paper = "Gao, Beijbom, Zhang, Darrell, CVPR 2016, algorithm 2"
    examples = ("cbp-ts-8192",)
    h: Tensor
    s: Tensor

    def draw(self, generator: torch.Generator) -> None:
        """h: [d] → [D] and s: [d] → {±1}, twice."""
        self.register_buffer("h", torch.randint(self.out_dim, (2, self.in_dim), generator=generator))
        self.register_buffer("s", signs(2, self.in_dim, generator=generator))

    def sketch(self, x: Float[Tensor, "b l d"]) -> Float[Tensor, "b out"]:
        return tensor_sketch(x, self.h, self.s.to(x.dtype), self.out_dim)

    def sketch_local(self, x: Float[Tensor, "b l d"]) -> Float[Tensor, "b l out"]:
        return tensor_sketch_local(x, self.h, self.s.to(x.dtype), self.out_dim)

    def flops(self, locations: int) -> int:
        return tensor_sketch_flops(locations, self.in_dim, self.out_dim)


class RandomMaclaurin(CompactBilinear):
    """z_k = Σ_l ⟨w¹_k, x_l⟩⟨w²_k, x_l⟩ / √D with w ∈ ±1."""

    family = "cbp-rm"
    summary = "bp sketched by random signs (Random Maclaurin)"
    paper = "Gao, Beijbom, Zhang, Darrell, CVPR 2016, algorithm 1"
    examples = ("cbp-rm-8192",)
    w: Tensor

    def draw(self, generator: torch.Generator) -> None:
        """w ∈ {±1}^{2×D×d}."""
        self.register_buffer("w", signs(2, self.out_dim, self.in_dim, generator=generator))

    def sketch(self, x: Float[Tensor, "b l d"]) -> Float[Tensor, "b out"]:
        return random_maclaurin(x, self.w.to(x.dtype))

    def sketch_local(self, x: Float[Tensor, "b l d"]) -> Float[Tensor, "b l out"]:
        return random_maclaurin_local(x, self.w.to(x.dtype))

    def flops(self, locations: int) -> int:
        d, out = self.in_dim, self.out_dim
        return 4 * locations * d * out if 2 * locations < d else 2 * locations * d * d + 2 * d * d * out


def signs(*shape: int, generator: torch.Generator) -> Float[Tensor, "*shape"]:
    """Fair ±1."""
    return torch.randint(2, shape, generator=generator).float() * 2 - 1
