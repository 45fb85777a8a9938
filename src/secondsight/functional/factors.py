"""Mixtures of factor analysers: each component is a Gaussian whose covariance is a low-rank part plus a diagonal.

    p(x) = Σ_k π_k N(x; μ_k, S_k),     S_k = Λ_k Λ_kᵀ + Ψ_k,     Λ_k: d×F,     Ψ_k diagonal

With M = I + ΛᵀΨ⁻¹Λ = CCᵀ (F×F) and R = C⁻¹ΛᵀΨ⁻¹ (F×d), the matrix inversion and determinant lemmas give

    S⁻¹ = Ψ⁻¹ − RᵀR,     log|S| = Σ log Ψ + 2 Σ log C_ff,     S⁻¹Λ = RᵀC⁻¹,     ΛᵀS⁻¹Λ = I − M⁻¹

so that no d×d matrix is ever formed. Fisher scores (Dixit & Vasconcelos 2016), with r = x − μ_k:

    G_μk = Σ γ_k S_k⁻¹ r,     G_Λk = Σ γ_k S_k⁻¹ (r rᵀ S_k⁻¹ − I) Λ_k = (S_k⁻¹ Σ γ_k r (Rr)ᵀ − Σ γ_k Rᵀ) C⁻¹

Both are linear in Σ γ_k t xᵀ and Σ γ_k t, where t = (1, Rr) has F + 1 entries: the mean goes along as a factor that is
always 1. Tensors that end in (f + 1, d) or (f + 1) hold μ's row first, then one for each factor.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from secondsight.functional.gaussians import LOG_2PI


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


def mfa_posteriors(
    x: Float[Tensor, "*m d"], weights: Float[Tensor, " n"], mu: Float[Tensor, "n d"], cov: Covariances
) -> tuple[Float[Tensor, "*m n"], Float[Tensor, "*m n f"]]:
    """(log π_k + log N(x; μ_k, S_k), R_k r), with rᵀS⁻¹r = rᵀΨ⁻¹r − ‖Rr‖².

    One product with x, (F + 1)·N wide, and one with x², N wide; the softmax of the first is γ.
    """
    n, f, d = cov.r.shape
    scaled_mu = mu * cov.precision
    maps = torch.cat([cov.r.reshape(n * f, d), -2 * scaled_mu])
    offsets = torch.cat([-(cov.r @ mu[..., None]).reshape(n * f), (mu * scaled_mu).sum(1)])
    factors, linear = torch.nn.functional.linear(x, maps, offsets).split([n * f, n], dim=-1)
    rr = factors.unflatten(-1, (n, f))
    quadratic = linear + x.square() @ cov.precision.T - rr.square().sum(-1)
    return weights.log() - 0.5 * (cov.log_det + d * LOG_2PI + quadratic), rr


class Moments(NamedTuple):
    """Sums over locations with t = (1, Rr)."""

    totals: Tensor  # (b, n, f + 1)     Σ γ t
    sums: Tensor  # (b, n, f + 1, d)  Σ γ t xᵀ


def weighted_moments(x: Float[Tensor, "b l d"], gamma: Float[Tensor, "b l n"], rr: Float[Tensor, "b l n f"]) -> Moments:
    """All that the scores and the EM steps need of the locations: one batched product, (F + 1)·N wide."""
    t = torch.cat([gamma[..., None], gamma[..., None] * rr], dim=-1)  # (b, l, n, f + 1)
    sums = t.flatten(2).transpose(1, 2) @ x
    return Moments(t.sum(1), sums.unflatten(1, t.shape[2:]))


def mfa_scores(cov: Covariances, mu: Float[Tensor, "n d"], s: Moments) -> Float[Tensor, "n b f1 d"]:
    """(G_μ, G_Λᵀ) of every component and image: gradients of the log-likelihood with respect to μ_k and Λ_k.

    With E = diag(1, C⁻ᵀ), A = E Σγtxᵀ and a = E Σγt, the equations above read
    G = AΨ⁻¹ − [(ARᵀ − a(Rμ)ᵀ + s₀(0, C⁻ᵀ))  a] [R; Ψ⁻¹μ].
    """
    (n, f, d), b = cov.r.shape, s.totals.shape[0]
    upper = torch.nn.functional.pad(cov.inverse_c.transpose(1, 2), (0, 0, 1, 0))  # (0, C⁻ᵀ)
    e = torch.nn.functional.pad(upper, (1, 0))
    e[:, 0, 0] = 1
    # components first: then the products below share their right-hand sides without copies
    big_a = e[:, None] @ s.sums.transpose(0, 1)  # (n, b, f + 1, d)
    a = e[:, None] @ s.totals.transpose(0, 1)[..., None]  # (n, b, f + 1, 1)
    inner = (big_a.flatten(1, 2) @ cov.r.transpose(1, 2)).view(n, b, f + 1, f)
    inner = inner - a * (cov.r @ mu[..., None]).view(n, 1, 1, f) + a[:, :, :1] * upper[:, None]
    left = torch.cat([inner, a], dim=-1).flatten(1, 2)
    right = torch.cat([cov.r, (mu * cov.precision)[:, None]], dim=1)
    scaled = (big_a * cov.precision[:, None, None]).flatten(1, 2)
    return torch.baddbmm(scaled, left, right, alpha=-1).view(n, b, f + 1, d)


def information(weights: Float[Tensor, " n"], cov: Covariances) -> Float[Tensor, "n f1 d"]:
    """The diagonal of the Fisher information of μ_k and Λ_k, where γ is taken as hard (as the Fisher vector does).

    With y = S⁻¹r ~ N(0, S⁻¹) and w = Λᵀy the scores are y and y wᵀ − S⁻¹Λ, whose variances are
    (S⁻¹)_jj and (S⁻¹)_jj (ΛᵀS⁻¹Λ)_ff + (S⁻¹Λ)²_jf.
    """
    diagonal = (cov.precision - cov.r.square().sum(1)).clamp_min(1e-6 * cov.precision)[:, None]
    explained = 1 - cov.inverse_c.square().sum(1)  # diag(I − M⁻¹), (n, f)
    s_inverse_loadings = cov.inverse_c.transpose(1, 2) @ cov.r
    spread = diagonal * explained.clamp_min(0)[..., None] + s_inverse_loadings.square()
    # a factor that is zero has a zero score: the floor keeps 0 / 0 at 0
    return weights[:, None, None] * torch.cat([diagonal, spread.clamp_min(1e-6 * diagonal)], dim=1)
