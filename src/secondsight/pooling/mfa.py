"""MFA-FV and MFAFVNet: Fisher scores of a mixture of factor analysers.

MFA-FV: Dixit & Vasconcelos, "Object based scene representations using Fisher scores of local subspace projections",
NIPS 2016. MFAFVNet: Li, Dixit & Vasconcelos, "Deep scene image classification with the MFAFVNet", ICCV 2017.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from secondsight.errors import ConfigError, UnknownName
from secondsight.functional.factors import (
    Covariances,
    covariances,
    information,
    mfa_log_joint,
    mfa_scores,
    projections,
    weighted_moments,
)
from secondsight.functional.residuals import masked
from secondsight.pooling.codebook import FIT_POINTS, Codebook, at_least_one, counted, set_values
from secondsight.pooling.contract import Features, Grid

SCALINGS = ("diagonal", "none")
"""diagonal: scores over the root of their Fisher information, as in Fisher vectors · none: the plain scores (2016)."""


class _FactorAnalysers(Codebook):
    """What the fitted and the learned form share: all but where the mixture's numbers live."""

    numbers = ("codewords", "factors")
    piecewise = True

    def __init__(
        self,
        in_dim: int,
        *,
        codewords: int = 8,
        factors: int = 8,
        scaling: str = "diagonal",
        normalise: str = "sqrt-l2",
        fit_points: int = FIT_POINTS,
    ):
        at_least_one(self.family, codewords=codewords)
        if not 0 <= factors < max(in_dim, 1):
            raise ConfigError(f"{self.family}: factors must be from 0 to in_dim − 1 = {in_dim - 1}, got {factors}")
        if scaling not in SCALINGS:
            raise UnknownName("scaling", scaling, SCALINGS)
        super().__init__(in_dim, (codewords * (1 + factors), in_dim), normalise=normalise, fit_points=fit_points)
        self.codewords, self.factors, self.scaling = codewords, factors, scaling
        self._make_values()

    def _make_values(self) -> None:
        """The buffers or parameters behind ``_values``."""
        raise NotImplementedError

    def _values(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """π (n), μ (n, d), Λ (n, d, f), Ψ (n, d)."""
        raise NotImplementedError

    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """Expectation-maximisation from k-means and the clusters' principal axes, on a sample of the stream."""
        m = self.mixture(features, self.codewords, self.factors, seed=seed)
        self.set_mixture(m.weights, m.means, m.loadings, m.variances)

    def set_mixture(
        self,
        weights: Float[Tensor, " n"],
        means: Float[Tensor, "n d"],
        loadings: Float[Tensor, "n d f"],
        noise: Float[Tensor, "n d"],
    ) -> None:
        """Use, or start at, a mixture that was fitted elsewhere."""
        raise NotImplementedError

    def _assigned(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Covariances, Tensor, Tensor]:
        """x and μ around the mixture's mean, S_k, γ (b, l, n), and R_k(x − μ_k) (b, l, n, f)."""
        weights, mu, loadings, noise = self._values()
        centre = (weights @ mu).detach()
        x, mu, cov = x - centre, mu - centre, covariances(loadings, noise)
        p = projections(x, mu, cov)
        return x, mu, cov, masked(mfa_log_joint(x, x.square(), weights, mu, cov, p).softmax(-1), mask), p

    def posteriors(self, x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None = None) -> Float[Tensor, "b l n"]:
        """γ_k(x): the chance that each location comes from each component."""
        return self._assigned(x, mask)[3]

    def sums(
        self, x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None, grid: Grid | None
    ) -> Float[Tensor, "b blocks d"]:
        x, mu, cov, gamma, p = self._assigned(x, mask)
        return self._blocks(*mfa_scores(cov, *weighted_moments(x, gamma, mu, p)), cov) / counted(x, mask)

    def terms(
        self, x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None, grid: Grid | None
    ) -> Float[Tensor, "b l blocks d"]:
        x, mu, cov, gamma, p = self._assigned(x, mask)
        # every location as an image of its own
        x1, gamma1, p1 = (t.flatten(0, 1)[:, None] for t in (x, gamma, p))
        blocks = self._blocks(*mfa_scores(cov, *weighted_moments(x1, gamma1, mu, p1)), cov)
        return blocks.unflatten(0, x.shape[:2]) / counted(x, mask)[:, None]

    def _blocks(self, g_means: Tensor, g_loadings: Tensor, cov: Covariances) -> Tensor:
        """The scores, scaled, as blocks of d: the means' first, then one for each factor of each component."""
        if self.scaling == "diagonal":
            means, loadings = information(self._values()[0], cov)
            g_means, g_loadings = g_means * means.rsqrt(), g_loadings * loadings.rsqrt()
        return torch.cat([g_means, g_loadings.flatten(1, 2)], dim=1)

    def flops(self, locations: int) -> int:
        n, f, d = self.codewords, self.factors, self.in_dim
        return locations * (4 * n * f * d + 6 * n * d + 4 * n * f) + n * f * d * (4 * f + 8)


class MFAFV(_FactorAnalysers):
    """Scores of μ_k and Λ_k under p(x) = Σ π_k N(x; μ_k, Λ_kΛ_kᵀ + Ψ_k), a mean over locations; the mixture is fitted.

    Args:
        in_dim: d of the local features.
        codewords: Components N.
        factors: Rank F of each Λ_k; the output has N·(1 + F)·d dimensions, the means' scores first.
        scaling: ``diagonal`` divides each score by its root Fisher information (with no factors this is the mean part
            of the Fisher vector), ``none`` leaves the scores of the 2016 paper.
        normalise: ``sqrt-l2`` (the paper), ``l2``, ``intra-l2``, or ``none``, which is additive.
        fit_points: Local features that ``fit`` looks at.
    """

    family = "mfa-fv"
    weights: Tensor
    means: Tensor
    loadings: Tensor
    noise: Tensor

    def _make_values(self) -> None:
        shape = (self.codewords, self.in_dim)
        self.register_buffer("weights", torch.full((self.codewords,), 1 / self.codewords))
        self.register_buffer("means", torch.zeros(shape))
        self.register_buffer("loadings", torch.zeros(*shape, self.factors))
        self.register_buffer("noise", torch.ones(shape))

    def _values(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.weights, self.means, self.loadings, self.noise

    def set_mixture(
        self,
        weights: Float[Tensor, " n"],
        means: Float[Tensor, "n d"],
        loadings: Float[Tensor, "n d f"],
        noise: Float[Tensor, "n d"],
    ) -> None:
        set_values(self, weights=weights, means=means, loadings=loadings, noise=noise)
        self.mark_fitted()


class MFAFVNet(_FactorAnalysers):
    """The same scores with π, μ, Λ and Ψ as parameters, trained end to end; ``fit`` starts it at MFA-FV's mixture.

    The paper learns the inverse covariance apart from Λ and ties them by a penalty; here everything is computed from π,
    μ, Λ and Ψ, so the scores stay those of a mixture throughout. Arguments as for ``MFAFV``.
    """

    family = "mfafvnet"
    learned = True

    def _make_values(self) -> None:
        shape = (self.codewords, self.in_dim)
        self.log_weights = nn.Parameter(torch.zeros(self.codewords))
        self.means = nn.Parameter(torch.randn(shape) / self.in_dim**0.5)
        self.loadings = nn.Parameter(torch.randn(*shape, self.factors) / self.in_dim**0.5)
        self.log_noise = nn.Parameter(torch.zeros(shape))

    def _values(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.log_weights.softmax(0), self.means, self.loadings, self.log_noise.exp()

    def set_mixture(
        self,
        weights: Float[Tensor, " n"],
        means: Float[Tensor, "n d"],
        loadings: Float[Tensor, "n d f"],
        noise: Float[Tensor, "n d"],
    ) -> None:
        set_values(self, log_weights=weights.log(), means=means, loadings=loadings, log_noise=noise.log())
