"""MFA-FV and MFAFVNet against dense Gaussians and autograd."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import MultivariateNormal

from secondsight.errors import ConfigError, UnknownName
from secondsight.functional.pooling import image_slices
from secondsight.functional.pooling.factors import (
    Maps,
    covariances,
    information,
    mfa_maps,
    mfa_posteriors,
    posterior_moments,
    weighted_moments,
)
from secondsight.pooling.em import fit_mixture
from secondsight.pooling.fisher import FisherVector
from secondsight.pooling.mfa import MFAFV, MFAFVNet

D, N, F = 5, 3, 2


def mfa(spread: float = 2.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """π, μ, Λ, Ψ of a mixture with known parameters."""
    generator = torch.Generator().manual_seed(7)
    means = spread * torch.randn(N, D, generator=generator, dtype=torch.float64)
    loadings = torch.randn(N, D, F, generator=generator, dtype=torch.float64)
    noise = torch.rand(N, D, generator=generator, dtype=torch.float64) + 0.2
    return torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64), means, loadings, noise


def dense(loadings: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    return loadings @ loadings.transpose(1, 2) + torch.diag_embed(noise)


def draw(count: int, weights, means, loadings, noise, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    which = torch.multinomial(weights, count, replacement=True, generator=generator)
    z = torch.randn(count, loadings.shape[2], 1, generator=generator, dtype=torch.float64)
    e = torch.randn(count, D, generator=generator, dtype=torch.float64)
    return means[which] + (loadings[which] @ z)[..., 0] + e * noise[which].sqrt()


def log_likelihood(x, weights, means, loadings, noise) -> torch.Tensor:
    """log p(x) with dense covariances: (m,)."""
    components = MultivariateNormal(means, dense(loadings, noise))
    return (weights.log() + components.log_prob(x[:, None])).logsumexp(1)


def set_mixture(layer: MFAFV | MFAFVNet, weights, means, loadings, noise) -> None:
    layer.set_mixture(weights, means, noise, loadings)


def pooling(mixture, **options) -> MFAFV:
    layer = MFAFV(D, codewords=N, factors=mixture[2].shape[2], **options).double()
    set_mixture(layer, *mixture)
    return layer


def test_log_joint_is_that_of_dense_gaussians():
    weights, means, loadings, noise = mfa()
    x = draw(40, weights, means, loadings, noise)
    cov = covariances(loadings, noise)
    joint, _ = mfa_posteriors(x, weights, means, cov)
    torch.testing.assert_close(joint.logsumexp(1), log_likelihood(x, weights, means, loadings, noise))
    torch.testing.assert_close(pooling(mfa()).posteriors(x[None])[0], joint.softmax(1))


def test_moments_in_pieces_are_those_of_the_posteriors_both_ways(monkeypatch):
    monkeypatch.setattr(image_slices, "NUMBERS", 2 * 6 * D)  # two images at a time
    weights, means, loadings, noise = mfa(0.5)
    x = draw(30, weights, means, loadings, noise).view(5, 6, D).requires_grad_()
    share = torch.rand(5, 6, dtype=torch.float64)
    centre = means.mean(0)
    maps = mfa_maps(weights, means - centre, covariances(loadings, noise))
    totals, sums = posterior_moments(x, centre, share, maps)
    joint, rr = mfa_posteriors(x, weights, means, covariances(loadings, noise))
    plain = weighted_moments(x - centre, joint.softmax(-1) * share[..., None], rr)
    torch.testing.assert_close(totals, plain.totals.permute(1, 2, 0))
    torch.testing.assert_close(sums, plain.sums.permute(1, 2, 0, 3))

    def moments(x, m, o, p):
        return posterior_moments(x, centre, share, Maps(m, o, p))

    inputs = (x, *(t.requires_grad_() for t in maps))
    assert torch.autograd.gradcheck(moments, inputs, fast_mode=True)
    assert torch.autograd.gradcheck(lambda x: moments(x, *(t.detach() for t in maps)), (x,))
    assert torch.autograd.gradgradcheck(moments, inputs, fast_mode=True)


def test_inverse_and_determinant_are_those_of_the_dense_covariance():
    _, _, loadings, noise = mfa()
    cov, s = covariances(loadings, noise), dense(loadings, noise)
    torch.testing.assert_close(torch.diag_embed(cov.precision) - cov.r.transpose(1, 2) @ cov.r, s.inverse())
    torch.testing.assert_close(cov.log_det, s.logdet())


def test_plain_scores_are_gradients_of_the_log_likelihood():
    weights, means, loadings, noise = mfa()
    x = draw(9, *mfa())
    mu, lam = means.clone().requires_grad_(), loadings.clone().requires_grad_()
    log_likelihood(x, weights, mu, lam, noise).mean().backward()
    expected = torch.cat([mu.grad[:, None], lam.grad.transpose(1, 2)], dim=1).flatten()
    torch.testing.assert_close(pooling(mfa(), scaling="none", normalise="none")(x[None])[0], expected)


def test_scores_are_the_equations_of_the_paper_as_loops():
    weights, means, loadings, noise = mfa()
    x = draw(8, *mfa()).view(2, 4, D)
    s = dense(loadings, noise)
    g_means = torch.zeros(2, N, D, dtype=torch.float64)
    g_loadings = torch.zeros(2, N, D, F, dtype=torch.float64)
    for image in range(2):
        for feature in x[image]:
            density = torch.stack([MultivariateNormal(means[k], s[k]).log_prob(feature).exp() for k in range(N)])
            gamma = weights * density / (weights * density).sum()
            for k in range(N):
                r, inverse = (feature - means[k])[:, None], s[k].inverse()
                g_means[image, k] += gamma[k] * (inverse @ r)[:, 0] / 4
                inner = r @ r.T @ inverse - torch.eye(D, dtype=torch.float64)
                g_loadings[image, k] += gamma[k] * inverse @ inner @ loadings[k] / 4
    expected = torch.cat([g_means[:, :, None], g_loadings.transpose(2, 3)], dim=2).flatten(1)
    torch.testing.assert_close(pooling(mfa(), scaling="none", normalise="none")(x), expected)


@pytest.mark.parametrize("normalise", ["none", "sqrt-l2"])
@pytest.mark.parametrize("factors", [0, 2])
def test_with_zero_factors_it_is_the_mean_part_of_the_fisher_vector(normalise, factors):
    weights, means, _, noise = mfa()
    zero = torch.zeros(N, D, factors, dtype=torch.float64)
    x = draw(30, *mfa()).view(3, 10, D)
    fisher = FisherVector(D, codewords=N, normalise="none").double()
    fisher.set_mixture(weights, means, noise)
    mean_part = fisher(x)[:, : N * D]
    if normalise == "sqrt-l2":
        rooted = mean_part.sign() * mean_part.abs().sqrt()
        mean_part = rooted / rooted.norm(dim=1, keepdim=True)
    z = pooling((weights, means, zero, noise), normalise=normalise)(x).view(3, N, 1 + factors, D)
    torch.testing.assert_close(z[:, :, 0].flatten(1), mean_part, atol=1e-5, rtol=1e-5)
    assert (z[:, :, 1:] == 0).all()


def test_scores_of_data_drawn_from_the_model_are_near_zero_with_unit_variance():
    mixture = mfa(spread=20.0)  # far apart: the information is exact where γ is hard
    layer = pooling(mixture, normalise="none")
    x = draw(40_000, *mixture)
    assert layer(x[None]).abs().max().item() < 0.05
    alone = layer(x[:, None])  # every location as an image
    torch.testing.assert_close(alone.var(0), torch.ones(layer.out_dim, dtype=x.dtype), atol=0.25, rtol=0)


def test_information_is_the_variance_of_the_scores():
    weights, _, loadings, noise = mfa()
    diagonal = information(weights, covariances(loadings, noise))
    means, factors = diagonal[:, 0], diagonal[:, 1:]
    s = dense(loadings, noise)
    a = s.inverse()
    torch.testing.assert_close(means, weights[:, None] * a.diagonal(dim1=1, dim2=2))
    al, lal = a @ loadings, (loadings.transpose(1, 2) @ a @ loadings).diagonal(dim1=1, dim2=2)
    expected = a.diagonal(dim1=1, dim2=2)[..., None] * lal[:, None] + al.square()
    torch.testing.assert_close(factors, weights[:, None, None] * expected.transpose(1, 2))


def test_the_network_started_from_a_mixture_is_mfa_fv():
    mixture, x = mfa(), draw(30, *mfa()).view(3, 10, D)
    net = MFAFVNet(D, codewords=N, factors=F).double()
    set_mixture(net, *mixture)
    torch.testing.assert_close(net(x), pooling(mixture)(x))
    assert not list(pooling(mixture).parameters())
    net(x)[:, 0].sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in net.parameters())


def test_em_recovers_the_covariances_of_separate_components():
    weights, means, loadings, noise = mixture = mfa(spread=6.0)
    found = fit_mixture(draw(30_000, *mixture), N, F, tolerance=1e-5, iterations=200)
    order = torch.cdist(means, found.means).argmin(1)
    torch.testing.assert_close(found.weights[order], weights, atol=0.02, rtol=0)
    torch.testing.assert_close(found.means[order], means, atol=0.08, rtol=0)
    torch.testing.assert_close(
        dense(found.loadings, found.variances)[order], dense(loadings, noise), atol=0.15, rtol=0.05
    )
    assert found.loadings.shape == (N, D, F)


def test_factors_raise_the_likelihood_of_correlated_data():
    x = draw(5000, *mfa())
    plain, factored = fit_mixture(x, N, 0), fit_mixture(x, N, F)
    assert factored.history[-1] > plain.history[-1] + 0.1
    truth = log_likelihood(x, *mfa()).mean().item()
    assert factored.history[-1] > truth - 0.02


def test_em_statistics_give_the_likelihood_they_claim():
    x = draw(2000, *mfa())
    found = fit_mixture(x, N, F, iterations=15)
    likelihood = log_likelihood(x, found.weights, found.means, found.loadings, found.variances)
    assert likelihood.mean().item() == pytest.approx(found.history[-1], abs=0.02)


def test_options_that_make_no_sense_are_refused():
    with pytest.raises(ConfigError, match="factors must be from 0 to in_dim − 1 = 4"):
        MFAFV(D, factors=D)
    with pytest.raises(UnknownName, match="diagonal"):
        MFAFV(D, factors=1, scaling="diag")
