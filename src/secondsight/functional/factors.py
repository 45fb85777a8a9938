"""Mixtures of factor analysers: each component is a Gaussian whose covariance is a low-rank part plus a diagonal.

    p(x) = Σ_k π_k N(x; μ_k, S_k),     S_k = Λ_k Λ_kᵀ + Ψ_k,     Λ_k: d×F,     Ψ_k diagonal

With M = I + ΛᵀΨ⁻¹Λ = CCᵀ (F×F) and R = C⁻¹ΛᵀΨ⁻¹ (F×d), the matrix inversion and determinant lemmas give

    S⁻¹ = Ψ⁻¹ − RᵀR,     log|S| = Σ log Ψ + 2 Σ log C_ff,     S⁻¹Λ = RᵀC⁻¹,     ΛᵀS⁻¹Λ = I − M⁻¹

so that no d×d matrix is ever formed. Fisher scores (Dixit & Vasconcelos 2016, eqs. 12–13), with r = x − μ_k:

    G_μk = Σ γ_k S_k⁻¹ r,     G_Λk = Σ γ_k S_k⁻¹ (r rᵀ S_k⁻¹ − I) Λ_k = (S_k⁻¹ Σ γ_k r (Rr)ᵀ − Σ γ_k Rᵀ) C⁻¹
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from secondsight.functional.gaussians import LOG_2PI, quadratics


class Covariances(NamedTuple):
    """The pieces of S_k = Λ_kΛ_kᵀ + Ψ_k that stand for its inverse and its determinant."""

    precision: Tensor  # (n, d)     1 / Ψ
    r: Tensor  # (n, f, d)  C⁻¹ΛᵀΨ⁻¹
    inverse_c: Tensor  # (n, f, f)  of the Cholesky factor of I + ΛᵀΨ⁻¹Λ
    log_det: Tensor  # (n,)       log|S|


def covariances(loadings: Float[Tensor, "n d f"], noise: Float[Tensor, "n d"]) -> Covariances:
    """Everything that S⁻¹ and log|S| need, from Λ and the diagonal of Ψ."""
    scaled = (loadings / noise[..., None]).transpose(1, 2)  # ΛᵀΨ⁻¹
    eye = torch.eye(loadings.shape[2], dtype=loadings.dtype, device=loadings.device)
    c = torch.linalg.cholesky(eye + scaled @ loadings)
    inverse_c = torch.linalg.solve_triangular(c, eye.expand_as(c), upper=False)
    log_det = noise.log().sum(1) + 2 * c.diagonal(dim1=1, dim2=2).log().sum(1)
    return Covariances(1 / noise, inverse_c @ scaled, inverse_c, log_det)


def projections(x: Float[Tensor, "*m d"], mu: Float[Tensor, "n d"], cov: Covariances) -> Float[Tensor, "*m n f"]:
    """R_k (x − μ_k) for every component: one (N·F)-wide matrix product."""
    n, f, d = cov.r.shape
    offset = -(cov.r @ mu[..., None]).reshape(n * f)
    return torch.nn.functional.linear(x, cov.r.reshape(n * f, d), offset).unflatten(-1, (n, f))


def mfa_log_joint(
    x: Float[Tensor, "*m d"],
    x2: Float[Tensor, "*m d"],
    weights: Float[Tensor, " n"],
    mu: Float[Tensor, "n d"],
    cov: Covariances,
    p: Float[Tensor, "*m n f"],
) -> Float[Tensor, "*m n"]:
    """log π_k + log N(x; μ_k, S_k), with rᵀS⁻¹r = rᵀΨ⁻¹r − ‖Rr‖²; ``p`` is ``projections(x, mu, cov)``."""
    constant = weights.log() - 0.5 * (cov.log_det + mu.shape[1] * LOG_2PI)
    return constant - 0.5 * (quadratics(x, x2, mu, cov.precision) - p.square().sum(-1))


def weighted_moments(
    x: Float[Tensor, "b l d"], gamma: Float[Tensor, "b l n"], mu: Float[Tensor, "n d"], p: Float[Tensor, "b l n f"]
) -> tuple[Float[Tensor, "b n"], Float[Tensor, "b n d"], Float[Tensor, "b n f d"]]:
    """(Σγ, Σγ r, Σγ (Rr) rᵀ): all that the scores and the EM steps need of the locations."""
    gp = (gamma[..., None] * p).flatten(2)  # (b, l, n·f)
    s0 = gamma.sum(1)
    s1 = gamma.transpose(1, 2) @ x - s0[..., None] * mu
    cross = (gp.transpose(1, 2) @ x).unflatten(1, p.shape[2:])
    return s0, s1, cross - gp.sum(1).unflatten(1, p.shape[2:])[..., None] * mu[:, None]


def apply_inverse(cov: Covariances, rows: Float[Tensor, "b n q d"]) -> Float[Tensor, "b n q d"]:
    """Each row v of component k times S_k⁻¹ = Ψ⁻¹ − RᵀR."""
    return rows * cov.precision[:, None] - (rows @ cov.r.transpose(1, 2)) @ cov.r


def mfa_scores(
    cov: Covariances,
    s0: Float[Tensor, "b n"],
    s1: Float[Tensor, "b n d"],
    cross: Float[Tensor, "b n f d"],
) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n f d"]]:
    """(G_μ, G_Λ transposed) from ``weighted_moments``: gradients of the log-likelihood with respect to μ_k and Λ_k."""
    inner = apply_inverse(cov, cross) - s0[..., None, None] * cov.r
    # (…) C⁻¹ on the F side: with rows for factors that is C⁻ᵀ from the left
    return apply_inverse(cov, s1[:, :, None])[:, :, 0], cov.inverse_c.transpose(1, 2) @ inner


def information(weights: Float[Tensor, " n"], cov: Covariances) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n f d"]]:
    """The diagonal of the Fisher information of μ_k and Λ_k, where γ is taken as hard (as the Fisher vector does).

    With y = S⁻¹r ~ N(0, S⁻¹) and w = Λᵀy the scores are y and y wᵀ − S⁻¹Λ, whose variances are
    (S⁻¹)_jj and (S⁻¹)_jj (ΛᵀS⁻¹Λ)_ff + (S⁻¹Λ)²_jf.
    """
    diagonal = (cov.precision - cov.r.square().sum(1)).clamp_min(1e-6 * cov.precision)
    explained = 1 - cov.inverse_c.square().sum(1)  # diag(I − M⁻¹), (n, f)
    s_inverse_loadings = cov.inverse_c.transpose(1, 2) @ cov.r
    spread = diagonal[:, None] * explained.clamp_min(0)[..., None] + s_inverse_loadings.square()
    # a factor that is zero has a zero score: the floor keeps 0 / 0 at 0
    spread = spread.clamp_min(1e-6 * diagonal[:, None])
    return weights[:, None] * diagonal, weights[:, None, None] * spread
