"""What second order is for (``benchmarks/pairings.py``), and what orders give at most (``benchmarks/orders.py``)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def benchmark(name):
    """A script of ``benchmarks/``, which are no package."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look themselves up there
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def pairings():
    return benchmark("pairings")


@pytest.fixture(scope="module")
def orders():
    return benchmark("orders")


def clean(pairings):
    """One image of every class, without noise."""
    return pairings.images(torch.tensor(pairings.CLASSES), noise=0.0, generator=torch.Generator().manual_seed(0))


def test_the_average_of_every_class_is_the_same(pairings):
    sums = clean(pairings).double().sum(1)
    torch.testing.assert_close(sums, sums[:1].expand_as(sums), rtol=0, atol=1e-5)


def test_the_second_moment_of_every_class_is_another(pairings):
    x = clean(pairings).double()
    moments = (x.mT @ x).flatten(1)
    apart = torch.cdist(moments, moments) + 1e3 * torch.eye(len(x))
    # Two permutations differ in at least two colours: four of the colour × shape counts change, each by TIMES, twice
    # (the matrix is symmetric).
    assert apart.min() == pytest.approx((8 * pairings.TIMES**2) ** 0.5, rel=1e-4)


def test_jcf_learns_what_averaging_cannot(pairings):
    _, first_order = pairings.learned("average", seed=0, steps=60, noise=0.05)
    _, second_order = pairings.learned("jcf", seed=0, steps=150, noise=0.05)
    assert first_order < 10
    assert second_order > 90


def test_the_exact_similarity_of_an_order_is_that_of_the_sums_it_stands_for(orders, monkeypatch):
    monkeypatch.setattr(orders, "IMAGES", 4)  # several blocks, the last one smaller
    x = torch.rand(10, 6, 3, dtype=torch.float64)
    found = orders.kernels(x, [orders.Kernel(a, k) for a, k in ((1, 1), (2, 2), (0, 1), (0, 3))])
    unit = torch.nn.functional.normalize(x, dim=2)
    third = torch.einsum("nli,nlj,nlk->nijk", unit, unit, unit)
    sums = {(1, 1): x.sum(1), (2, 2): x.mT @ x, (0, 1): unit.sum(1), (0, 3): third}
    for (a, k), z in sums.items():
        expected = torch.nn.functional.normalize(z.flatten(1), dim=1)
        torch.testing.assert_close(found[orders.Kernel(a, k)], expected @ expected.T)


def test_a_query_does_not_find_itself(orders):
    near = torch.tensor([[1.0, 0.9, 0.1], [0.9, 1.0, 0.2], [0.1, 0.2, 1.0]])
    assert orders.recall(near, torch.tensor([0, 0, 1])) == pytest.approx(200 / 3)
    assert orders.recall(near, torch.tensor([0, 1, 0])) == 0
