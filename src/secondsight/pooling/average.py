"""Average pooling and a linear map: the first-order baseline of the paper."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from secondsight.pooling.contract import Features, Grid, Pooling
from secondsight.pooling.fitting import chunks
from secondsight.pooling.naming import numbers


class Average(Pooling):
    """z = Wᵀ (1/L Σ_l x_l), on features that were not reduced: d_in · D parameters."""

    additive = True
    takes_all_channels = True

    def __init__(self, in_dim: int, out_dim: int):
        super().__init__(in_dim, out_dim)
        self.weight = nn.Parameter(torch.empty(in_dim, out_dim))
        # Orthonormal: keeps the angles between averages when D ≥ d, and as many of them as possible otherwise.
        nn.init.orthogonal_(self.weight)

    @classmethod
    def from_name(cls, name: str, *, in_dim: int, out_dim: int, **options) -> Average:
        numbers(name, "average", [])
        return cls(in_dim, out_dim, **options)

    def forward(
        self, x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None = None, *, grid: Grid | None = None
    ) -> Float[Tensor, "b out"]:
        x = self.checked(x, mask)
        count = x.shape[1] if mask is None else mask.sum(1, keepdim=True).clamp_min(1)
        return x.sum(1) / count @ self.weight

    def local(
        self, x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None = None, *, grid: Grid | None = None
    ) -> Float[Tensor, "b l out"]:
        x = self.checked(x, mask)
        count = x.shape[1] if mask is None else mask.sum(1).clamp_min(1)[:, None, None]
        return x / count @ self.weight

    @torch.no_grad()
    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """Start at the D directions of most energy (uncentred: the mean direction carries information too)."""
        if self.out_dim >= self.in_dim:
            return
        moment = torch.zeros(self.in_dim, self.in_dim, dtype=torch.float64)
        for chunk in chunks(features):
            moment += (chunk.T @ chunk).to(moment)
        self.weight.copy_(torch.linalg.eigh(moment).eigenvectors[:, -self.out_dim :].flip(1))

    def flops(self, locations: int) -> int:
        return locations * self.in_dim + 2 * self.in_dim * self.out_dim
