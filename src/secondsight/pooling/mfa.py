"""MFA-FV and MFAFVNet: Fisher scores of a mixture of factor analysers.

MFA-FV: Dixit & Vasconcelos, "Object based scene representations using Fisher scores of local subspace projections",
NIPS 2016. MFAFVNet: Li, Dixit & Vasconcelos, "Deep scene image classification with the MFAFVNet", ICCV 2017.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from secondsight.errors import ConfigError, require_known
from secondsight.functional.pooling.factors import (
    covariances,
    information,
    mfa_maps,
    mfa_posteriors,
    mfa_scores,
    posterior_moments,
)
from secondsight.functional.pooling.locations import location_shares
from secondsight.functional.pooling.residuals import masked
from secondsight.pooling.codebook_pooling import FIT_POINTS, set_values
from secondsight.pooling.contract import Grid, Locals, Mask
from secondsight.pooling.mixture_pooling import FLOOR, MixturePooling

SCALINGS = ("diagonal", "none")
"""diagonal: scores over the root of their Fisher information, as in Fisher vectors · none: the plain scores (2016)."""


class _FactorAnalysers(MixturePooling):
    """What the fitted and the learned form share: all but where the mixture's numbers live."""

    name_options = ("codewords", "factors")

    def __init__(
        self,
        in_dim: int,
        *,
        codewords: int = 8,
        factors: int = 8,
        scaling: str = "diagonal",
        floor: float = FLOOR,
        normalise: str = "sqrt-l2",
        fit_points: int = FIT_POINTS,
    ):
        if not 0 <= factors < max(in_dim, 1):
            raise ConfigError(f"{self.family}: factors must be from 0 to in_dim − 1 = {in_dim - 1}, got {factors}")
        require_known("scaling", scaling, SCALINGS)
        super().__init__(
            in_dim,
            blocks=1 + factors,
            codewords=codewords,
            factors=factors,
            floor=floor,
            normalise=normalise,
            fit_points=fit_points,
        )
        self.scaling = scaling
        self._make_values()

    def _make_values(self) -> None:
        """The buffers or parameters behind ``_values``."""
        raise NotImplementedError

    def _values(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """π (n), μ (n, d), Λ (n, d, f), Ψ (n, d)."""
        raise NotImplementedError

    def posteriors(self, x: Locals, mask: Mask = None) -> Float[Tensor, "b l n"]:
        """γ_k(x): the chance that each location comes from each component."""
        weights, mu, loadings, noise = self._values()
        centre = weights @ mu
        joint, _ = mfa_posteriors(x - centre, weights, mu - centre, covariances(loadings, noise))
        return masked(joint.softmax(-1), mask)

    def _scores(self, x: Float[Tensor, "b l d"], share: Float[Tensor, "b l"]) -> Float[Tensor, "b blocks d"]:
        """Σ over each image's locations of their scores, every location counting as its share."""
        weights, mu, loadings, noise = self._values()
        centre = (weights @ mu).detach()  # from x and μ alike: it changes nothing but the rounding
        mu, cov = mu - centre, covariances(loadings, noise)
        g = mfa_scores(cov, mu, *posterior_moments(x, centre, share, mfa_maps(weights, mu, cov)))
        if self.scaling == "diagonal":
            g = g * information(weights, cov).rsqrt()[:, :, None]
        return g.permute(2, 0, 1, 3).flatten(1, 2)

    def sums(self, x: Locals, mask: Mask, grid: Grid | None) -> Float[Tensor, "b blocks d"]:
        return self._scores(x, location_shares(x, mask))

    def terms(self, x: Locals, mask: Mask, grid: Grid | None) -> Float[Tensor, "b l blocks d"]:
        # every location as an image of its own
        alone = self._scores(x.flatten(0, 1)[:, None], location_shares(x, mask).flatten()[:, None])
        return alone.unflatten(0, x.shape[:2])

    def flops(self, locations: int) -> int:
        n, f, d = self.codewords, self.factors, self.in_dim
        return locations * (4 * n * f * d + 6 * n * d + 4 * n * f) + n * f * d * (4 * f + 8)


class MFAFV(_FactorAnalysers):
    """Scores of μ_k and Λ_k under p(x) = Σ π_k N(x; μ_k, Λ_kΛ_kᵀ + Ψ_k), a mean over locations; the mixture is fitted.

    Args:
        in_dim: d of the local features.
        codewords: Components N.
        factors: Rank F of each Λ_k; the output has N·(1 + F)·d dimensions, N times μ's score and Λ's columns'.
        scaling: ``diagonal`` divides each score by its root Fisher information (with no factors this is the mean part
            of the Fisher vector), ``none`` leaves the scores of the 2016 paper.
        floor: The least entry of Ψ_k, as a part of the mean variance. The paper's is maximum likelihood, 0.001; see
            ``FLOOR`` for why the default is not.
        normalise: ``sqrt-l2`` (the paper), ``l2``, ``intra-l2``, or ``none``, which is additive.
        fit_points: Local features that ``fit`` looks at.
    """

    family = "mfa-fv"
    summary = "Fisher vector of a mixture of factor analysers"
    paper = "Dixit & Vasconcelos, NIPS 2016"
    expects = "a fit before use"
    examples = ("mfa-fv-8-8",)
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
        return self.values("weights", "means", "loadings", "noise")  # pyright: ignore[reportReturnType]

    def set_mixture(self, weights: Tensor, means: Tensor, variances: Tensor, loadings: Tensor | None = None) -> None:
        assert loadings is not None
        set_values(self, weights=weights, means=means, loadings=loadings, noise=variances)
        self.mark_fitted()


class MFAFVNet(_FactorAnalysers):
    """The same scores with π, μ, Λ and Ψ as parameters, trained end to end; ``fit`` starts it at MFA-FV's mixture.

    The paper learns the inverse covariance apart from Λ and ties them by a penalty; here everything is computed from π,
    μ, Λ and Ψ, so the scores stay those of a mixture throughout. Arguments as for ``MFAFV``.
    """

    family = "mfafvnet"
    summary = "the same, learned end to end"
    paper = "Li, Dixit, Vasconcelos, ICCV 2017"
    expects = "a fit for a good start"
    examples = ("mfafvnet-8-8",)
    learned = True

    def _make_values(self) -> None:
        shape = (self.codewords, self.in_dim)
        self.log_weights = nn.Parameter(torch.zeros(self.codewords))
        self.means = nn.Parameter(torch.randn(shape) / self.in_dim**0.5)
        self.loadings = nn.Parameter(torch.randn(*shape, self.factors) / self.in_dim**0.5)
        self.log_noise = nn.Parameter(torch.zeros(shape))

    def _values(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        log_weights, means, loadings, log_noise = self.values("log_weights", "means", "loadings", "log_noise")
        return log_weights.softmax(0), means, loadings, log_noise.exp()

    def set_mixture(self, weights: Tensor, means: Tensor, variances: Tensor, loadings: Tensor | None = None) -> None:
        assert loadings is not None
        set_values(self, log_weights=weights.log(), means=means, loadings=loadings, log_noise=variances.log())
