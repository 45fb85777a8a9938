"""Bilinear pooling, whole and by codeword.

Lin, RoyChowdhury, Maji, "Bilinear CNN Models for Fine-grained Visual Recognition", ICCV 2015; with a learned
projection, and with the naive codebook, as the JCF paper's ablation has them:

    bp      z_i = Σ_x ⟨w_i, x ⊗ x⟩             d²·D parameters       (proj_so_feature)
    bp-N    z_i = Σ_x ⟨w_i, h(x) ⊗ x ⊗ x⟩      N·d + N·d²·D
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from secondsight.errors import ConfigError
from secondsight.functional.pooling.bilinear import bilinear_local, outer_sum_by_codeword
from secondsight.functional.pooling.locations import location_count
from secondsight.functional.pooling.normalise import sqrt_l2
from secondsight.pooling.codebook import Codebook
from secondsight.pooling.contract import Features, Grid, Locals, Mask, Pooling
from secondsight.pooling.feature_samples import sample


class Bilinear(Pooling):
    """Second-order statistics, projected to D by a full matrix.

    Args:
        in_dim: d, the size of a local feature.
        out_dim: D; must be N·d² with ``projected=False``.
        codewords: N; None for no codebook.
        assign, scale, learn_scale, straight_through: See ``Codebook``.
        root: Lin's normalisation of the statistics before the projection: mean over locations, signed square root, ℓ2.
            Not additive any more.
        projected: False returns the statistics themselves, N·d² numbers.
    """

    family = "bp"
    summary = "all products of two channels; N: by codeword"
    paper = "Lin, RoyChowdhury, Maji, ICCV 2015"
    name_options = ("codewords",)
    examples = ("bp", "bp-4")
    additive = True

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        codewords: int | None = None,
        assign: str = "soft",
        scale: float = 16.0,
        learn_scale: bool = True,
        straight_through: bool = True,
        root: bool = False,
        projected: bool = True,
    ):
        super().__init__(in_dim, out_dim)
        n = codewords or 1
        if not projected and out_dim != n * in_dim**2:
            raise ConfigError(
                f"unprojected bilinear pooling gives N·d² = {n * in_dim**2} numbers, out_dim is {out_dim}"
            )
        self.codewords, self.root = codewords, root
        self.additive = not root
        self.codebook = None
        if codewords is not None:
            self.codebook = Codebook(
                in_dim,
                codewords,
                assign=assign,
                scale=scale,
                learn_scale=learn_scale,
                straight_through=straight_through,
            )
        self.weight = nn.Parameter(torch.empty(n, in_dim, in_dim, out_dim)) if projected else None
        self.reset_projection()

    @torch.no_grad()
    def reset_projection(self) -> None:
        """z of one unit-norm location gets variance σ² ‖h‖²: σ² = 1 / E‖h‖², measured on random directions."""
        if self.weight is None or self.weight.is_meta:
            return
        x = nn.functional.normalize(torch.randn(1, 1024, self.in_dim), dim=-1)
        self.weight.normal_(std=self._assign(x, None).square().sum(-1).mean().rsqrt().item())

    def forward(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b out"]:
        x = self.checked(x, mask)
        s = outer_sum_by_codeword(x, self._assign(x, mask)).flatten(1)
        if self.root:
            s = sqrt_l2(s / location_count(x, mask))
        return s if self.weight is None else s @ self.weight.flatten(0, 2)

    def local(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b l out"]:
        if self.root:
            raise ConfigError(
                "bilinear pooling with root=True is not a sum over locations; use root=False for local contributions"
            )
        x = self.checked(x, mask)
        h = self._assign(x, mask)
        if self.weight is None:
            return torch.einsum("bln,bld,ble->blnde", h, x, x).flatten(2)
        return bilinear_local(x, h, self.weight)

    def _assign(self, x: Tensor, mask: Tensor | None) -> Float[Tensor, "b l n"]:
        if self.codebook is None:
            return x.new_ones(*x.shape[:2], 1)
        return self.codebook(x, mask).dense(self.codebook.count)

    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """Codebook by spherical k-means."""
        if self.codebook is not None:
            self.codebook.fit(sample(features, 100_000, seed=seed), seed=seed)

    def flops(self, locations: int) -> int:
        n, d = self.codewords or 1, self.in_dim
        assign = 0 if self.codebook is None else 2 * locations * n * d
        project = 0 if self.weight is None else 2 * n * d**2 * self.out_dim
        return assign + 2 * locations * n * d**2 + project
