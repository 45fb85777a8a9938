"""The parts of JCF that say which projectors a location uses: the codebook, what it assigns, and its mixers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from secondsight.errors import ConfigError, UnknownName
from secondsight.functional.pooling import assignment
from secondsight.pooling.codebook import Assigned, Codebook
from secondsight.pooling.mixers import Linear, mixer


def by_loops(x: torch.Tensor, words: torch.Tensor, scale: float, k: int) -> torch.Tensor:
    """h(x) of one feature: a softmax over the k nearest codewords by cosine, zero elsewhere."""
    cosines = [float(x @ w) / (float(x.norm()) * float(w.norm())) for w in words]
    nearest = sorted(range(len(words)), key=lambda n: -cosines[n])[:k]
    total = sum(math.exp(scale * cosines[n]) for n in nearest)
    h = [math.exp(scale * c) / total if n in nearest else 0.0 for n, c in enumerate(cosines)]
    return torch.tensor(h, dtype=torch.float64)


@pytest.mark.parametrize(("assign", "k"), [("soft", 5), ("top-2", 2), ("hard", 1)])
def test_the_codebook_assigns_by_a_softmax_of_cosines(assign, k):
    book = Codebook(6, 5, assign=assign, scale=3.0).double().eval()
    x = torch.randn(2, 4, 6, dtype=torch.float64)
    h = book(x).dense(5)
    for b in range(2):
        for place in range(4):
            torch.testing.assert_close(
                h[b, place], by_loops(x[b, place], book.words.detach(), 3.0, k), rtol=1e-6, atol=1e-9
            )


def test_top_k_weights_sum_to_one_and_name_the_nearest():
    x, words = torch.randn(3, 7, 6, dtype=torch.float64), torch.randn(6, 6, dtype=torch.float64)
    weights, index = assignment.top_k(x, words, 4.0, 2)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 7, dtype=torch.float64))
    torch.testing.assert_close(index, assignment.soft(x, words, 4.0).argsort(-1, descending=True)[..., :2])


def test_the_nearest_codeword_has_all_the_weight_so_the_codebook_learns_nothing():
    x, book = torch.randn(3, 7, 6, dtype=torch.float64), Codebook(6, 5, assign="top-1").double()
    weights, which = assignment.top_k(x, book.words, book.scale, 1)
    found = book(x)
    assert torch.equal(found.weights, weights)
    assert torch.equal(found.which, which)
    assert not any(p.requires_grad for p in book.parameters())
    assert Codebook(6, 5, assign="hard").words.requires_grad  # through the gradient of the soft assignment


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 6), st.integers(0, 2**16))
def test_what_is_done_to_a_sparse_assignment_is_done_to_its_dense_form(b, length, n, seed):
    generator = torch.Generator().manual_seed(seed)
    k = int(torch.randint(1, n + 1, (), generator=generator))
    which = torch.rand(b, length, n, generator=generator).argsort(-1)[..., :k]
    sparse = Assigned(torch.rand(b, length, k, generator=generator), which)
    dense = Assigned(sparse.dense(n), None)
    gains, kept = torch.rand(n, generator=generator), torch.rand(b, 1, n, generator=generator)
    mask = torch.rand(b, length, generator=generator) > 0.5
    for first, second in (
        (sparse.weighed(gains), dense.weighed(gains)),
        (sparse.thinned(kept), dense.thinned(kept)),
        (sparse.masked(mask), dense.masked(mask)),
    ):
        torch.testing.assert_close(first.dense(n), second.weights)


def test_fit_puts_codewords_of_length_one_on_the_clusters_and_forgets_old_gains():
    centres = torch.eye(3, 8)
    book = Codebook(8, 3, gains=True)
    with torch.no_grad():
        book.log_gains.fill_(2.0)  # pyright: ignore[reportOptionalMemberAccess]
    book.fit(centres.repeat_interleave(50, 0) * 7 + 0.01 * torch.randn(150, 8))
    nearest = (book.words @ centres.T).max(1)
    assert sorted(nearest.indices.tolist()) == [0, 1, 2]
    torch.testing.assert_close(nearest.values, torch.ones(3), rtol=0, atol=0.01)
    assert torch.equal(book.gains, torch.ones(3))


def test_a_linear_mixer_is_a_matrix_and_combines_projectors_as_it_combines_codewords():
    f = Linear(5, 3)
    torch.nn.init.normal_(f.weight)
    h, w = torch.rand(2, 5), torch.randn(3, 4, 6)
    expected = torch.stack([sum(f(h)[b, r] * w[r] for r in range(3)) for b in range(2)])
    torch.testing.assert_close(torch.einsum("bn,nde->bde", h, f.combined(w)), expected)


def test_an_untrained_linear_mixer_deals_the_codewords_out():
    assert Linear(5, 3).weight.argmax(1).tolist() == [0, 1, 2, 0, 1]


def test_the_other_mixer_makes_shares_that_add_up_to_one():
    torch.testing.assert_close(mixer("mlp", 5, 3)(torch.rand(4, 5)).sum(-1), torch.ones(4))
    with pytest.raises(UnknownName, match="'linear'"):
        mixer("linaer", 5, 3)


@pytest.mark.parametrize("assign", ["fuzzy", "top-0", "top-6", "top-x"])
def test_an_assignment_that_cannot_be_is_refused(assign):
    with pytest.raises(ConfigError, match=assign):
        Codebook(6, 5, assign=assign)
