"""Average pooling and a linear map: the first-order baseline of the paper."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from secondsight.functional.pooling.locations import location_count
from secondsight.pooling.contract import Features, Grid, Locals, Mask, Pooling
from secondsight.pooling.principal import main_directions


class Average(Pooling):
    """z = Wᵀ (1/L Σ_l x_l), on features that were not reduced: d_in · D parameters."""

    family = "average"
    summary = "mean, then a linear map: the first-order baseline"
    paper = "the baseline of Jacob et al. 2019"
    additive = True
    skips_reduction = True

    def __init__(self, in_dim: int, out_dim: int):
        super().__init__(in_dim, out_dim)
        self.weight = nn.Parameter(torch.empty(in_dim, out_dim))
        # Orthonormal: keeps the angles between averages when D ≥ d, and as many of them as possible otherwise.
        nn.init.orthogonal_(self.weight)

    def forward(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b out"]:
        x = self.checked(x, mask)
        return x.sum(1) / location_count(x, mask) @ self.weight

    def local(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b l out"]:
        x = self.checked(x, mask)
        return x / location_count(x, mask)[..., None] @ self.weight

    @torch.no_grad()
    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """Start at the D directions of most energy."""
        if self.out_dim < self.in_dim:
            self.weight.copy_(main_directions(features, self.out_dim))

    def flops(self, locations: int) -> int:
        return locations * self.in_dim + 2 * self.in_dim * self.out_dim
