"""What second order is for: classes that differ only in which features occur together (``benchmarks/pairings.py``)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def pairings():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location("pairings", BENCHMARKS / "pairings.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(BENCHMARKS))


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
