"""What follows a sum over locations: a signed power, and a matrix that starts as part of a whitening.

    z ← Wᵀ (z ∘ r(z)),   r(z) = (|z| / m + ε)^(power − 1)

A signed root is what bilinear CNNs (Lin et al. 2015) and Fisher vectors (Perronnin et al. 2010) end in; the matrix is
Jégou and Chum's whitening (2012) by half, and learned from there on. It may have fewer outputs than inputs: then it
starts as the principal directions, so whitened.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from secondsight.errors import ConfigError
from secondsight.functional.pooling.eigenvectors import eigh

SMOOTH = 1e-2
"""ε: below a hundredth of the mean |z| the power bends into a straight line through zero."""


class Ending(nn.Module):
    """r and W. With ``power=1`` and ``whiten=None`` it does nothing.

    Args:
        in_dim: K, numbers that it gets.
        out_dim: D ≤ K, numbers that it gives; fewer than K need W.
        power: Exponent of the signed power; 1 leaves z as it is.
        whiten: Adds W, which ``fit`` starts as the −``whiten``-th power of E[z zᵀ]: 0 changes nothing, ½ whitens. None
            for no W.
    """

    level: Tensor | None

    def __init__(self, in_dim: int, out_dim: int, *, power: float = 1.0, whiten: float | None = None):
        super().__init__()
        if not 0 < power <= 1:
            raise ConfigError(f"power must be over 0 and at most 1 (which changes nothing), got {power}")
        if whiten is not None and not 0 <= whiten <= 0.5:
            raise ConfigError(f"whiten must be between 0 (change nothing) and 0.5 (whiten), or left out, got {whiten}")
        if in_dim < out_dim or (in_dim > out_dim and whiten is None):
            cure = "raise width, or leave it out" if in_dim < out_dim else "set whiten too (0.25, say)"
            raise ConfigError(f"a width of {in_dim} cannot end as {out_dim} numbers: {cure}")
        self.in_dim, self.out_dim, self.power, self.whiten = in_dim, out_dim, power, whiten
        self.register_buffer("level", torch.ones(()) if power != 1 else None)  # m, the mean of |z|
        # W · √K, so that a step of an optimiser changes it as little, for its size, as it changes projectors.
        self.weight = nn.Parameter(torch.eye(in_dim, out_dim).mul_(in_dim**0.5)) if whiten is not None else None

    @property
    def needed(self) -> bool:
        return self.level is not None or self.weight is not None

    def forward(self, z: Float[Tensor, "b k"]) -> Float[Tensor, "b out"]:
        return self._mixed(z if self.level is None else z * self._ratio(z))

    def local(self, z: Float[Tensor, "b l k"]) -> Float[Tensor, "b l out"]:
        """What every location adds to the end: the power gives all of a sum's parts one factor, so parts stay parts."""
        return self._mixed(z if self.level is None else z * self._ratio(z.sum(1))[:, None])

    def _ratio(self, z: Tensor) -> Tensor:
        """r(z): bounded at zero, where the plain power has an infinite slope."""
        assert self.level is not None
        return (z.abs() / self.level + SMOOTH).pow(self.power - 1)

    def _mixed(self, z: Tensor) -> Tensor:
        return z if self.weight is None else z @ self.weight.to(z.dtype) / self.in_dim**0.5

    @torch.no_grad()
    def fit(self, z: Float[Tensor, "n k"]) -> None:
        """m, then W, from the sums of some hundred images."""
        if self.level is not None:
            self.level.copy_(z.abs().mean().clamp_min(1e-12))
            z = z * self._ratio(z)
        if self.weight is not None and self.whiten is not None:
            self.weight.copy_(whitening(z, self.whiten, keep=self.out_dim) * self.in_dim**0.5)

    def flops(self) -> int:
        return 4 * self.in_dim * (self.level is not None) + 2 * self.in_dim * self.out_dim * (self.weight is not None)


def whitening(z: Float[Tensor, "n k"], exponent: float, *, keep: int) -> Float[Tensor, "k out"]:
    """M^(−exponent) of M = E[z zᵀ], scaled to the length of the identity; with fewer than k to keep, its largest
    eigenvectors, each taken to that power.

    Directions below the middle one count as much as that: few images say little about them.
    """
    values, vectors = eigh((z.T @ z).double() / len(z))
    middle = values[-((min(len(z), len(values)) + 1) // 2)]
    w = vectors * values.clamp_min(middle).clamp_min(1e-12) ** -exponent
    w = w @ vectors.T if keep == len(w) else w[:, -keep:]
    return (w * (keep / w.square().sum()).sqrt()).to(z.dtype)
