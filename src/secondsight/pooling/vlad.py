"""VLAD and NetVLAD: sums of residuals to the codewords.

VLAD: Jégou et al. 2010; intra-normalisation from Arandjelović & Zisserman, "All about VLAD", CVPR 2013.
NetVLAD: Arandjelović et al., CVPR 2016.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from secondsight.errors import ConfigError
from secondsight.functional.pooling.posterior_sums import posterior_sums, posteriors
from secondsight.functional.pooling.residuals import (
    hard_residuals,
    local_residuals,
    nearest_codeword,
    one_hot,
    sharpness,
)
from secondsight.pooling.codebook_pooling import FIT_POINTS, CodebookPooling, set_values
from secondsight.pooling.contract import Features, Grid, Locals, Mask, at_least_one
from secondsight.pooling.feature_samples import kmeans


class VLAD(CodebookPooling):
    """v_k = Σ (x − c_k) over the locations whose nearest codeword is c_k; the codewords come from k-means.

    Args:
        in_dim: d of the local features.
        codewords: Codewords N; the output has N·d dimensions.
        normalise: ``intra-l2`` (2013), ``sqrt-l2`` (2012), ``l2`` (2010), or ``none``, which is additive.
        fit_points: Local features that ``fit`` looks at.
    """

    family = "vlad"
    summary = "residuals to k-means centres"
    paper = "Jégou et al., CVPR 2010; Arandjelović & Zisserman, CVPR 2013"
    expects = "a fit before use"
    examples = ("vlad-32",)

    def __init__(self, in_dim: int, *, codewords: int = 32, normalise: str = "intra-l2", fit_points: int = FIT_POINTS):
        at_least_one(self.family, codewords=codewords)
        super().__init__(in_dim, (codewords, in_dim), normalise=normalise, fit_points=fit_points)
        self.codewords = codewords
        self.centres: Tensor
        self.register_buffer("centres", torch.zeros(codewords, in_dim))

    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """k-means on a sample of the stream."""
        set_values(self, centres=kmeans(self.points(features, seed), self.codewords, seed=seed))
        self.mark_fitted()

    def sums(self, x: Locals, mask: Mask, grid: Grid | None) -> Float[Tensor, "b n d"]:
        (centres,) = self.values("centres")
        return hard_residuals(x, nearest_codeword(x, centres), centres, mask)

    def terms(self, x: Locals, mask: Mask, grid: Grid | None) -> Float[Tensor, "b l n d"]:
        (centres,) = self.values("centres")
        return local_residuals(x, one_hot(nearest_codeword(x, centres), self.codewords, mask, x), centres)

    def flops(self, locations: int) -> int:
        n, d = self.centres.shape
        return locations * (2 * n * d + d) + n * d * 2


class NetVLAD(CodebookPooling):
    """v_k = Σ_l h_k(x_l)(x_l − c_k) with h = softmax(w_kᵀx + b_k); w, b and c are learned apart.

    ``fit`` starts it at the codebook of VLAD: w_k = 2αc_k, b_k = −α‖c_k‖², that is h_k ∝ exp(−α‖x − c_k‖²), with α such
    that the second-nearest codeword gets 1 % of the nearest one's weight. Without it the codewords start at random.

    Args:
        in_dim: d of the local features.
        codewords: Codewords N; the output has N·d dimensions.
        normalise: ``intra-l2`` (the paper), ``sqrt-l2``, ``l2``, or ``none``, which is additive.
        fit_points: Local features that ``fit`` looks at.
    """

    family = "netvlad"
    summary = "VLAD with a learned soft assignment"
    paper = "Arandjelović et al., CVPR 2016"
    expects = "ℓ2-normalised features, and a fit for a good start"
    examples = ("netvlad-32",)
    learned = True

    def __init__(self, in_dim: int, *, codewords: int = 32, normalise: str = "intra-l2", fit_points: int = FIT_POINTS):
        at_least_one(self.family, codewords=codewords)
        super().__init__(in_dim, (codewords, in_dim), normalise=normalise, fit_points=fit_points)
        self.codewords = codewords
        self.centres = nn.Parameter(torch.randn(codewords, in_dim) / in_dim**0.5)
        self.weight = nn.Parameter(torch.empty(codewords, in_dim))
        self.bias = nn.Parameter(torch.empty(codewords))
        self.start_at(self.centres.detach(), alpha=1.0)

    def start_at(self, centres: Float[Tensor, "n d"], *, alpha: float) -> None:
        """Soft assignment to these codewords, h_k ∝ exp(−α‖x − c_k‖²); α → ∞ is VLAD."""
        if not alpha > 0:
            raise ConfigError(f"netvlad: alpha must be positive, got {alpha}")
        set_values(self, centres=centres, weight=2 * alpha * centres, bias=-alpha * centres.square().sum(1))

    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """k-means on a sample of the stream, and α from the gap between its nearest and second-nearest codewords."""
        points = self.points(features, seed)
        centres = kmeans(points, self.codewords, seed=seed)
        self.start_at(centres, alpha=sharpness(points, centres))

    def assign(self, x: Locals, mask: Mask = None) -> Float[Tensor, "b l n"]:
        """h(x): how much of each location goes to each codeword."""
        weight, bias = self.values("weight", "bias")
        return posteriors(x, mask, weight, None, bias)

    def sums(self, x: Locals, mask: Mask, grid: Grid | None) -> Float[Tensor, "b n d"]:
        weight, bias, centres = self.values("weight", "bias", "centres")
        s0, s1, _ = posterior_sums(x, mask, weight, None, bias)
        return s1 - s0[..., None] * centres

    def terms(self, x: Locals, mask: Mask, grid: Grid | None) -> Float[Tensor, "b l n d"]:
        return local_residuals(x, self.assign(x, mask), *self.values("centres"))

    def flops(self, locations: int) -> int:
        n, d = self.centres.shape
        return locations * (4 * n * d + 4 * n) + n * d * 2
