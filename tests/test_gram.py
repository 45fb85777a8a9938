"""Gram matrices: the sum over locations, written as a loop, and one product for the gradient."""

from __future__ import annotations

import pytest
import torch

from secondsight.functional.pooling.gram import gram


@pytest.mark.parametrize("weighed", [False, True])
def test_it_is_the_sum_of_outer_products(weighed):
    x = torch.randn(3, 5, 4, dtype=torch.float64)
    c = torch.tensor([1.0, -1, 1, 2, 0], dtype=torch.float64) if weighed else None
    naive = torch.zeros(3, 4, 4, dtype=torch.float64)
    for b in range(3):
        for location in range(5):
            weight = 1 if c is None else c[location]
            naive[b] += weight * torch.outer(x[b, location], x[b, location])
    torch.testing.assert_close(gram(x, c), naive)


@pytest.mark.parametrize("weighed", [False, True])
def test_its_gradients_are_right_twice_over_and_under_vmap(weighed):
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    c = torch.tensor([1.0, -1, 0.5], dtype=torch.float64) if weighed else None
    assert torch.autograd.gradcheck(lambda x: gram(x, c), (x,))
    assert torch.autograd.gradgradcheck(lambda x: gram(x, c), (x,))
    one_by_one = torch.func.vmap(lambda x: gram(x[None], c)[0])(x)
    torch.testing.assert_close(one_by_one, gram(x, c))
    own = torch.func.jacrev(lambda x: gram(x, c))(x)
    torch.testing.assert_close(own, torch.autograd.functional.jacobian(lambda x: gram(x, c), x))


def test_the_gradient_is_one_product():
    x = torch.randn(2, 100, 4, requires_grad=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        gram(x).sum().backward()
    assert sum(event.count for event in seen.key_averages() if event.key == "aten::bmm") == 2
