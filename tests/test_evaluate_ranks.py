"""Ranks of the positives: exact, whatever the blocking, and ties against the query."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from secondsight.functional.ranking.ranks import Ranks, positive_ranks
from secondsight.functional.ranking.similarity import METRICS, similarity


def similarities(x: Tensor, metric: str) -> Tensor:
    """All of S in float64, at once."""
    x = x.double()
    if metric == "cosine":
        x = torch.nn.functional.normalize(x, dim=1)
    return -torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist") if metric == "euclidean" else x @ x.T


def by_definition(s: Tensor, labels: Tensor, queries: Tensor, gallery: Tensor, *, tie: float = 1e-12) -> Ranks:
    """The definition, query by query, from the whole matrix."""
    rows = []
    for q in queries.tolist():
        others = gallery[gallery != q]
        same = labels[others] == labels[q]
        positives, negatives = s[q, others[same]].sort(descending=True).values, s[q, others[~same]]
        r = len(positives)
        j = torch.arange(1, r + 1)
        rank = j + (negatives >= positives[:, None] - tie).sum(1)
        found = (rank <= r).double()
        rows.append(
            (
                r,
                int(rank[0]) if r else 0,
                float(found.sum()) / (r or torch.nan),
                float((found * j / rank).sum()) / (r or torch.nan),
            )
        )
    positives, first, precision, average = (np.array(column) for column in zip(*rows, strict=True))
    return Ranks(*(torch.from_numpy(column) for column in (positives, first, precision, average)))


def assert_same(found: Ranks, expected: Ranks) -> None:
    assert found.positives.tolist() == expected.positives.tolist()
    assert found.first.tolist() == expected.first.tolist()
    for name in ("r_precision", "map_at_r"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), equal_nan=True, rtol=0, atol=1e-12)


def clustered(n: int, classes: int, dim: int, *, noise: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator)
    centres = torch.randn(classes, dim, generator=generator)
    return centres[labels] + noise * torch.randn(n, dim, generator=generator), labels


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("n", "classes"), [(9, 3), (100, 40), (333, 20), (600, 3), (1500, 400)])
def test_ranks_are_those_of_the_definition(metric, n, classes):
    x, labels = clustered(n, classes, 12)
    everything = torch.arange(n)
    expected = by_definition(similarities(x, metric), labels, everything, everything)
    assert_same(positive_ranks(x, labels, everything, everything, metric=metric), expected)


@pytest.mark.parametrize("metric", METRICS)
def test_queries_and_gallery_may_be_any_two_sets_that_overlap_or_not(metric):
    x, labels = clustered(700, 30, 10)
    order = torch.randperm(700)
    s = similarities(x, metric)
    for queries, gallery in (
        (order[:200], order[200:]),
        (order[:300], order[150:600]),
        (order[:1], order),
        (order, order[:40]),
    ):
        assert_same(
            positive_ranks(x, labels, queries, gallery, metric=metric), by_definition(s, labels, queries, gallery)
        )


def test_half_of_the_matrix_gives_what_the_whole_gives():
    # A gallery in another order inside its classes is not recognised as the set of queries: nothing is symmetric then.
    x, labels = clustered(5000, 600, 8)
    everything = torch.arange(5000)
    assert_same(
        positive_ranks(x, labels, everything, everything), positive_ranks(x, labels, everything, everything.flip(0))
    )


def test_the_order_of_the_items_does_not_matter():
    x, labels = clustered(900, 50, 8)
    order, everything = torch.randperm(900), torch.arange(900)
    ranks = positive_ranks(x, labels, everything, everything)
    assert_same(
        positive_ranks(x[order], labels[order], everything, everything), Ranks(*(field[order] for field in ranks))
    )


@settings(max_examples=60, deadline=None)
@given(data=st.data(), metric=st.sampled_from(METRICS), n=st.integers(3, 24), dim=st.integers(1, 3))
def test_small_integers_tie_exactly_as_in_rational_arithmetic(data, metric, n, dim):
    rows = data.draw(st.lists(st.lists(st.integers(-2, 2), min_size=dim, max_size=dim), min_size=n, max_size=n))
    labels = torch.tensor(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    factor = data.draw(st.sampled_from([1.0, 2.0**-80, 2.0**60]))
    everything = torch.arange(n)
    s = torch.tensor([[_rational(a, b, metric) for b in rows] for a in rows], dtype=torch.float64)
    found = positive_ranks(
        torch.tensor(rows, dtype=torch.float32) * factor, labels, everything, everything, metric=metric
    )
    assert_same(
        found, by_definition(_order(rows, metric) if metric == "cosine" else s, labels, everything, everything, tie=0)
    )


def _rational(a: list[int], b: list[int], metric: str) -> float:
    if metric == "euclidean":
        return -sum((x - y) ** 2 for x, y in zip(a, b, strict=True))
    return sum(x * y for x, y in zip(a, b, strict=True))


def _order(rows: list[list[int]], metric: str) -> Tensor:
    """Integers in the order of the cosines: sign(⟨a,b⟩) ⟨a,b⟩² / |b|², a fraction, has it for each a."""
    table = []
    for a in rows:
        values = [
            Fraction(0) if not any(b) else Fraction((dot := _rational(a, b, "dot")) * abs(dot), _rational(b, b, "dot"))
            for b in rows
        ]
        place = {value: i for i, value in enumerate(sorted(set(values)))}
        table.append([place[value] for value in values])
    return torch.tensor(table, dtype=torch.float64)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dim", [3, 512])
def test_float32_decides_near_ties_as_float64_does(metric, dim):
    # Every vector is one of a few plus a thousandth: cosines differ by 10⁻⁷ and less, which a float32 GEMM cannot tell.
    x, labels = clustered(400, 60, dim)
    x = x[torch.randint(8, (400,))] * (1 + 2.0**-10 * torch.randn(400, dim))
    everything = torch.arange(400)
    expected = by_definition(similarities(x, metric), labels, everything, everything, tie=1e-14)
    assert_same(positive_ranks(x, labels, everything, everything, metric=metric), expected)


@pytest.mark.parametrize("metric", METRICS)
def test_a_duplicate_of_another_class_beats_the_positive(metric):
    x, labels = clustered(300, 30, 64)
    both, twin_labels = torch.cat([x, x]), torch.cat([labels, labels + 100])
    everything = torch.arange(600)
    first = positive_ranks(both, twin_labels, everything, everything, metric=metric).first
    alone = positive_ranks(x, labels, everything[:300], everything[:300], metric=metric).first
    # Each positive p now has a twin that ties with it, the query has one that is nearer, and so has every old negative.
    assert first.tolist() == torch.where(alone == 0, 0, 2 * (alone - 1) + 3).repeat(2).tolist()


def test_a_duplicate_of_the_query_is_found_and_only_the_query_itself_is_left_out():
    x, labels = clustered(300, 30, 64)
    everything = torch.arange(600)
    assert positive_ranks(torch.cat([x, x]), labels.repeat(2), everything, everything).first.eq(1).all()


@pytest.mark.parametrize("metric", METRICS)
def test_a_collapsed_embedding_ranks_every_negative_first(metric):
    labels = torch.arange(3000) % 700
    everything = torch.arange(3000)
    ranks = positive_ranks(torch.full((3000, 100), 0.1), labels, everything, everything, metric=metric)
    negatives = 3000 - torch.bincount(labels)[labels]
    assert ranks.first.tolist() == (negatives + 1).tolist()
    assert ranks.map_at_r.eq(0).all()
    assert ranks.r_precision.eq(0).all()


def test_an_almost_collapsed_embedding_is_still_ranked_exactly():
    x, labels = clustered(2500, 200, 32)
    x = 1 + 1e-4 * x
    everything = torch.arange(2500)
    assert_same(
        positive_ranks(x, labels, everything, everything),
        by_definition(similarities(x, "cosine"), labels, everything, everything, tie=1e-14),
    )


def test_zero_vectors_are_at_right_angles_to_everything():
    x = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    first = positive_ranks(x, torch.tensor([0, 0, 1, 1]), torch.arange(4), torch.arange(4)).first
    assert first.tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize(
    ("dtype", "factor"),
    [(torch.float16, 1), (torch.bfloat16, 1), (torch.float64, 1e300), (torch.float64, 1e-300), (torch.float32, 1e30)],
)
@pytest.mark.parametrize("metric", METRICS)
def test_every_float_type_and_magnitude_is_ranked_as_it_is(dtype, factor, metric):
    x, labels = clustered(200, 20, 16)
    x = x.to(dtype)
    everything = torch.arange(200)
    found = positive_ranks(x * factor, labels, everything, everything, metric=metric)
    assert_same(found, by_definition(similarities(x, metric), labels, everything, everything))


def test_a_query_without_positives_has_rank_zero_and_no_precision():
    x, labels = clustered(50, 5, 4)
    labels[7] = 99
    ranks = positive_ranks(x, labels, torch.arange(50), torch.arange(50))
    assert (int(ranks.positives[7]), int(ranks.first[7])) == (0, 0)
    assert ranks.map_at_r[7].isnan()
    assert ranks.r_precision[7].isnan()
    assert int(ranks.map_at_r.isnan().sum()) == 1


def test_reduced_precision_settings_do_not_touch_the_ranks():
    x, labels = clustered(600, 60, 64)
    everything = torch.arange(600)
    expected = positive_ranks(x, labels, everything, everything)
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert_same(positive_ranks(x.requires_grad_(), labels, everything, everything), expected)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("metric", METRICS)
def test_the_error_bound_holds(metric):
    x, _ = clustered(300, 5, 700)
    everything = torch.arange(300)
    s = similarity(x, everything, everything, metric=metric)
    fast = s.block(slice(0, 300), slice(0, 304), torch.empty(300 * 304))
    error = (fast - s.exact_block(slice(0, 300), slice(0, 304))).abs()
    assert (error <= s.error[:, None]).all()
    assert (error > 0).any()


@pytest.mark.parametrize("gallery", [torch.arange(1200), torch.arange(1200).flip(0)], ids=["symmetric", "rectangular"])
def test_threads_count_what_one_counts_and_give_torch_back_its_own(gallery):
    x, labels = clustered(1200, 100, 16)
    before = torch.get_num_threads()
    found = []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            with torch.inference_mode(number == 3):
                found.append(positive_ranks(x, labels, torch.arange(1200), gallery))
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(before)
    assert_same(*found)


def test_stopping_half_way_gives_torch_back_its_threads():
    x, labels = clustered(1200, 100, 16)
    everything, before = torch.arange(1200), torch.get_num_threads()

    def stop(share: float) -> None:
        raise KeyboardInterrupt

    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyboardInterrupt):
            positive_ranks(x, labels, everything, everything, progress=stop)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_progress_adds_up_to_one():
    x, labels = clustered(1300, 90, 4)
    everything = torch.arange(1300)
    for gallery in (everything, everything.flip(0)):
        shares: list[float] = []
        positive_ranks(x, labels, everything, gallery, progress=shares.append)
        assert sum(shares) == pytest.approx(1)
