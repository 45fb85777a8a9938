"""VLAD and NetVLAD against their definitions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from secondsight.functional.pooling.residuals import hard_residuals, nearest_codeword, one_hot, sharpness
from secondsight.pooling.vlad import VLAD, NetVLAD

D, N = 5, 4


def data(images: int = 20, locations: int = 9) -> torch.Tensor:
    return torch.randn(images, locations, D, dtype=torch.float64) + 3 * torch.randint(0, 3, (images, locations, 1))


def fitted_vlad(**options) -> VLAD:
    pooling = VLAD(D, codewords=N, **options).double()
    pooling.fit(data())
    return pooling


def naive_vlad(x: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
    """The definition as loops: (b, n, d)."""
    out = torch.zeros(len(x), *centres.shape, dtype=x.dtype)
    for image, locations in enumerate(x):
        for feature in locations:
            k = min(range(len(centres)), key=lambda k: float((feature - centres[k]).square().sum()))
            out[image, k] += feature - centres[k]
    return out


def test_vlad_is_the_sum_of_residuals_to_the_nearest_codeword():
    pooling, x = fitted_vlad(normalise="none"), data(3)
    torch.testing.assert_close(pooling(x), naive_vlad(x, pooling.centres).flatten(1))


def test_intra_normalisation_gives_every_used_codeword_the_same_length():
    pooling, x = fitted_vlad(), data(3, 30)
    blocks = pooling(x).unflatten(1, (N, D)).norm(dim=2)
    sums = naive_vlad(x, pooling.centres)
    expected = torch.nn.functional.normalize(sums, dim=2).flatten(1)
    torch.testing.assert_close(pooling(x), expected / expected.norm(dim=1, keepdim=True))
    torch.testing.assert_close(blocks, (sums.norm(dim=2) > 0) * blocks.amax(1, keepdim=True))


def test_a_codebook_of_one_word_sums_plain_residuals():
    pooling = VLAD(D, codewords=1, normalise="none").double()
    x = data(3)
    pooling.fit(x)
    torch.testing.assert_close(pooling(x), x.sum(1) - x.shape[1] * pooling.centres[0])


def test_the_vlad_of_the_codewords_themselves_is_zero():
    pooling = fitted_vlad(normalise="none")
    torch.testing.assert_close(pooling(pooling.centres[None]), torch.zeros(1, N * D, dtype=torch.float64))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 4), st.integers(0, 7), st.integers(1, 5), st.integers(1, 4), st.integers(0, 2**16))
def test_hard_residuals_are_those_of_a_one_hot_assignment(b, length, n, d, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(b, length, d, generator=generator, dtype=torch.float64)
    c = torch.randn(n, d, generator=generator, dtype=torch.float64)
    mask = torch.rand(b, length, generator=generator) > 0.3
    x = x.masked_fill(~mask[..., None], 0)
    words = nearest_codeword(x, c)
    h = one_hot(words, n, mask, x)
    torch.testing.assert_close(hard_residuals(x, words, c, mask), h.mT @ x - h.sum(1)[..., None] * c)
    distances = (x[:, :, None] - c).square().sum(-1)
    torch.testing.assert_close(distances.gather(2, words[..., None])[..., 0], distances.amin(2))


def test_netvlad_is_the_softly_assigned_sum_of_residuals():
    pooling, x = NetVLAD(D, codewords=N, normalise="none").double(), data(3)
    pooling.fit(data())
    expected = torch.zeros(3, N, D, dtype=torch.float64)
    for image in range(3):
        for feature in x[image]:
            scores = [math.exp((pooling.weight[k] @ feature + pooling.bias[k]).item()) for k in range(N)]
            for k in range(N):
                expected[image, k] += scores[k] / sum(scores) * (feature - pooling.centres[k])
    torch.testing.assert_close(pooling(x), expected.flatten(1))


def test_netvlad_starts_as_a_softmax_of_squared_distances():
    pooling, x = NetVLAD(D, codewords=N).double(), data(3)
    centres = torch.randn(N, D, dtype=torch.float64)
    pooling.start_at(centres, alpha=0.7)
    expected = (-0.7 * (x[:, :, None] - centres).square().sum(-1)).softmax(-1)
    torch.testing.assert_close(pooling.assign(x), expected)


@pytest.mark.parametrize("normalise", ["none", "intra-l2", "sqrt-l2"])
def test_netvlad_with_a_large_alpha_is_vlad(normalise):
    vlad, x = fitted_vlad(normalise=normalise), data(5)
    net = NetVLAD(D, codewords=N, normalise=normalise).double()
    net.start_at(vlad.centres, alpha=1e6)
    torch.testing.assert_close(net(x), vlad(x))


def test_fit_gives_the_second_nearest_codeword_a_hundredth_of_the_weight():
    # two codewords and points at squared distances 1 and 9 from them: the gap is 8 everywhere
    c = torch.tensor([[0.0], [4.0]])
    alpha = sharpness(torch.tensor([[1.0], [3.0]]), c)
    assert alpha == pytest.approx(-math.log(0.01) / 8)
    net = NetVLAD(1, codewords=2)
    net.start_at(c, alpha=alpha)
    h = net.assign(torch.tensor([[[1.0]]]))[0, 0]
    assert (h[1] / h[0]).item() == pytest.approx(0.01, rel=1e-4)


def test_netvlad_and_vlad_are_fitted_to_the_same_codebook():
    net, x = NetVLAD(D, codewords=N).double(), data()
    net.fit(x, seed=3)
    vlad = VLAD(D, codewords=N).double()
    vlad.fit(x, seed=3)
    torch.testing.assert_close(net.centres.detach(), vlad.centres)
    assert sum(p.numel() for p in net.parameters()) == 2 * N * D + N


def test_netvlad_learns_its_codebook_and_its_assignment():
    net = NetVLAD(D, codewords=N)
    net(data(4).float()).square()[:, 0].sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in net.parameters())
