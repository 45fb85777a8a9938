"""Low-rank bilinear pooling: bilinear classifiers whose bilinear feature is never formed.

Kong & Fowlkes, "Low-Rank Bilinear Pooling for Fine-Grained Classification", CVPR 2017, equations 5 and 9. A linear SVM
on X Xᵀ with a symmetric weight matrix of rank r has, for class c, the score

    s_c = ‖U₊ᵀ P X‖²_F − ‖U₋ᵀ P X‖²_F + b ,    P ∈ R^{m×d} shared by the classes,  U₊, U₋ ∈ R^{m×r/2} .
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from secondsight.errors import ConfigError
from secondsight.functional.pooling.locations import location_count
from secondsight.functional.pooling.quadratic import quadratic, quadratic_flops, quadratic_local
from secondsight.pooling.contract import Features, Grid, Locals, Mask, Pooling, at_least_one
from secondsight.pooling.principal import main_directions


class LowRankBilinear(Pooling):
    """``lrbp-r``: ‖U₊ᵀPX‖²_F − ‖U₋ᵀPX‖²_F of ``out_dim`` outputs.

    The paper's classifier has an offset b a class and a hinge loss; here its scores, without b, are a representation,
    and a sum over locations.

    Args:
        in_dim: d, the size of a local feature.
        out_dim: D, what are classes in the paper.
        rank: r, even: half of it positive, half negative. The paper uses 8.
        channels: m, what the features are reduced to. The paper uses 100; never more than d.
        reduce: ``"sum"`` over locations or ``"mean"``; scores that do not grow with the image need ``"mean"``.
    """

    family = "lrbp"
    summary = "scores of low-rank bilinear classifiers"
    paper = "Kong & Fowlkes, CVPR 2017"
    name_options = ("rank",)
    additive = True
    signs: Tensor

    def __init__(self, in_dim: int, out_dim: int, *, rank: int = 8, channels: int = 100, reduce: str = "sum"):
        super().__init__(in_dim, out_dim)
        if rank < 2 or rank % 2:
            raise ConfigError(f"lrbp: rank must be even and at least 2 (half positive, half negative), got {rank}")
        at_least_one("lrbp", channels=channels)
        if reduce not in ("sum", "mean"):
            raise ConfigError(f"lrbp: reduce must be 'sum' or 'mean', got {reduce!r}")
        self.reduce = reduce
        m = min(channels, in_dim)
        self.project = nn.Parameter(nn.init.orthogonal_(torch.empty(m, in_dim)))
        # The score of one unit-norm location in P's span then has variance 1: each of r squares adds 2σ⁴.
        self.factors = nn.Parameter(torch.randn(out_dim, rank, m) * (2 * rank) ** -0.25)
        self.register_buffer("signs", torch.ones(rank), persistent=False)
        self.signs[rank // 2 :] = -1

    def forward(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b out"]:
        return quadratic(self._reduced(x, mask), self.factors, self.signs)

    def local(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b l out"]:
        return quadratic_local(self._reduced(x, mask), self.factors, self.signs)

    def _reduced(self, x: Tensor, mask: Tensor | None) -> Float[Tensor, "b l m"]:
        """P x, divided by √L for a mean: the scores are quadratic in it."""
        x = self.checked(x, mask)
        px = x @ self.project.mT
        return px if self.reduce == "sum" else px * location_count(x, mask).rsqrt()[..., None]

    @torch.no_grad()
    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """P starts at the directions of most energy (not centred: the mean direction carries information too)."""
        self.project.copy_(main_directions(features, len(self.project)).mT)

    def flops(self, locations: int) -> int:
        out, r, m = self.factors.shape
        return 2 * locations * self.in_dim * m + quadratic_flops(locations, m, out, r)
