"""Factorised bilinear pooling against its equation, and DropFactor against its expectation."""

from __future__ import annotations

import pytest
import torch

from secondsight.errors import ConfigError
from secondsight.functional.pooling.quadratic import quadratic, quadratic_gram, quadratic_local
from secondsight.functional.pooling.recompute import BUDGET
from secondsight.pooling.factorized import FactorizedBilinear


def test_it_is_the_papers_equation_summed_over_locations():
    pooling = FactorizedBilinear(4, 3, factors=2).double().eval()
    torch.nn.init.normal_(pooling.bias)
    x = torch.randn(2, 5, 4, dtype=torch.float64)
    y = torch.zeros(2, 3, dtype=torch.float64)
    for b in range(2):
        for row in x[b]:
            for o in range(3):
                y[b, o] += pooling.bias[o] + pooling.weight[o] @ row + (pooling.factors[o] @ row).square().sum()
    torch.testing.assert_close(pooling(x), y)


@pytest.mark.parametrize("signed", [False, True])
def test_the_gram_form_is_the_sum_of_squares(signed):
    x, f = torch.randn(3, 6, 4, dtype=torch.float64), torch.randn(5, 2, 4, dtype=torch.float64)
    c = torch.tensor([1.0, -1.0], dtype=torch.float64) if signed else None
    local = quadratic_local(x, f, c).sum(1)
    torch.testing.assert_close(quadratic_gram(x.mT @ x, f, c), local)
    torch.testing.assert_close(quadratic(x, f, c), local)


@pytest.mark.parametrize("length", [1, 50])  # sum of squares is cheaper for few locations, Gram matrices for many
def test_both_forms_have_the_right_gradients(length):
    x = torch.randn(2, length, 4, dtype=torch.float64, requires_grad=True)
    f = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(quadratic, (x, f), fast_mode=True)


def test_the_outputs_do_not_depend_on_the_pieces_they_are_formed_in():
    d, outputs = 64, BUDGET // 64**2 + 7  # a whole piece and a small one
    g, f = torch.randn(2, d, d, dtype=torch.float64), torch.randn(outputs, 1, d, dtype=torch.float64)
    torch.testing.assert_close(quadratic_gram(g, f), torch.einsum("oi,bij,oj->bo", f[:, 0], g, f[:, 0]))


@torch.no_grad()
def test_dropfactor_drops_whole_paths_while_training_and_keeps_the_expectation():
    pooling = FactorizedBilinear(4, 3, factors=6, drop=0.5)
    with torch.no_grad():
        pooling.weight.zero_()
    x = torch.randn(1, 5, 4)
    expected = pooling.eval()(x)
    paths = 2 * (x[0] @ pooling.factors.mT).square().sum(1)  # (3, 6): what a kept path adds
    pooling.train()
    draws = torch.stack([pooling(x)[0] for _ in range(1000)])
    torch.testing.assert_close(draws.mean(0), expected[0], rtol=0.1, atol=0)
    subsets = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 6) @ paths.mT  # (64, 3)
    nearest = (draws[:, None] - subsets).abs().amax(2).amin(1)
    assert nearest.max() < 1e-4, "every draw leaves out the same paths for all outputs"


def test_without_drop_training_and_testing_agree():
    pooling, x = FactorizedBilinear(4, 3, drop=0.0), torch.randn(2, 5, 4)
    assert torch.equal(pooling.train()(x), pooling.eval()(x))


def test_an_untrained_layer_is_nearly_linear():
    """All the squares are positive: were they large, every image would start with almost the same direction."""
    pooling = FactorizedBilinear(64, 128).eval()
    x = torch.nn.functional.normalize(torch.randn(20, 1, 64), dim=-1)
    z = torch.nn.functional.normalize(pooling(x), dim=-1)
    off_diagonal = (z @ z.T)[~torch.eye(20, dtype=torch.bool)]
    assert off_diagonal.abs().mean() < 0.2


def test_names_carry_the_factors():
    assert FactorizedBilinear.from_name("fbn-5", in_dim=4, out_dim=3).factors.shape == (3, 5, 4)
    assert FactorizedBilinear.from_name("fbn", in_dim=4, out_dim=3, drop=0.1).factors.shape == (3, 20, 4)
    with pytest.raises(ConfigError, match="fbn-x"):
        FactorizedBilinear.from_name("fbn-x", in_dim=4, out_dim=3)


@pytest.mark.parametrize("option", [{"factors": 0}, {"drop": 1.0}, {"drop": -0.1}, {"reduce": "median"}])
def test_senseless_options_are_named(option):
    (name,) = option
    with pytest.raises(ConfigError, match=name):
        FactorizedBilinear(4, 3, **option)
