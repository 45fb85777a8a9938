"""Fisher vectors and FisherNet: gradients of the log-likelihood of a diagonal Gaussian mixture.

Fisher vector: Perronnin, Sánchez, Mensink, ECCV 2010. FisherNet: Tang et al., "Deep FisherNet", 2016.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from secondsight.functional.pooling.full_precision import widened
from secondsight.functional.pooling.gaussians import fisher_scores, fisher_terms, log_joint_terms, quadratic_terms
from secondsight.functional.pooling.locations import location_count
from secondsight.functional.pooling.posterior_sums import posterior_sums, posteriors
from secondsight.pooling.codebook_pooling import FIT_POINTS, set_values
from secondsight.pooling.contract import Grid, Locals, Mask
from secondsight.pooling.mixture_pooling import FLOOR, MixturePooling


class FisherVector(MixturePooling):
    """[1/(T√π_k) Σ γ_k u_k, 1/(T√(2π_k)) Σ γ_k(u_k² − 1)] with u_k = (x − μ_k)/σ_k, over the T locations of an image.

    Args:
        in_dim: d of the local features.
        codewords: Gaussians N; the output has 2·N·d dimensions, the mean part first.
        floor: The least variance of a Gaussian, as a part of the mean one. The paper's is maximum likelihood, 0.001;
            see ``FLOOR`` for why the default is not.
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
        super().__init__(in_dim, blocks=2, codewords=codewords, floor=floor, normalise=normalise, fit_points=fit_points)
        self.weights: Tensor
        self.means: Tensor
        self.variances: Tensor
        self.register_buffer("weights", torch.full((codewords,), 1 / codewords))
        self.register_buffer("means", torch.zeros(codewords, in_dim))
        self.register_buffer("variances", torch.ones(codewords, in_dim))

    def set_mixture(self, weights: Tensor, means: Tensor, variances: Tensor, loadings: Tensor | None = None) -> None:
        set_values(self, weights=weights, means=means, variances=variances)
        self.mark_fitted()

    def posteriors(self, x: Locals, mask: Mask = None) -> Float[Tensor, "b l n"]:
        """γ_k(x): the chance that each location comes from each Gaussian."""
        weights, means, variances = self.values("weights", "means", "variances")
        centre = weights @ means  # from x and μ alike: it changes nothing but the rounding
        return posteriors(x - centre, mask, *log_joint_terms(weights, means - centre, variances))

    def sums(self, x: Locals, mask: Mask, grid: Grid | None) -> Float[Tensor, "b blocks d"]:
        weights, means, variances = self.values("weights", "means", "variances")
        centre = weights @ means
        mu = means - centre
        s0, s1, s2 = posterior_sums(x, mask, *log_joint_terms(weights, mu, variances), centre=centre)
        assert s2 is not None
        scores = torch.cat(fisher_scores(s0, s1, s2, mu, variances.rsqrt()), dim=1)
        return scores * (_front(weights.rsqrt()) / location_count(x, mask)[..., None])

    def terms(self, x: Locals, mask: Mask, grid: Grid | None) -> Float[Tensor, "b l blocks d"]:
        weights, means, variances = self.values("weights", "means", "variances")
        gamma = self.posteriors(x, mask) / location_count(x, mask)[..., None]
        return torch.cat(fisher_terms(x, gamma, means, variances.rsqrt()), dim=2) * _front(weights.rsqrt())

    def flops(self, locations: int) -> int:
        n, d = self.means.shape
        return locations * (8 * n * d + 4 * n + 2 * d) + 12 * n * d


class FisherNet(MixturePooling):
    """[γ_k u_k, γ_k(u_k² − 1)/√2] averaged over locations, with u_k = w_k∘(x + b_k) and γ = softmax(−½‖u_k‖²).

    w = 1/σ and b = −μ are learned. The paper drops what makes γ the posterior of a mixture (log π_k + Σ log w_k) and
    the 1/√π_k in front; ``exact`` keeps both, and then it equals the Fisher vector it was started from.

    Args:
        in_dim, codewords, floor, normalise, fit_points: As for ``FisherVector``.
        exact: Keep the terms that the paper drops; the mixture weights are then learned too.
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
        super().__init__(in_dim, blocks=2, codewords=codewords, floor=floor, normalise=normalise, fit_points=fit_points)
        self.weight = nn.Parameter(torch.ones(codewords, in_dim))
        self.bias = nn.Parameter(torch.randn(codewords, in_dim) / in_dim**0.5)
        self.log_prior = nn.Parameter(torch.zeros(codewords)) if exact else None

    def set_mixture(self, weights: Tensor, means: Tensor, variances: Tensor, loadings: Tensor | None = None) -> None:
        """w = 1/σ, b = −μ (and the weights, where they are kept)."""
        set_values(self, weight=variances.rsqrt(), bias=-means)
        if self.log_prior is not None:
            set_values(self, log_prior=weights.log())

    def posteriors(self, x: Locals, mask: Mask = None) -> Float[Tensor, "b l n"]:
        """γ_k(x): how much of each location goes to each Gaussian."""
        centre, mu, _ = self._gaussians()
        return posteriors(x - centre, mask, *self._logits(mu))

    def _gaussians(self) -> tuple[Float[Tensor, " d"], Float[Tensor, "n d"], Float[Tensor, "n d"]]:
        """What is taken off x and μ alike (it changes nothing but the rounding), μ less that, and w."""
        weight, bias = self.values("weight", "bias")
        centre = -bias.detach().mean(0)
        return centre, -bias - centre, weight

    def _logits(self, mu: Float[Tensor, "n d"]) -> tuple[Tensor, Tensor, Tensor]:
        """−½‖w_k∘(x − μ_k)‖² as A x + Q x² + c, with what makes it the posterior where that is kept."""
        (weight,) = self.values("weight")
        linear, square, constant = quadratic_terms(mu, weight.square())
        if self.log_prior is not None:
            constant = constant + widened(self.log_prior) + weight.abs().clamp_min(1e-12).log().sum(1)
        return linear, square, constant

    def _weighed(self, scores: Tensor) -> Tensor:
        """1/√π_k in front of both parts, where it is kept."""
        if self.log_prior is None:
            return scores
        return scores * _front((-0.5 * widened(self.log_prior).log_softmax(0)).exp())

    def sums(self, x: Locals, mask: Mask, grid: Grid | None) -> Float[Tensor, "b blocks d"]:
        centre, mu, weight = self._gaussians()
        s0, s1, s2 = posterior_sums(x, mask, *self._logits(mu), centre=centre)
        assert s2 is not None
        both = torch.cat(fisher_scores(s0, s1, s2, mu, weight), dim=1)
        return self._weighed(both / location_count(x, mask)[..., None])

    def terms(self, x: Locals, mask: Mask, grid: Grid | None) -> Float[Tensor, "b l blocks d"]:
        weight, bias = self.values("weight", "bias")
        gamma = self.posteriors(x, mask) / location_count(x, mask)[..., None]
        return self._weighed(torch.cat(fisher_terms(x, gamma, -bias, weight), dim=2))

    def flops(self, locations: int) -> int:
        n, d = self.weight.shape
        return locations * (8 * n * d + 4 * n + 2 * d) + 12 * n * d


def _front(weights: Float[Tensor, " n"]) -> Float[Tensor, "two_n 1"]:
    """What stands in front of a Gaussian's two blocks."""
    return weights.repeat(2)[:, None]
