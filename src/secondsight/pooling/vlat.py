"""VLAT: centred second-order tensors of each codeword's locations, in the codeword's own principal axes.

Picard & Gosselin, "Improving image similarity with vectors of locally aggregated tensors", ICIP 2011; "Efficient image
signatures and similarities using tensor products of local descriptors", CVIU 2013; PCA per cluster as in the latter.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from secondsight.functional.pooling.codeword_tensors import Routes, own_linear, route, routed_linear, run_grams
from secondsight.functional.pooling.residuals import nearest_codeword, one_hot
from secondsight.functional.pooling.triangle import upper_triangle
from secondsight.pooling.codebook_pooling import FIT_POINTS, CodebookPooling, set_values
from secondsight.pooling.contract import Features, Grid, Locals, Mask, at_least_one
from secondsight.pooling.feature_samples import kmeans
from secondsight.pooling.principal import cluster_axes


class VLAT(CodebookPooling):
    """T_k = Σ [V_kᵀ(x − μ_k)(x − μ_k)ᵀV_k − T̄_k] over the locations of codeword k; the upper triangles are the output.

    V_k holds the leading principal axes of codeword k's training features, T̄_k is their mean tensor. Off-diagonal
    entries are multiplied by √2, so that inner products of outputs are those of the tensors.

    Args:
        in_dim: d of the local features.
        codewords: Codewords N.
        dim: Principal axes p kept per codeword; the output has N·p(p+1)/2 dimensions.
        normalise: ``power-l2`` (the paper), ``sqrt-l2``, ``l2``, ``intra-l2``, or ``none``, which is additive.
        power: The exponent of ``power-l2``.
        fit_points: Local features that ``fit`` looks at.
    """

    family = "vlat"
    summary = "second-order residuals to k-means centres"
    paper = "Picard & Gosselin, ICIP 2011 and CVIU 2013"
    expects = "a fit before use"
    examples = ("vlat-16",)
    name_options = ("codewords", "dim")

    def __init__(
        self,
        in_dim: int,
        *,
        codewords: int = 16,
        dim: int = 32,
        normalise: str = "power-l2",
        power: float = 0.5,
        fit_points: int = FIT_POINTS,
    ):
        at_least_one(self.family, codewords=codewords, dim=dim)
        dim = min(dim, in_dim)
        super().__init__(
            in_dim, (codewords, dim * (dim + 1) // 2), normalise=normalise, power=power, fit_points=fit_points
        )
        self.codewords = codewords
        self.centres: Tensor
        self.axes: Tensor
        self.mean_tensors: Tensor
        self.register_buffer("centres", torch.zeros(codewords, in_dim))
        self.register_buffer("axes", torch.zeros(codewords, in_dim, dim))
        self.register_buffer("mean_tensors", torch.zeros(codewords, dim, dim))

    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """k-means on a sample of the stream, then the principal axes and the mean tensor of each cluster."""
        points = self.points(features, seed)
        centres = kmeans(points, self.codewords, seed=seed)
        axes, tensors = cluster_axes(points, centres, self.axes.shape[2])
        set_values(self, centres=centres, axes=axes, mean_tensors=tensors)
        self.mark_fitted()

    def _routed(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Routes, Tensor]:
        """The codewords, the routes, and V_kᵀ(x − μ_k) of each location in their order."""
        centres, axes = self.values("centres", "axes")
        words = nearest_codeword(x, centres)
        routes = route(words, self.codewords, mask)
        return words, routes, routed_linear(x, routes, axes, offsets(centres, axes))

    def _mean_triangles(self) -> Float[Tensor, "n q"]:
        return upper_triangle(*self.values("mean_tensors"), isometric=True)

    def sums(self, x: Locals, mask: Mask, grid: Grid | None) -> Float[Tensor, "b n q"]:
        if torch.compiler.is_exporting():
            return self._dense(x, mask)
        _, routes, y = self._routed(x, mask)
        counts = routes.runs.T[..., None].to(x.dtype)
        return torch.addcmul(run_grams(y, routes.runs), counts, self._mean_triangles(), value=-1)

    def _dense(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The same without routing."""
        centres, axes, means = self.values("centres", "axes", "mean_tensors")
        words = nearest_codeword(x, centres)
        h = one_hot(words, self.codewords, mask, x)
        y = own_linear(x, words, axes, offsets(centres, axes))
        grams = torch.einsum("blnp,blq->bnpq", h[..., None] * y[:, :, None], y)
        return upper_triangle(grams - h.sum(1)[..., None, None] * means, isometric=True)

    def terms(self, x: Locals, mask: Mask, grid: Grid | None) -> Float[Tensor, "b l n q"]:
        words, routes, y = self._routed(x, mask)
        n = self.codewords
        own = words.flatten()[routes.order]
        alone = upper_triangle(y[:, :, None] * y[:, None], isometric=True) - self._mean_triangles()[own]
        out = x.new_zeros(words.numel() * n, alone.shape[1])
        return out.index_copy(0, routes.order * n + own, alone).view(*words.shape, n, -1)

    def flops(self, locations: int) -> int:
        n, d, p = self.axes.shape
        return locations * (2 * n * d + 2 * d * p + 2 * p * p) + 2 * n * p * p


def offsets(centres: Float[Tensor, "n d"], axes: Float[Tensor, "n d p"]) -> Float[Tensor, "n p"]:
    """−V_kᵀμ_k."""
    return -(centres[:, None] @ axes)[:, 0]
