"""Fisher vectors, FisherNet and the mixtures behind them, against loops, autograd and scikit-learn."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from sklearn.mixture import GaussianMixture

from secondsight.errors import DataError
from secondsight.functional.pooling.gaussians import log_joint_terms, quadratic_terms
from secondsight.functional.pooling.posterior_sums import posterior_sums
from secondsight.pooling.em import fit_mixture, moments
from secondsight.pooling.fisher import FisherNet, FisherVector

D, N = 4, 3


def log_joint(x, weights, means, variances):
    """log π_k + log N(x; μ_k, σ_k²)."""
    linear, square, constant = log_joint_terms(weights, means, variances)
    return x @ linear.T + x.square() @ square.T + constant


def gmm(equal: bool = False) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A mixture with known parameters; ``equal`` gives all components one weight and one determinant."""
    generator = torch.Generator().manual_seed(5)
    weights = torch.full((N,), 1 / N, dtype=torch.float64)
    variances = torch.rand(N, D, generator=generator, dtype=torch.float64) + 0.3
    if equal:
        variances = variances / variances.log().mean(1, keepdim=True).exp()
    else:
        weights = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    return weights, 2 * torch.randn(N, D, generator=generator, dtype=torch.float64), variances


def draw(count: int, weights, means, variances, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    which = torch.multinomial(weights, count, replacement=True, generator=generator)
    noise = torch.randn(count, D, generator=generator, dtype=torch.float64)
    return means[which] + noise * variances[which].sqrt()


def fisher(mixture, **options) -> FisherVector:
    pooling = FisherVector(D, codewords=N, **options).double()
    pooling.set_mixture(*mixture)
    return pooling


def naive_fisher(x: torch.Tensor, weights, means, variances) -> torch.Tensor:
    """Sánchez et al. 2013, equations 16 and 17, as loops over one image's locations."""
    mean_part, spread_part = torch.zeros(2, N, D, dtype=torch.float64)
    for feature in x:
        densities = [
            float(weights[k])
            * math.prod(
                math.exp(-0.5 * float((feature[j] - means[k, j]) ** 2 / variances[k, j]))
                / math.sqrt(2 * math.pi * float(variances[k, j]))
                for j in range(D)
            )
            for k in range(N)
        ]
        for k in range(N):
            gamma = densities[k] / sum(densities)
            u = (feature - means[k]) / variances[k].sqrt()
            mean_part[k] += gamma * u / (len(x) * math.sqrt(weights[k]))
            spread_part[k] += gamma * (u**2 - 1) / (len(x) * math.sqrt(2 * weights[k]))
    return torch.cat([mean_part.flatten(), spread_part.flatten()])


def test_fisher_vector_is_its_definition():
    mixture = gmm()
    x = draw(14, *mixture).view(2, 7, D)
    expected = torch.stack([naive_fisher(image, *mixture) for image in x])
    torch.testing.assert_close(fisher(mixture, normalise="none")(x), expected)
    rooted = expected.sign() * expected.abs().sqrt()
    torch.testing.assert_close(fisher(mixture)(x), rooted / rooted.norm(dim=1, keepdim=True), atol=1e-5, rtol=1e-5)


def test_fisher_vector_is_the_gradient_of_the_log_likelihood_times_root_inverse_information():
    weights, means, variances = gmm()
    x = draw(6, weights, means, variances)
    mu, sigma = means.clone().requires_grad_(), variances.sqrt().requires_grad_()
    log_joint(x, weights, mu, sigma.square()).logsumexp(1).mean().backward()
    # the information of μ is π/σ², that of σ is 2π/σ² (Perronnin & Dance 2007)
    root = variances.sqrt() / weights.sqrt()[:, None]
    expected = torch.cat([(mu.grad * root).flatten(), (sigma.grad * root / math.sqrt(2)).flatten()])
    torch.testing.assert_close(fisher((weights, means, variances), normalise="none")(x[None])[0], expected)


def test_fisher_vector_of_data_drawn_from_the_model_is_near_zero():
    mixture = gmm()
    pooling = fisher(mixture, normalise="none")
    few, many = (pooling(draw(count, *mixture)[None]).abs().max().item() for count in (100, 40_000))
    assert many < 0.03  # each entry has a deviation of about 1/√T = 0.005
    assert many < few / 5
    assert pooling(draw(40_000, *mixture)[None] + 0.5).abs().max().item() > 0.2


def test_fisher_vector_in_single_precision_survives_features_far_from_the_origin():
    weights, means, variances = gmm()
    far = (weights, means + 100, variances)
    x = draw(50, *far)[None]
    wide, narrow = fisher(far, normalise="none"), fisher(far, normalise="none").float()
    # what is left is the rounding of the input itself
    torch.testing.assert_close(narrow(x.float()).double(), wide(x.float().double()), atol=1e-4, rtol=1e-3)


def test_fishernet_is_its_definition():
    net = FisherNet(D, codewords=N, normalise="none").double()
    x = torch.randn(2, 5, D, dtype=torch.float64)
    expected = torch.zeros(2, 2, N, D, dtype=torch.float64)
    for image in range(2):
        for feature in x[image]:
            u = net.weight * (feature + net.bias)
            gamma = (-0.5 * u.square().sum(1)).softmax(0)[:, None]
            expected[image] += torch.stack([gamma * u, gamma * (u**2 - 1) / math.sqrt(2)]).detach() / 5
    torch.testing.assert_close(net(x), expected.flatten(1))


def test_fishernet_started_from_a_mixture_is_the_fisher_vector_up_to_the_dropped_terms():
    # equal weights and determinants drop out of γ, and 1/√π_k is then one factor for all
    mixture = gmm(equal=True)
    net = FisherNet(D, codewords=N, normalise="none").double()
    net.set_mixture(*mixture)
    x = draw(30, *mixture).view(3, 10, D)
    torch.testing.assert_close(net(x) * math.sqrt(N), fisher(mixture, normalise="none")(x))
    assert not torch.allclose(net.posteriors(x), fisher(gmm()).posteriors(x))


@pytest.mark.parametrize("normalise", ["none", "sqrt-l2"])
def test_fishernet_that_keeps_the_dropped_terms_starts_as_the_fisher_vector(normalise):
    mixture = gmm()
    net = FisherNet(D, codewords=N, exact=True, normalise=normalise).double()
    net.set_mixture(*mixture)
    x = draw(30, *mixture).view(3, 10, D)
    torch.testing.assert_close(net(x), fisher(mixture, normalise=normalise)(x))


def test_fishernet_learns_scales_and_shifts():
    net = FisherNet(D, codewords=N)
    net(torch.randn(2, 5, D))[:, 0].sum().backward()
    assert {name for name, p in net.named_parameters() if p.grad.abs().sum() > 0} == {"weight", "bias"}


def test_log_joint_and_posteriors_are_those_of_scikit_learn():
    weights, means, variances = gmm()
    oracle = GaussianMixture(N, covariance_type="diag")
    oracle.weights_, oracle.means_, oracle.covariances_ = weights.numpy(), means.numpy(), variances.numpy()
    oracle.precisions_cholesky_ = 1 / variances.sqrt().numpy()
    x = draw(50, weights, means, variances)
    joint = log_joint(x, weights, means, variances)
    torch.testing.assert_close(joint.logsumexp(1), torch.from_numpy(oracle.score_samples(x.numpy())))
    torch.testing.assert_close(joint.softmax(1), torch.from_numpy(oracle.predict_proba(x.numpy())))
    torch.testing.assert_close(fisher((weights, means, variances)).posteriors(x[None])[0], joint.softmax(1))


def test_quadratics_are_squared_distances():
    x, mu, precision = torch.randn(7, D), torch.randn(N, D), torch.rand(N, D)
    linear, square, constant = quadratic_terms(mu, precision)
    expected = -0.5 * ((x[:, None] - mu).square() * precision).sum(-1)
    torch.testing.assert_close(x @ linear.T + x.square() @ square.T + constant, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("order", [1, 2])
def test_posterior_sums_are_those_of_a_loop_and_so_are_their_gradients(hidden, order, monkeypatch):
    monkeypatch.setattr("secondsight.functional.pooling.image_slices.NUMBERS", 2 * 5 * D)  # two images at a time
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    x, linear, square, constant = drawn(3, 5, D), drawn(N, D), drawn(N, D), drawn(N)
    centre = drawn(D).detach() if order == 2 else None
    mask = torch.rand(3, 5, generator=generator) < 0.6 if hidden else None
    if mask is not None:
        mask[2] = False  # an image without locations

    def sums(x, linear, constant, square=None):
        return [s for s in posterior_sums(x, mask, linear, square, constant, centre=centre) if s is not None]

    inputs = (x, linear, constant, square)[: order + 2]
    naive = [torch.zeros(3, N).double(), torch.zeros(3, N, D).double(), torch.zeros(3, N, D).double()]
    for b, t in itertools.product(range(3), range(5)):
        if mask is None or mask[b, t]:
            r = x[b, t] if centre is None else x[b, t] - centre
            gamma = (linear @ r + (square @ r.square() if order == 2 else 0) + constant).softmax(0).detach()
            for power, total in enumerate(naive):
                total[b] += gamma if power == 0 else gamma[:, None] * r.detach() ** power
    for ours, expected in zip(sums(*inputs), naive, strict=False):
        torch.testing.assert_close(ours, expected)
    assert torch.autograd.gradcheck(sums, inputs)
    assert torch.autograd.gradgradcheck(sums, inputs)
    fixed = [t.detach() for t in inputs[1:]]  # a codebook that does not learn
    alone = torch.autograd.grad(sums(x, *fixed)[-1].sum(), x)[0]
    torch.testing.assert_close(alone, torch.autograd.grad(sums(*inputs)[-1].sum(), x)[0])


def test_the_mixture_found_is_one_that_scikit_learn_would_not_change():
    x = draw(3000, *gmm())
    ours = fit_mixture(x, N, tolerance=1e-9, iterations=500)
    theirs = GaussianMixture(
        N,
        covariance_type="diag",
        max_iter=500,
        tol=1e-9,
        reg_covar=0,
        weights_init=ours.weights.numpy(),
        means_init=ours.means.numpy(),
        precisions_init=1 / ours.variances.numpy(),
    ).fit(x.numpy())
    assert ours.history[-1] == pytest.approx(theirs.score(x.numpy()), abs=1e-6)
    torch.testing.assert_close(ours.weights, torch.from_numpy(theirs.weights_), atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(ours.means, torch.from_numpy(theirs.means_), atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(ours.variances, torch.from_numpy(theirs.covariances_), atol=1e-3, rtol=1e-3)


def test_the_mixture_recovers_separate_components():
    weights, means, variances = gmm()
    found = fit_mixture(draw(20_000, weights, 4 * means, variances), N)
    order = torch.cdist(4 * means, found.means).argmin(1)
    torch.testing.assert_close(found.weights[order], weights, atol=0.02, rtol=0)
    torch.testing.assert_close(found.means[order], 4 * means, atol=0.05, rtol=0)
    torch.testing.assert_close(found.variances[order], variances, atol=0.05, rtol=0.05)


@pytest.mark.parametrize("factors", [0, 2])
def test_the_likelihood_never_falls(factors):
    x = torch.randn(2000, 6, dtype=torch.float64) @ torch.randn(6, 6, dtype=torch.float64)
    x[::2] += 3
    history = fit_mixture(x, 4, factors, tolerance=0.0, iterations=40).history
    assert len(history) == 40
    assert all(after >= before - 1e-9 for before, after in itertools.pairwise(history))
    assert history[-1] > history[0]


def test_a_stream_gives_the_mixture_of_its_concatenation():
    x = draw(2000, *gmm())
    whole, parts = fit_mixture(x, N, iterations=8), fit_mixture(list(x.view(40, 50, D).split(7)), N, iterations=8)
    for a, b in zip(whole[:4], parts[:4], strict=True):
        torch.testing.assert_close(a, b)


def test_a_pooling_may_fit_to_all_of_a_stream_without_holding_it():
    x = draw(3000, *gmm())
    pooling = FisherVector(D, codewords=N, fit_points=0, floor=1e-3).double()
    pooling.fit(list(x.split(500)))
    torch.testing.assert_close(pooling.means, fit_mixture(x, N).means)
    with pytest.raises(DataError, match="generator"):
        pooling.fit(part for part in x.split(500))


def test_moments_of_a_stream_are_exact_far_from_the_origin():
    x = draw(1000, *gmm()) + 1e6
    count, mean, variance = moments(list(x.split(13)))
    assert count == 1000
    torch.testing.assert_close(mean, x.mean(0))
    torch.testing.assert_close(variance, (x - x.mean(0)).square().mean(0))


def test_more_components_than_distinct_points_still_give_a_mixture():
    x = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).repeat(20, 1)
    mixture = fit_mixture(x, 6)
    assert all(torch.isfinite(value).all() for value in mixture[:4])
    assert mixture.weights.sum().item() == pytest.approx(1)
    assert (mixture.weights > 0).all()
    assert (mixture.variances > 0).all()


def test_a_dead_channel_gets_a_floor_from_the_others():
    x = torch.randn(500, 3, dtype=torch.float64)
    x[:, 1] = 0.25
    variances = fit_mixture(x, 2).variances
    assert (variances[:, 1] >= 0.3e-4 * x[:, 0].var()).all()


def test_no_component_is_narrower_than_the_floor():
    narrow, wide = torch.randn(2, 500, 3, dtype=torch.float64)
    x = torch.cat([0.01 * narrow + 5, wide])
    within = x.view(2, 500, 3).var(1).mean(0)
    for floor in (1e-3, 1.0):
        variances = fit_mixture(x, 2, floor=floor).variances
        assert (variances > 0.9 * floor * within).all()
    assert FisherVector(3).floor == 1.0


def test_fewer_features_than_components_need_are_refused():
    with pytest.raises(DataError, match="at least 8 local features"):
        fit_mixture(torch.randn(7, D), 4)
