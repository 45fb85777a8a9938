"""Factorised bilinear pooling, with the first order in it.

Li, Wang, Liu, Hou, "Factorized Bilinear Models for Image Recognition", ICCV 2017, with its DropFactor:

    y_o = Σ_l ( b_o + w_oᵀ x_l + ‖F_o x_l‖² ),    F_o ∈ R^{k×d} .

The authors' code leaves the terms x_i² out of ‖F_o x‖², and halves the bilinear part at test.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from secondsight.errors import ConfigError
from secondsight.functional.pooling.locations import location_count
from secondsight.functional.pooling.quadratic import quadratic, quadratic_flops, quadratic_local
from secondsight.pooling.contract import Grid, Locals, Mask, Pooling, at_least_one


class FactorizedBilinear(Pooling):
    """``fbn-k``: a linear path and k bilinear paths.

    Args:
        in_dim: d, the size of a local feature.
        out_dim: D.
        factors: k, the rank of each output's quadratic form. The paper uses 20.
        drop: DropFactor: the chance that a bilinear path, of all outputs at once, is left out of a training step. The
            paper drops half; those kept are scaled up, so that nothing changes at test time.
        reduce: ``"sum"`` over locations or ``"mean"``.
    """

    family = "fbn"
    summary = "linear term plus ‖Fx‖², with DropFactor"
    paper = "Li, Wang, Liu, Hou, ICCV 2017"
    name_options = ("factors",)
    additive = True

    def __init__(self, in_dim: int, out_dim: int, *, factors: int = 20, drop: float = 0.5, reduce: str = "sum"):
        super().__init__(in_dim, out_dim)
        at_least_one("fbn", factors=factors)
        if not 0 <= drop < 1:
            raise ConfigError(f"fbn: drop must be at least 0 and below 1, got {drop}")
        if reduce not in ("sum", "mean"):
            raise ConfigError(f"fbn: reduce must be 'sum' or 'mean', got {reduce!r}")
        self.drop, self.reduce = drop, reduce
        self.bias = nn.Parameter(torch.zeros(out_dim))
        self.weight = nn.Parameter(torch.randn(out_dim, in_dim))
        # Small: the squares are positive, and all outputs would share one large mean that hides the linear path.
        self.factors = nn.Parameter(torch.randn(out_dim, factors, in_dim) * 0.1)

    def forward(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b out"]:
        x = self.checked(x, mask)
        count = location_count(x, mask, least=0)
        y = count * self.bias + x.sum(1) @ self.weight.mT + quadratic(x, self.factors, self._kept())
        return y if self.reduce == "sum" else y / count.clamp_min(1)

    def local(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b l out"]:
        """What each location adds, with all paths present: DropFactor belongs to ``forward`` while training."""
        x = self.checked(x, mask)
        y = self.bias + x @ self.weight.mT + quadratic_local(x, self.factors)
        y = y if mask is None else y.masked_fill(~mask[..., None], 0)
        return y if self.reduce == "sum" else y / location_count(x, mask)[..., None]

    def _kept(self) -> Float[Tensor, " k"] | None:
        """1 / (1 − drop) for a path that stays, 0 for one that is dropped; None when all stay."""
        if not (self.training and self.drop):
            return None
        kept = torch.rand(self.factors.shape[1], device=self.factors.device) >= self.drop
        return kept.to(self.factors.dtype) / (1 - self.drop)

    def flops(self, locations: int) -> int:
        d, (out, k, _) = self.in_dim, self.factors.shape
        return locations * d + 2 * d * out + quadratic_flops(locations, d, out, k)
