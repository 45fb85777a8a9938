"""Triplets without listing them: sorting, prefix sums and binary search give what loops give, block by block."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from secondsight.functional.losses import row_blocks as rows
from secondsight.functional.losses import triplets
from secondsight.functional.losses.pairs import euclidean, pair_masks, positives, split_pairs, unit, unit_parts
from secondsight.functional.losses.row_order import ascending, how_many_below, largest_below
from secondsight.functional.losses.smooth_ap import smooth_ap

LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=14).map(torch.tensor)


@given(LABELS)
def test_positives_are_the_other_images_of_the_class(labels):
    index, real = positives(labels)
    positive, negative = pair_masks(labels)
    for i in range(len(labels)):
        assert sorted(index[i][real[i]].tolist()) == positive[i].nonzero().flatten().tolist()
    assert not (positive & negative).any()
    assert int(positive.sum() + negative.sum()) == len(labels) * (len(labels) - 1)


@given(LABELS)
def test_each_unordered_pair_appears_once(labels):
    values = torch.arange(len(labels) ** 2, dtype=torch.float64).reshape(len(labels), -1)
    positive, negative = split_pairs(values, labels)
    assert len(positive) + len(negative) == len(labels) * (len(labels) - 1) // 2
    assert len(set(positive.tolist()) & set(negative.tolist())) == 0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_hinges_are_those_of_two_loops_also_with_ties(seed, bounded):
    g = torch.Generator().manual_seed(seed)
    # Small integers make ties likely.
    x = torch.randint(-3, 4, (3, 7), generator=g).double()
    t = torch.randint(-3, 4, (3, 4), generator=g).double()
    negative, real = torch.rand(3, 7, generator=g) < 0.6, torch.rand(3, 4, generator=g) < 0.7
    below = t + 2 if bounded else None
    h = triplets.hinges(x, t, negative=negative, real=real, below=below)
    total, count, d_x, d_t = 0.0, 0, torch.zeros_like(x), torch.zeros_like(t)
    for r in range(3):
        for p in range(4):
            for n in range(7):
                in_reach = x[r, n] > t[r, p] and (below is None or x[r, n] < below[r, p])
                if negative[r, n] and real[r, p] and in_reach:
                    total, count = total + float(x[r, n] - t[r, p]), count + 1
                    d_x[r, n] += 1
                    d_t[r, p] -= 1
    assert (h.total.item(), h.active.item()) == (total, count)
    assert torch.equal(h.d_x, d_x)
    assert torch.equal(h.d_t, d_t)


LOSSES = {
    "all": lambda u, y: triplets.all_triplets(u, y, margin=0.1),
    "semi-hard": lambda u, y: triplets.semihard_triplets(u, y, margin=0.1),
    "hardest semi-hard": lambda u, y: triplets.hardest_semihard_triplets(u, y, margin=0.1),
    "hierarchical": lambda u, y: triplets.hierarchical_triplets(
        u, y, lambda here: (y[here, None] + y[None, :]).to(u.dtype) / 10
    ),
    "smooth AP": lambda u, y: smooth_ap(u, y, temperature=0.1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_are_sorted_as_torch_sorts_them(dtype):
    x = torch.randn(5, 40, dtype=dtype).round(decimals=1)
    x[0, 3], x[1, 4], x[2, 5], x[3] = torch.inf, -torch.inf, -0.0, 0.0
    assert torch.equal(ascending(x), x.sort(dim=1).values)


@pytest.mark.parametrize("k", [3, 40])  # one by one, and by sorting
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_largest_value_below(k, dtype):
    x, t = torch.randn(4, 20, dtype=dtype), torch.randn(4, k, dtype=dtype) * 2
    t[:, 0] = x[:, 7]  # equal is not below
    index, found = largest_below(x, t)
    for r in range(4):
        for i in range(k):
            below = [(float(v), c) for c, v in enumerate(x[r]) if v < t[r, i]]
            assert bool(found[r, i]) == bool(below)
            if below:
                assert int(index[r, i]) == max(below)[1]


@pytest.mark.parametrize("k", [3, 40])  # one by one, and by binary search
def test_counting_what_is_below(k):
    t, x = torch.randint(0, 9, (4, k)).float(), torch.randint(0, 9, (4, 20)).float()
    assert torch.equal(how_many_below(t, x, strictly=True).long(), (t[:, :, None] < x[:, None, :]).sum(1))
    assert torch.equal(how_many_below(t, x, strictly=False).long(), (t[:, :, None] <= x[:, None, :]).sum(1))


@pytest.mark.parametrize("name", LOSSES)
def test_blocks_of_rows_give_what_the_whole_matrix_gives(name, monkeypatch):
    u, labels = unit(torch.randn(30, 5, dtype=torch.float64)), torch.randint(0, 6, (30,))

    def value_and_grad():
        x = u.clone().requires_grad_()
        value = LOSSES[name](x, labels)
        return value.detach(), torch.autograd.grad(value, x)[0]

    whole = value_and_grad()
    monkeypatch.setattr(rows, "_BLOCK", 30 * 7)
    torch.testing.assert_close(value_and_grad(), whole)


def test_mining_finds_one_negative_a_positive_pair_and_none_where_all_are_harder():
    # The positive (1) of image 0 is less similar than both negatives; the one of image 1 has a semi-hard negative.
    u = unit(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.9, 0.3]]))
    labels = torch.tensor([0, 0, 1, 1])
    mined = {(a, p): n for a, p, n in zip(*(t.tolist() for t in triplets.mine_semihard(u, labels)), strict=True)}
    assert mined == {(2, 3): 1, (3, 2): 0}  # 3 sees 0 below its positive 2; 2 sees 0 above it, so only 1 is left
    everyone = triplets.mine_semihard(u, labels, fallback=True)
    assert len(everyone[0]) == 4


def test_mining_a_batch_without_positives_or_without_negatives_finds_nothing():
    for labels in (torch.arange(4), torch.zeros(4, dtype=torch.long)):
        for found in triplets.mine_semihard(unit(torch.randn(4, 3)), labels):
            assert found.shape == (0,)


def test_a_batch_of_2048_needs_no_cube():
    u, labels = unit(torch.randn(2048, 16)).requires_grad_(), torch.arange(2048) // 4
    for name in ("all", "hardest semi-hard"):  # a cube would be 32 GB
        assert LOSSES[name](u, labels).isfinite()


def test_unit_vectors_of_any_length_and_their_gradient():
    z = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(unit(z), torch.nn.functional.normalize(z))
    torch.autograd.gradcheck(unit, z)
    torch.testing.assert_close(unit(z.detach() * 1e300), unit(z.detach()))


def test_parts_are_unit_vectors_times_their_scale():
    e = unit_parts(torch.randn(3, 10), [4, 6], [1.0, 0.5])
    torch.testing.assert_close(e[:, :4].norm(dim=1), torch.ones(3))
    torch.testing.assert_close(e[:, 4:].norm(dim=1), torch.full((3,), 0.5))


def test_distance_from_cosine_and_no_gradient_at_zero():
    u = unit(torch.randn(4, 3, dtype=torch.float64))
    torch.testing.assert_close(euclidean(u @ u.T), torch.cdist(u, u))
    s = torch.tensor([1.0, 0.5], requires_grad=True)
    euclidean(s).sum().backward()
    assert s.grad is not None
    torch.testing.assert_close(s.grad, torch.tensor([0.0, -1.0]))
