"""Mixtures of Gaussians with diagonal covariances, and the Fisher scores of local features under them.

    p(x) = Σ_k π_k N(x; μ_k, σ_k²),     γ_k(x) = π_k N(x; μ_k, σ_k²) / p(x),     u_k = (x − μ_k) / σ_k

    Fisher vector (Perronnin et al. 2010; Sánchez et al. 2013, eqs. 16–17), over T locations:
    G_μk = 1/(T√π_k) Σ_t γ_k u_k,     G_σk = 1/(T√(2π_k)) Σ_t γ_k (u_k² − 1)

Everything is a product with x or with x², never a (B, L, N, d) tensor. Squares are expanded, so callers centre x and μ
first: what is lost to rounding is then bounded by total over component variance, which the variance floor bounds.
"""

from __future__ import annotations

import math

from jaxtyping import Float
from torch import Tensor

LOG_2PI = math.log(2 * math.pi)


def quadratic_terms(
    mu: Float[Tensor, "n d"], precision: Float[Tensor, "n d"]
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"], Float[Tensor, " n"]]:
    """A, Q, c with A x + Q x² + c = −½ Σ_j (x_j − μ_kj)²·precision_kj for every component."""
    linear = mu * precision
    return linear, -0.5 * precision, -0.5 * (mu * linear).sum(1)


def log_joint_terms(
    weights: Float[Tensor, " n"], mu: Float[Tensor, "n d"], variance: Float[Tensor, "n d"]
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"], Float[Tensor, " n"]]:
    """A, Q, c with A x + Q x² + c = log π_k + log N(x; μ_k, diag σ_k²); its softmax is γ."""
    linear, square, constant = quadratic_terms(mu, 1 / variance)
    return linear, square, constant + weights.log() - 0.5 * (variance.log().sum(1) + mu.shape[1] * LOG_2PI)


def fisher_scores(
    s0: Float[Tensor, "b n"],
    s1: Float[Tensor, "b n d"],
    s2: Float[Tensor, "b n d"],
    mu: Float[Tensor, "n d"],
    inverse_sigma: Float[Tensor, "n d"],
) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n d"]]:
    """(Σ γ_k u_k, Σ γ_k (u_k² − 1)/√2) from the sums of γ, γ x and γ x²: the Fisher scores before 1/(T√π_k)."""
    s0 = s0[..., None]
    mean_part = (s1 - s0 * mu) * inverse_sigma
    spread = (s2 - mu * (2 * s1 - s0 * mu)) * inverse_sigma.square()
    return mean_part, (spread - s0) * math.sqrt(0.5)


def fisher_terms(
    x: Float[Tensor, "b l d"],
    gamma: Float[Tensor, "b l n"],
    mu: Float[Tensor, "n d"],
    inverse_sigma: Float[Tensor, "n d"],
) -> tuple[Float[Tensor, "b l n d"], Float[Tensor, "b l n d"]]:
    """What each location adds to ``fisher_scores``."""
    u = (x[:, :, None] - mu) * inverse_sigma
    return gamma[..., None] * u, gamma[..., None] * (u.square() - 1) * math.sqrt(0.5)
