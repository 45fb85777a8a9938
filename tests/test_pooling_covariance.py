"""Covariance pooling: roots that square to the covariance, gradients that survive any spectrum."""

from __future__ import annotations

import pytest
import torch

from secondsight.errors import ConfigError
from secondsight.functional.pooling.covariance import covariance
from secondsight.functional.pooling.matrix_sqrt import divided_difference, matrix_power, newton_schulz_sqrt
from secondsight.functional.pooling.triangle import upper_triangle
from secondsight.pooling.covariance import ISqrtCov, MPNCov


def _spd(*eigenvalues: float, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    n = len(eigenvalues)
    q = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64)).Q
    return (q * torch.tensor(eigenvalues, dtype=torch.float64)) @ q.T


def test_the_covariance_is_that_of_the_real_locations():
    x, mask = torch.randn(2, 9, 4, dtype=torch.float64), torch.tensor([[True] * 9, [True] * 5 + [False] * 4])
    c = covariance(x.masked_fill(~mask[..., None], 0), mask)
    for i in range(2):
        torch.testing.assert_close(c[i], x[i, mask[i]].T.cov(correction=0))


def test_the_covariance_does_not_cancel_under_a_large_mean():
    x = torch.randn(1, 50, 4) + 1000
    torch.testing.assert_close(covariance(x), covariance(x.double()).float(), rtol=1e-3, atol=1e-4)


def test_the_root_squared_is_the_covariance():
    x = torch.randn(3, 40, 6, dtype=torch.float64)
    c = covariance(x)
    for root in (matrix_power(c), newton_schulz_sqrt(c, steps=20)):
        torch.testing.assert_close(root @ root, c)
        torch.testing.assert_close(root, root.mT)


def test_every_step_brings_the_iteration_nearer_to_the_root():
    c = covariance(torch.randn(3, 200, 8, dtype=torch.float64))
    exact = matrix_power(c)
    errors = [((newton_schulz_sqrt(c, steps=n) - exact).norm() / exact.norm()).item() for n in range(1, 9)]
    assert errors == sorted(errors, reverse=True)
    assert errors[4] < 0.01, "five steps, the paper's choice, are near"
    assert errors[7] < 1e-6, "and the end of it is quadratic"


def test_the_iteration_is_the_papers():
    c = _spd(3.0, 2.0, 0.5, 0.1)
    y, z, eye = c / c.trace(), torch.eye(4, dtype=torch.float64), torch.eye(4, dtype=torch.float64)
    for _ in range(5):
        t = (3 * eye - z @ y) / 2
        y, z = y @ t, t @ z
    torch.testing.assert_close(newton_schulz_sqrt(c[None], steps=5)[0], y * c.trace().sqrt())


def test_small_eigenvalues_come_out_too_small_and_never_negative():
    c = _spd(1.0, 1e-3, 1e-6, 0.0)[None]
    found = torch.linalg.eigvalsh(newton_schulz_sqrt(c, steps=5))
    assert (found > -1e-9).all()
    assert (found <= torch.linalg.eigvalsh(matrix_power(c)) + 1e-9).all()


@pytest.mark.parametrize("power", [0.3, 0.5, 1.0])
def test_the_matrix_power_is_the_power_of_its_eigenvalues(power):
    torch.testing.assert_close(matrix_power(_spd(4.0, 1.0, 0.25)[None], power)[0], _spd(4**power, 1.0, 0.25**power))


@pytest.mark.parametrize("power", [0.3, 0.5])
@pytest.mark.parametrize("spectrum", [(3.0, 2.0, 1.0, 0.5), (2.0, 2.0, 2.0, 2.0), (1.0, 1.0, 1e-3, 1e-3)])
def test_the_gradient_of_the_matrix_power_survives_equal_eigenvalues(spectrum, power):
    c = _spd(*spectrum)[None].requires_grad_()
    # Only symmetric changes of the matrix make sense to an eigendecomposition.
    torch.autograd.gradcheck(lambda c: matrix_power((c + c.mT) / 2, power), c, atol=1e-4)


@pytest.mark.parametrize("power", [0.3, 0.5, 0.9])
def test_divided_differences_need_no_difference(power):
    values = torch.tensor([[1e-12, 1e-3, 1.0, 1.0 + 1e-9, 5.0, 1e9]], dtype=torch.float64)
    found = divided_difference(values, power)[0]
    for i, a in enumerate(values[0]):
        for j, b in enumerate(values[0]):
            near = abs(a - b) < 1e-6 * a
            wanted = power * a ** (power - 1) if near else (a**power - b**power) / (a - b)
            torch.testing.assert_close(found[i, j], wanted, rtol=1e-6, atol=0)


def test_divided_differences_of_single_precision_do_not_overflow():
    assert divided_difference(torch.tensor([[1e-19, 1e-10, 1e19]]), 0.5).isfinite().all()
    assert divided_difference(torch.tensor([[1e-19, 1e-10, 1e19]]), 0.3).isfinite().all()


@pytest.mark.parametrize("pooling", [MPNCov(6), MPNCov(6, power=0.3), ISqrtCov(6), ISqrtCov(6, steps=1)])
@pytest.mark.parametrize("length", [1, 3, 12])
def test_gradients_reach_the_features_finite_and_bounded(pooling, length):
    """Features → root of their covariance is 1-homogeneous for α = ½: no gradient may explode, whatever the rank."""
    for scale in (1e-6, 1.0, 1e6):
        x = (scale * torch.randn(2, length, 6)).requires_grad_()
        pooling(x).sum().backward()
        assert x.grad is not None
        assert x.grad.isfinite().all()
        if pooling.flops(1) and getattr(pooling, "power", 0.5) == 0.5:
            assert x.grad.abs().max() < 100


def test_the_upper_triangle_keeps_inner_products_when_isometric():
    a, b = torch.randn(2, 1, 5, 5, dtype=torch.float64)
    a, b = a + a.mT, b + b.mT
    torch.testing.assert_close(
        (upper_triangle(a, isometric=True) * upper_triangle(b, isometric=True)).sum(),
        (a * b).sum(),
        rtol=1e-13,  # a √2 of single precision would be 10⁻⁸ off
        atol=1e-13,
    )
    row, column = torch.triu_indices(5, 5)
    assert torch.equal(upper_triangle(a), a[:, row, column])


def test_names_and_options():
    assert ISqrtCov.from_name("isqrt-cov-3", in_dim=4).steps == 3
    assert ISqrtCov.from_name("isqrt-cov", in_dim=4).out_dim == 10
    assert MPNCov.from_name("mpn-cov", in_dim=4, power=0.7).power == 0.7
    for bad in (
        lambda: MPNCov.from_name("mpn-cov-3", in_dim=4),
        lambda: MPNCov(4, power=0.0),
        lambda: ISqrtCov(4, eps=0.0),
    ):
        with pytest.raises(ConfigError, match=r"mpn-cov|eps"):
            bad()
    with pytest.raises(ConfigError, match="steps"):
        ISqrtCov(4, steps=0)
