"""Expectation-maximisation for the mixtures behind Fisher vectors, from a stream of local features.

Each step is one pass that keeps sufficient statistics alone, in double precision, so memory does not grow with the
stream, and the log-likelihood never falls. Components that lose their points take half of the heaviest one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from secondsight.errors import DataError, ShapeError
from secondsight.functional.pooling.eigenvectors import eigh
from secondsight.functional.pooling.factors import covariances, mfa_posteriors, weighted_moments
from secondsight.functional.pooling.residuals import nearest_codeword
from secondsight.pooling.contract import Features
from secondsight.pooling.feature_samples import chunks, kmeans, sample, usable
from secondsight.progress import bar

ROWS = 8192
"""Local features worked on at a time."""

START_POINTS = 65_536
"""Local features that k-means sees to start from."""


class Mixture(NamedTuple):
    """π (n), μ (n, d), the diagonal variance (n, d), and Λ (n, d, f), which is empty for plain Gaussians."""

    weights: Tensor
    means: Tensor
    variances: Tensor
    loadings: Tensor
    history: list[float]  # mean log-likelihood of a local feature after each step


def fit_mixture(
    features: Features,
    components: int,
    factors: int = 0,
    *,
    seed: int = 0,
    iterations: int = 100,
    tolerance: float = 1e-4,
    floor: float = 1e-3,
) -> Mixture:
    """A mixture of Gaussians (``factors`` = 0: diagonal) or of factor analysers, by maximum likelihood.

    Args:
        features: A tensor (…, d), or a stream of them that can be read again and again.
        components: How many Gaussians.
        factors: The rank F of the low-rank part of each covariance.
        seed: Of the sample and the k-means that give the start.
        iterations: At most so many passes.
        tolerance: Stop when a pass gains less than this in log-likelihood, a feature and dimension.
        floor: The least variance, as a part of the mean variance within the clusters that k-means starts from.
    """
    count, centre, _ = moments(features)
    if count < 2 * components:
        raise DataError(
            f"{components} Gaussians need at least {2 * components} local features to fit from, got {count}"
        )
    start = START_POINTS if factors == 0 else max(START_POINTS, 64 * components * (factors + 1))
    points = sample(features, start, seed=seed).double() - centre
    state, least = _start(points, components, factors, floor, seed)
    least = least.clamp_min(1e-9 * centre.square().mean().item() + 1e-12)  # data without any variance
    state = state._replace(variances=torch.maximum(state.variances, least))

    def step(mixture: Mixture) -> tuple[Mixture, float]:
        statistics, likelihood = _expectation(features, mixture, centre)
        return _maximisation(mixture, statistics, least), likelihood / count

    state = _climb(state, step, iterations, tolerance * len(centre))
    return state._replace(means=state.means + centre)


def moments(features: Features) -> tuple[int, Float[Tensor, " d"], Float[Tensor, " d"]]:
    """Number, mean and variance of the stream's local features, in double precision, in one pass."""
    count, mean, spread = 0, torch.zeros(1), torch.zeros(1)
    for chunk in _blocks(features):
        fresh = chunk.mean(0)
        delta = fresh - mean.to(fresh)
        total = count + len(chunk)
        # Chan's update: no difference of large squares
        spread = spread.to(fresh) + (chunk - fresh).square().sum(0) + delta.square() * (count * len(chunk) / total)
        mean = mean.to(fresh) + delta * (len(chunk) / total)
        count = total
    return count, mean, usable(spread if count else None) / count


def _blocks(features: Features) -> Iterator[Float[Tensor, "m d"]]:
    """The stream in double precision, at most ``ROWS`` local features at a time."""
    if isinstance(features, Iterator):
        raise DataError(
            "the mixture is fitted in several passes, and a generator can be read once: "
            "give a tensor, a list of tensors or a DataLoader, or set fit_points to fit from a sample"
        )
    width = 0
    for chunk in chunks(features):
        width = width or chunk.shape[1]
        if chunk.shape[1] != width:
            raise ShapeError(f"local features of {width} and of {chunk.shape[1]} dimensions in one stream")
        for block in chunk.split(ROWS):
            yield block.double()


def _start(points: Tensor, n: int, f: int, floor: float, seed: int) -> tuple[Mixture, Tensor]:
    """k-means, then each cluster's variance and leading directions; and the least variance of each dimension."""
    means = kmeans(points, n, seed=seed)
    words = nearest_codeword(points, means)
    weights = torch.bincount(words, minlength=n).to(means)
    loadings = means.new_zeros(n, means.shape[1], f)
    variances = means.new_empty(n, means.shape[1])
    for k in range(n):
        own = points[words == k]
        if len(own) < 2:
            own = points
        means[k] = own.mean(0)
        variances[k] = (own - means[k]).square().mean(0)
        if f:
            loadings[k] = _directions(own - means[k], f)
    weights = (weights + 1) / (weights + 1).sum()
    within = weights @ variances
    least = floor * within.clamp_min(0.1 * within.mean())  # a dead channel gets a part of the others' floor
    return Mixture(weights, means, variances - loadings.square().sum(2), loadings, []), least


def _directions(r: Float[Tensor, "m d"], f: int) -> Float[Tensor, "d f"]:
    """Λ of probabilistic PCA: leading eigenvectors, scaled by what their eigenvalues exceed the rest's mean by."""
    values, vectors = eigh(r.T @ r / len(r))
    rest = values[:-f].mean() if len(values) > f else values.new_zeros(())
    # never exactly zero: EM could not leave it
    scale = (values[-f:] - rest).clamp_min(1e-3 * values.mean().clamp_min(1e-12)).sqrt()
    return vectors[:, -f:] * scale


class _Statistics(NamedTuple):
    """Sums over the stream with r = x − μ and t = (1, Rr)."""

    totals: Tensor  # (n, f + 1)     Σγ t
    sums: Tensor  # (n, f + 1, d)  Σγ t rᵀ
    squares: Tensor  # (n, d)         Σγ r²

    def plus(self, other: _Statistics) -> _Statistics:
        return _Statistics(*(a + b for a, b in zip(self, other, strict=True)))


def _expectation(features: Features, mixture: Mixture, centre: Tensor) -> tuple[_Statistics, float]:
    """The statistics of one pass, and the log-likelihood of the stream under ``mixture``."""
    weights, mu, variances, loadings, _ = mixture
    cov = covariances(loadings, variances)
    statistics, likelihood = None, 0.0
    for block in _blocks(features):
        x = block - centre
        joint, rr = mfa_posteriors(x, weights, mu, cov)
        evidence = joint.logsumexp(1, keepdim=True)
        gamma = (joint - evidence).exp()
        totals, sums = (t[0] for t in weighted_moments(x[None], gamma[None], rr[None]))
        # around the old means: r instead of x
        s2 = gamma.T @ x.square() - mu * (2 * sums[:, 0] - totals[:, :1] * mu)
        fresh = _Statistics(totals, sums - totals[..., None] * mu[:, None], s2)
        statistics = fresh if statistics is None else statistics.plus(fresh)
        likelihood += evidence.sum().item()
    assert statistics is not None
    return statistics, likelihood


def _maximisation(mixture: Mixture, s: _Statistics, least: Tensor) -> Mixture:
    """π, and jointly μ and Λ, then Ψ (Ghahramani & Hinton 1996), in coordinates around the old means.

    The factors' posterior is z | x ~ N(w, M⁻¹) with w = C⁻ᵀRr. With z̃ = (z, 1) and Λ̃ = (Λ, δ), δ = μ_new − μ,

        Λ̃ = (Σγ r E[z̃]ᵀ)(Σγ E[z̃z̃ᵀ])⁻¹,     Ψ = diag(Σγ r rᵀ − Λ̃ Σγ E[z̃] rᵀ) / Σγ .
    """
    cov = covariances(mixture.loadings, mixture.variances)
    f = mixture.loadings.shape[2]
    upper = cov.inverse_c.transpose(1, 2)
    wr, w = upper @ s.sums[:, 1:], upper @ s.totals[:, 1:, None]  # Σγ w rᵀ and Σγ w
    beta, inverse_m = upper @ cov.r, upper @ cov.inverse_c  # E[z | x] = β r, Cov[z | x] = M⁻¹
    s0 = s.totals[:, 0].clamp_min(1e-12)
    zz = torch.empty(len(s0), f + 1, f + 1).to(wr)
    zz[:, :f, :f] = wr @ beta.transpose(1, 2) + s0[:, None, None] * inverse_m
    zz[:, :f, f:], zz[:, f:, :f], zz[:, f, f] = w, w.transpose(1, 2), s0
    zr = torch.cat([wr, s.sums[:, :1]], dim=1)  # Σγ E[z̃] rᵀ, (n, f+1, d)
    joint = torch.linalg.solve(zz, zr)  # Λ̃ᵀ
    variances = torch.maximum((s.squares - (joint * zr).sum(1)) / s0[:, None], least)
    means = mixture.means + joint[:, f]
    fresh = Mixture(s0 / s0.sum(), means, variances, joint[:, :f].transpose(1, 2), mixture.history)
    return _reseed(fresh, s.totals[:, 0])


def _reseed(mixture: Mixture, s0: Tensor) -> Mixture:
    """Components with less than one point take half of the heaviest one, half a deviation away from it."""
    for k in (s0 < 1).nonzero().flatten().tolist():
        heavy = int(mixture.weights.argmax())
        if heavy == k:
            continue
        away = 0.5 * mixture.variances[heavy].sqrt()
        mixture.means[k] = mixture.means[heavy] + away
        mixture.means[heavy] -= away
        mixture.variances[k], mixture.loadings[k] = mixture.variances[heavy], mixture.loadings[heavy]
        mixture.weights[k] = mixture.weights[heavy] = mixture.weights[heavy] / 2
    return mixture._replace(weights=mixture.weights / mixture.weights.sum())


def _climb(
    mixture: Mixture, step: Callable[[Mixture], tuple[Mixture, float]], iterations: int, tolerance: float
) -> Mixture:
    """Step until a pass gains less than ``tolerance``; a step reports the likelihood of the mixture it starts from."""
    before = -math.inf
    with bar() as progress:
        task = progress.add_task("fitting the mixture", total=iterations, note="")
        for _ in range(iterations):
            fresh, likelihood = step(mixture)
            mixture.history.append(likelihood)
            progress.update(task, advance=1, note=f"log-likelihood {likelihood:.3f}")
            if abs(likelihood - before) < tolerance:  # a larger fall is a component that was just seeded anew
                break
            mixture, before = fresh, likelihood
    return mixture
