"""Compact bilinear pooling against its definition, and what its paper promises of the two sketches."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from secondsight.errors import ConfigError, UnknownName
from secondsight.functional.pooling.sketch import (
    count_sketch,
    random_maclaurin,
    tensor_sketch,
    tensor_sketch_fft,
    tensor_sketch_flops,
    tensor_sketch_gram,
)
from secondsight.pooling.compact_bilinear import RandomMaclaurin, TensorSketch


def _drawn(d: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(size, (2, d)), torch.randint(2, (2, d)).double() * 2 - 1


def test_the_count_sketch_adds_signed_numbers_into_bins():
    h, s = torch.tensor([2, 0, 2]), torch.tensor([1.0, -1.0, -1.0])
    z = count_sketch(torch.tensor([[3.0, 5.0, 7.0]]), h, s, 4)
    assert z.tolist() == [[-5.0, 0.0, 3.0 - 7.0, 0.0]]


@pytest.mark.parametrize("size", [1, 2, 7, 16])
def test_both_forms_of_tensor_sketch_are_the_sum_over_pairs_that_meet_in_a_bin(size):
    d, x = 5, torch.randn(2, 3, 5, dtype=torch.float64)
    h, s = _drawn(d, size)
    z = torch.zeros(2, size, dtype=torch.float64)
    for b in range(2):
        for row in x[b]:
            for i in range(d):
                for j in range(d):
                    z[b, (h[0, i] + h[1, j]) % size] += s[0, i] * s[1, j] * row[i] * row[j]
    torch.testing.assert_close(tensor_sketch_gram(x, h, s, size), z)
    torch.testing.assert_close(tensor_sketch_fft(x, h, s, size), z)


def test_tensor_sketch_is_the_convolution_of_two_count_sketches():
    x, (h, s) = torch.randn(1, 1, 6, dtype=torch.float64), _drawn(6, 9)
    first, second = (count_sketch(x, h[i], s[i], 9)[0, 0] for i in (0, 1))
    circular = [sum(first[i] * second[(k - i) % 9] for i in range(9)) for k in range(9)]
    torch.testing.assert_close(tensor_sketch(x, h, s, 9)[0], torch.stack(circular))


@pytest.mark.parametrize(("length", "d"), [(49, 2048), (196, 256), (3, 8)])
def test_the_cheaper_form_is_taken_and_counted(length, d):
    few, many = tensor_sketch_flops(length, d, 64), tensor_sketch_flops(length, d, 2**16)
    assert few <= many <= (2 * length + 1) * d * d


@pytest.mark.parametrize("length", [3, 9])  # 2·L below and above d
def test_random_maclaurin_is_the_product_of_two_signed_sums(length):
    d, size, x = 8, 5, torch.randn(2, length, 8, dtype=torch.float64)
    w = torch.randint(2, (2, size, d)).double() * 2 - 1
    z = torch.zeros(2, size, dtype=torch.float64)
    for b in range(2):
        for row in x[b]:
            for k in range(size):
                z[b, k] += (w[0, k] @ row) * (w[1, k] @ row) / math.sqrt(size)
    torch.testing.assert_close(random_maclaurin(x, w), z)


def test_random_maclaurin_of_many_images_and_outputs_does_not_depend_on_the_blocks():
    x, w = torch.randn(19, 9, 8, dtype=torch.float64), torch.randint(2, (2, 600, 8)).double() * 2 - 1
    torch.testing.assert_close(random_maclaurin(x, w), torch.cat([random_maclaurin(row[None], w) for row in x]))


@pytest.mark.parametrize("form", [tensor_sketch_gram, tensor_sketch_fft])
def test_both_forms_of_tensor_sketch_have_the_right_gradients(form):
    h, s = _drawn(4, 6)
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x: form(x, h, s, 6), x)


@pytest.mark.parametrize("length", [1, 5])
def test_random_maclaurin_has_the_right_gradients_to_second_order(length):
    w = torch.randint(2, (2, 3, 4)).double() * 2 - 1
    x = torch.randn(2, length, 4, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(lambda x: random_maclaurin(x, w), x)
    torch.autograd.gradgradcheck(lambda x: random_maclaurin(x, w), x)


@pytest.mark.parametrize("kind", [TensorSketch, RandomMaclaurin])
def test_the_inner_product_of_sketches_is_unbiased_for_the_squared_inner_product(kind):
    """Over many draws the mean is within four standard errors of ⟨x, y⟩², and the error falls as 1/√D."""
    pair = torch.nn.functional.normalize(torch.randn(2, 1, 12, dtype=torch.float64), dim=-1)
    truth = (pair[0] @ pair[1].T).item() ** 2

    def draws(size: int) -> torch.Tensor:
        sketches = (kind(12, size, normalise="none", seed=seed)(pair) for seed in range(300))
        return torch.stack([z[0] @ z[1] for z in sketches])

    small, large = draws(16), draws(256)
    for z in (small, large):
        assert abs(z.mean().item() - truth) < 4 * z.std().item() / math.sqrt(len(z))
    assert large.std() < small.std() / 2.5  # 1/4 expected


@pytest.mark.parametrize("kind", [TensorSketch, RandomMaclaurin])
def test_a_large_sketch_of_images_compares_them_as_bilinear_pooling_does(kind):
    x = torch.randn(6, 20, 8).abs()
    gram = (x.mT @ x).flatten(1)
    z = kind(8, 4096, normalise="none")(x)
    wanted, found = gram @ gram.T, z @ z.T
    assert (found - wanted).abs().max() < 0.1 * wanted.max()


@pytest.mark.parametrize("kind", [TensorSketch, RandomMaclaurin])
def test_the_same_seed_draws_the_same_sketch_whatever_else_draws(kind):
    x = torch.randn(1, 5, 8)
    first = kind(8, 32, seed=3)(x)
    torch.rand(7)
    state = torch.get_rng_state()
    assert torch.equal(kind(8, 32, seed=3)(x), first)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(kind(8, 32, seed=4)(x), first)


@given(power=st.floats(0.01, 100))
@settings(max_examples=10, deadline=None)
def test_the_papers_normalisation_forgets_the_scale_of_the_features(power):
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    pooling = TensorSketch(8, 32)
    torch.testing.assert_close(pooling(x * power), pooling(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(pooling(x).norm(dim=1), torch.ones(2, dtype=torch.float64))


def test_names_carry_the_size_of_the_sketch():
    assert TensorSketch.from_name("cbp-ts-512", in_dim=8).out_dim == 512
    assert TensorSketch.from_name("cbp-ts", in_dim=8).out_dim == 8192
    assert RandomMaclaurin.from_name("cbp-rm-96", in_dim=8, seed=2).seed == 2
    with pytest.raises(ConfigError, match="cbp-ts-large"):
        TensorSketch.from_name("cbp-ts-large", in_dim=8)
    with pytest.raises(ConfigError, match="at least 1"):
        TensorSketch.from_name("cbp-ts-0", in_dim=8)
    with pytest.raises(UnknownName, match="sqrt-l2"):
        TensorSketch(8, 32, normalise="sqrt-12")
