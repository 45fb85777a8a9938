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

from secondsight.functional.pooling.gaussians import LOG_2PI
from secondsight.functional.pooling.image_slices import image_slices
from secondsight.functional.pooling.plain_gradients import plain_gradients


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
    m = eye + scaled @ loadings
    # An exported program cannot raise torch's error; M is never singular.
    c = torch.linalg.cholesky_ex(m).L if torch.compiler.is_exporting() else torch.linalg.cholesky(m)
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


class Maps(NamedTuple):
    """What turns x into log π_k N(x; μ_k, S_k) and R_k r: with (v_k, w_k) = M x + o, it is v + x²Pᵀ + ½‖w‖², and w."""

    m: Tensor  # (n, f + 1, d)  μΨ⁻¹, then R
    o: Tensor  # (n, f + 1)     log π − ½ (log|S| + d log 2π + μᵀΨ⁻¹μ), then −Rμ
    p: Tensor  # (n, d)         −½Ψ⁻¹


def mfa_maps(weights: Float[Tensor, " n"], mu: Float[Tensor, "n d"], cov: Covariances) -> Maps:
    """The maps of a mixture."""
    scaled = mu * cov.precision
    constant = weights.log() - 0.5 * (cov.log_det + mu.shape[1] * LOG_2PI + (mu * scaled).sum(1))
    m = torch.cat([scaled[:, None], cov.r], dim=1)
    return Maps(m, torch.cat([constant[:, None], -(cov.r @ mu[..., None])[..., 0]], dim=1), -0.5 * cov.precision)


def posterior_moments(
    x: Float[Tensor, "b l d"], centre: Float[Tensor, " d"], share: Float[Tensor, "b l"], maps: Maps
) -> tuple[Float[Tensor, "n f1 b"], Float[Tensor, "n f1 b d"]]:
    """(Σ γt, Σ γt (x − centre)ᵀ) of every image, with γ times the location's ``share``: 1/L, or 0 where masked out."""
    if torch.compiler.is_exporting():
        return _plain_moments(x, centre, share, *maps)
    return _PosteriorMoments.apply(x, centre, share, *maps)  # type: ignore[return-value]


def _plain_moments(x: Tensor, centre: Tensor, share: Tensor, m: Tensor, o: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    r = x - centre
    vw = (r @ m.flatten(0, 1).T).unflatten(-1, o.shape) + o
    v, w = vw[..., 0], vw[..., 1:]
    gamma = (v + r.square() @ p.T + 0.5 * w.square().sum(-1)).softmax(-1) * share[..., None]
    totals, sums = weighted_moments(r, gamma, w)
    return totals.permute(1, 2, 0), sums.permute(1, 2, 0, 3)


class _PosteriorMoments(torch.autograd.Function):
    """By hand to keep γ and t alone, and to take as few passes as there are products: d is wide and N·(F + 1) is not.

    In letters of ``Maps``, u = (1, w), t = γu·share: the gradient of t is τ = x dSᵀ + dT, of γ it is Σ_f u τ·share, of
    γ's logarithm δ as softmax has it, and of (v, w) it is (δ, γτ·share + δw).
    """

    @staticmethod
    def forward(ctx, x, centre, share, m, o, p):
        (b, length, d), (n, f1) = x.shape, o.shape
        u, gamma = x.new_empty(b, length, n * f1), x.new_empty(b, length, n)
        totals, sums = x.new_empty(n * f1, b), x.new_empty(n * f1, b, d)
        half = _members(n, f1, x) / 2
        half[::f1] = 0
        for some in image_slices(x):
            r = (x[some] - centre).flatten(0, 1)
            v = torch.addmm(o.flatten(), r, m.view(-1, d).T, out=u[some].view(-1, n * f1))
            log_joint = torch.addmm(v[:, ::f1], r.square(), p.T).addmm_(v.square(), half)
            torch.softmax(log_joint.view(gamma[some].shape), -1, out=gamma[some])
            v[:, ::f1] = 1
            t = _weighted(u[some], gamma[some] * share[some, :, None])
            totals[:, some] = t.sum(1).T
            sums[:, some] = (t.transpose(1, 2) @ r.view(x[some].shape)).transpose(0, 1)
        ctx.save_for_backward(x, centre, share, m, o, p, u, gamma)
        return totals.view(n, f1, b), sums.view(n, f1, b, d)

    @staticmethod
    def backward(ctx, *grads):
        x, centre, share, m, o, p, u, gamma = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: gradients that can be differentiated again, at the plain price
            return plain_gradients(_plain_moments, (x, centre, share, m, o, p), grads)
        (b, _, d), (n, f1) = x.shape, o.shape
        d_totals, d_sums = grads[0].reshape(n * f1, b), grads[1].reshape(n * f1, b, d)
        dx, learned = x.new_empty(x.shape), any(ctx.needs_input_grad[3:])
        dm, do, dp = torch.zeros_like(m).view(-1, d), torch.zeros_like(o).view(-1), torch.zeros_like(p)
        members = _members(n, f1, x)
        for some in image_slices(x):
            r, g = x[some] - centre, d_sums[:, some].transpose(0, 1)
            tau = torch.baddbmm(d_totals[:, some].T[:, None], r, g.transpose(1, 2))
            own = gamma[some] * share[some, :, None]
            d_gamma = (u[some] * tau) @ members * own
            delta = torch.addcmul(d_gamma, gamma[some], d_gamma.sum(-1, keepdim=True), value=-1)
            t = _weighted(u[some], own)
            du = _weighted(tau, own).view(*own.shape, f1)
            du.addcmul_(u[some].view_as(du), delta[..., None])[..., 0] = delta
            flat, du, delta = r.flatten(0, 1), du.flatten(0, 1).flatten(1), delta.flatten(0, 1)
            out = torch.mm(delta, 2 * p, out=dx[some].view(-1, d)).mul_(flat)
            out.addmm_(du, m.view(-1, d)).view_as(r).baddbmm_(t, g)
            if learned:
                dm.addmm_(du.T, flat)
                do += du.sum(0)
                dp.addmm_(delta.T, flat.square_())
        if not learned:
            return dx, None, None, None, None, None
        return dx, None, None, dm.view_as(m), do.view_as(o), dp


def _members(n: int, f1: int, like: Tensor) -> Tensor:
    """Which of N·(F + 1) columns are component k's: (n·f1, n). A product with it sums faster than a sum over so few."""
    return torch.eye(n, dtype=like.dtype, device=like.device).repeat_interleave(f1, 0)


def _weighted(u: Tensor, gamma: Tensor) -> Tensor:
    return (u.unflatten(-1, (gamma.shape[-1], -1)) * gamma[..., None]).flatten(-2)


def mfa_scores(
    cov: Covariances,
    mu: Float[Tensor, "n d"],
    totals: Float[Tensor, "n f1 b"],
    sums: Float[Tensor, "n f1 b d"],
) -> Float[Tensor, "n f1 b d"]:
    """(G_μ, G_Λᵀ) of every component and image: gradients of the log-likelihood with respect to μ_k and Λ_k.

    With E = diag(1, C⁻ᵀ), A = E Σγtxᵀ and a = E Σγt, the equations above read
    G = AΨ⁻¹ − [(ARᵀ − a(Rμ)ᵀ + s₀(0, C⁻ᵀ))  a] [R; Ψ⁻¹μ].
    Components and factors come before images: then every product has one matrix for all images, and nothing is copied.
    """
    n, f1, b, d = sums.shape
    upper = torch.nn.functional.pad(cov.inverse_c.transpose(1, 2), (0, 0, 1, 0))  # (0, C⁻ᵀ)
    e = torch.nn.functional.pad(upper, (1, 0))
    e[:, 0, 0] = 1
    big_a = (e @ sums.flatten(2)).view(n, f1 * b, d)
    a = e @ totals
    inner = (big_a @ cov.r.transpose(1, 2)).view(n, f1, b, f1 - 1)
    inner = inner - a[..., None] * (cov.r @ mu[..., None]).view(n, 1, 1, f1 - 1)
    inner = inner + totals[:, :1, :, None] * upper[:, :, None]
    left = torch.cat([inner, a[..., None]], dim=-1).flatten(1, 2)
    right = torch.cat([cov.r, (mu * cov.precision)[:, None]], dim=1)
    return torch.baddbmm(big_a * cov.precision[:, None], left, right, alpha=-1).view(n, f1, b, d)


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
