"""Fisher vectors and FisherNet: gradients of the log-likelihood of a diagonal Gaussian mixture.

Fisher vector: Perronnin, Sánchez, Mensink, ECCV 2010. FisherNet: Tang et al., "Deep FisherNet", 2016.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from secondsight.functional.pooling.gaussians import fisher_scores, fisher_terms, log_joint_terms, quadratic_terms
from secondsight.functional.pooling.locations import location_count
from secondsight.functional.pooling.posterior_sums import posterior_sums, posteriors
from secondsight.pooling.codebook_pooling import (
    FIT_POINTS,
    FLOOR,
    CodebookPooling,
    at_least_one,
    positive,
    set_values,
)
from secondsight.pooling.contract import Features, Grid


class FisherVector(CodebookPooling):
    """[1/(T√π_k) Σ γ_k u_k, 1/(T√(2π_k)) Σ γ_k(u_k² − 1)] with u_k = (x − μ_k)/σ_k, over the T locations of an image.

    Args:
        in_dim: d of the local features.
        codewords: Gaussians N; the output has 2·N·d dimensions, the mean part first.
        floor: The least variance of a Gaussian, as a part of the mean one. Small is maximum likelihood; see the docs.
        normalise: ``sqrt-l2`` (the paper), ``l2``, ``intra-l2``, or ``none``, which is additive.
        fit_points: Local features that ``fit`` looks at.
    """

    family = "fisher"
    summary = "Fisher vector of a diagonal Gaussian mixture"
    paper = "Perronnin, Sánchez, Mensink, ECCV 2010"
    expects = "decorrelated features, and a fit before use"
    examples = ("fisher-16",)

    def __init__(
        self,
        in_dim: int,
        *,
        codewords: int = 16,
        floor: float = FLOOR,
        normalise: str = "sqrt-l2",
        fit_points: int = FIT_POINTS,
    ):
        at_least_one(self.family, codewords=codewords)
        positive(self.family, floor=floor)
        super().__init__(in_dim, (2 * codewords, in_dim), normalise=normalise, fit_points=fit_points)
        self.codewords, self.floor = codewords, floor
        self.weights: Tensor
        self.means: Tensor
        self.variances: Tensor
        self.register_buffer("weights", torch.full((codewords,), 1 / codewords))
        self.register_buffer("means", torch.zeros(codewords, in_dim))
        self.register_buffer("variances", torch.ones(codewords, in_dim))

    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """Expectation-maximisation from k-means, on a sample of the stream."""
        mixture = self.mixture(features, self.codewords, floor=self.floor, seed=seed)
        self.set_mixture(mixture.weights, mixture.means, mixture.variances)

    def set_mixture(
        self, weights: Float[Tensor, " n"], means: Float[Tensor, "n d"], variances: Float[Tensor, "n d"]
    ) -> None:
        """Use a mixture that was fitted elsewhere."""
        set_values(self, weights=weights, means=means, variances=variances)
        self.mark_fitted()

    def posteriors(self, x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None = None) -> Float[Tensor, "b l n"]:
        """γ_k(x): the chance that each location comes from each Gaussian."""
        centre = self._centre()
        return posteriors(x - centre, mask, *log_joint_terms(self.weights, self.means - centre, self.variances))

    def _centre(self) -> Tensor:
        """Subtracted from x and μ alike: it changes nothing but the rounding."""
        return self.weights @ self.means

    def _front(self) -> Tensor:
        """1/√π_k in front of both parts, as (2n, 1)."""
        return self.weights.rsqrt().repeat(2)[:, None]

    def sums(
        self, x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None, grid: Grid | None
    ) -> Float[Tensor, "b blocks d"]:
        centre = self._centre()
        mu = self.means - centre
        terms = log_joint_terms(self.weights, mu, self.variances)
        s0, s1, s2 = posterior_sums(x, mask, *terms, centre=centre)
        assert s2 is not None
        scores = torch.cat(fisher_scores(s0, s1, s2, mu, self.variances.rsqrt()), dim=1)
        return scores * (self._front() / location_count(x, mask)[..., None])

    def terms(
        self, x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None, grid: Grid | None
    ) -> Float[Tensor, "b l blocks d"]:
        gamma = self.posteriors(x, mask) / location_count(x, mask)[..., None]
        return torch.cat(fisher_terms(x, gamma, self.means, self.variances.rsqrt()), dim=2) * self._front()

    def flops(self, locations: int) -> int:
        n, d = self.means.shape
        return locations * (8 * n * d + 4 * n + 2 * d) + 12 * n * d


class FisherNet(CodebookPooling):
    """[γ_k u_k, γ_k(u_k² − 1)/√2] averaged over locations, with u_k = w_k∘(x + b_k) and γ = softmax(−½‖u_k‖²).

    w = 1/σ and b = −μ are learned. The paper drops what makes γ the posterior of a mixture (log π_k + Σ log w_k) and
    the 1/√π_k in front; ``exact`` keeps both, and then it equals the Fisher vector it was started from.

    Args:
        in_dim: d of the local features.
        codewords: Gaussians N; the output has 2·N·d dimensions, the mean part first.
        exact: Keep the terms that the paper drops; the mixture weights are then learned too.
        floor: The least variance of a Gaussian, as a part of the mean one. Small is maximum likelihood; see the docs.
        normalise: ``sqrt-l2`` (the paper), ``l2``, ``intra-l2``, or ``none``, which is additive.
        fit_points: Local features that ``fit`` looks at.
    """

    family = "fishernet"
    summary = "Fisher vector, learned end to end"
    paper = "Tang et al. 2016"
    expects = "a fit for a good start"
    examples = ("fishernet-16",)
    learned = True

    def __init__(
        self,
        in_dim: int,
        *,
        codewords: int = 16,
        exact: bool = False,
        floor: float = FLOOR,
        normalise: str = "sqrt-l2",
        fit_points: int = FIT_POINTS,
    ):
        at_least_one(self.family, codewords=codewords)
        positive(self.family, floor=floor)
        super().__init__(in_dim, (2 * codewords, in_dim), normalise=normalise, fit_points=fit_points)
        self.codewords, self.floor = codewords, floor
        self.weight = nn.Parameter(torch.ones(codewords, in_dim))
        self.bias = nn.Parameter(torch.randn(codewords, in_dim) / in_dim**0.5)
        self.log_prior = nn.Parameter(torch.zeros(codewords)) if exact else None

    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """Start at the mixture that the Fisher vector would use."""
        mixture = self.mixture(features, self.codewords, floor=self.floor, seed=seed)
        self.start_at(mixture.weights, mixture.means, mixture.variances)

    def start_at(
        self, weights: Float[Tensor, " n"], means: Float[Tensor, "n d"], variances: Float[Tensor, "n d"]
    ) -> None:
        """w = 1/σ, b = −μ (and the weights, where they are kept)."""
        set_values(self, weight=variances.rsqrt(), bias=-means)
        if self.log_prior is not None:
            set_values(self, log_prior=weights.log())

    def posteriors(self, x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None = None) -> Float[Tensor, "b l n"]:
        """γ_k(x): how much of each location goes to each Gaussian."""
        centre = self._centre()
        return posteriors(x - centre, mask, *self._logits(-self.bias - centre))

    def _centre(self) -> Tensor:
        """Subtracted from x and μ alike: it changes nothing but the rounding."""
        return -self.bias.detach().mean(0)

    def _logits(self, mu: Float[Tensor, "n d"]) -> tuple[Tensor, Tensor, Tensor]:
        """−½‖w_k∘(x − μ_k)‖² as A x + Q x² + c, with what makes it the posterior where that is kept."""
        linear, square, constant = quadratic_terms(mu, self.weight.square())
        if self.log_prior is not None:
            constant = constant + self.log_prior + self.weight.abs().clamp_min(1e-12).log().sum(1)
        return linear, square, constant

    def _front(self) -> Tensor:
        """1/√π_k in front of both parts, as (2n, 1), where it is kept."""
        assert self.log_prior is not None
        return (-0.5 * self.log_prior.log_softmax(0)).exp().repeat(2)[:, None]

    def sums(
        self, x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None, grid: Grid | None
    ) -> Float[Tensor, "b blocks d"]:
        centre = self._centre()
        mu = -self.bias - centre
        s0, s1, s2 = posterior_sums(x, mask, *self._logits(mu), centre=centre)
        assert s2 is not None
        both = torch.cat(fisher_scores(s0, s1, s2, mu, self.weight), dim=1) / location_count(x, mask)[..., None]
        return both if self.log_prior is None else both * self._front()

    def terms(
        self, x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None, grid: Grid | None
    ) -> Float[Tensor, "b l blocks d"]:
        both = torch.cat(
            fisher_terms(x, self.posteriors(x, mask) / location_count(x, mask)[..., None], -self.bias, self.weight),
            dim=2,
        )
        return both if self.log_prior is None else both * self._front()

    def flops(self, locations: int) -> int:
        n, d = self.weight.shape
        return locations * (8 * n * d + 4 * n + 2 * d) + 12 * n * d
