"""Figures of ``evaluate.retrieval`` against loops in float64 and against other libraries."""

from __future__ import annotations

import math

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator
from sklearn.metrics import normalized_mutual_info_score
from torchmetrics.functional.retrieval import retrieval_hit_rate, retrieval_r_precision, retrieval_reciprocal_rank

from secondsight.evaluate import retrieval
from secondsight.evaluate.clustering import normalised_mutual_information


def clouds(n: int = 300, classes: int = 20, dim: int = 12, noise: float = 1.2, seed: int = 0):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % classes)
    return rng.normal(size=(classes, dim))[labels] + noise * rng.normal(size=(n, dim)), labels


def by_loops(x, labels, queries, gallery, ks, similarity):
    """The definitions, query by query: sort the gallery with ties against the query, then look at the list."""
    rows = []
    for q in queries:
        others = [g for g in gallery if g != q]
        right = [labels[g] == labels[q] for g in others]
        if not any(right):
            continue
        # negatives before positives where the similarity is the same
        order = sorted(range(len(others)), key=lambda i: (-similarity(x[q], x[others[i]]), right[i]))
        hits = [right[i] for i in order]
        r = sum(hits)
        precision = [sum(hits[: k + 1]) / (k + 1) if hits[k] else 0.0 for k in range(r)]
        first = hits.index(True) + 1
        rows.append([*(float(first <= k) for k in ks), sum(precision) / r, sum(hits[:r]) / r, 1 / first])
    return np.mean(rows, axis=0)


def figures(report, ks):
    return [*(report.recall[k] for k in ks), report.map_at_r, report.r_precision, report.mrr]


SIMILARITY = {
    "cosine": lambda a, b: math.fsum(a * b) / math.sqrt(math.fsum(a * a)) / math.sqrt(math.fsum(b * b)),
    "dot": lambda a, b: math.fsum(a * b),
    "euclidean": lambda a, b: -math.fsum((a - b) ** 2),
}


@pytest.mark.parametrize("metric", SIMILARITY)
def test_every_figure_is_the_one_that_its_definition_gives(metric):
    x, labels = clouds(90, classes=9)
    report = retrieval(x, labels, metric=metric, ks=(1, 3, 7), bootstrap=0)
    expected = by_loops(x, labels, range(90), range(90), (1, 3, 7), SIMILARITY[metric])
    np.testing.assert_allclose(figures(report, (1, 3, 7)), expected, rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_queries_and_gallery_with_ties_and_duplicates_agree_with_loops(data):
    n = data.draw(st.integers(4, 24))
    grid = st.integers(-2, 2)  # few different vectors: many exact ties under the dot product
    x = np.array(data.draw(st.lists(st.tuples(grid, grid), min_size=n, max_size=n)), dtype=np.float64)
    labels = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    some = st.lists(st.integers(0, n - 1), min_size=2, unique=True)
    queries, gallery = data.draw(some), data.draw(some)
    found = [q for q in queries if any(labels[g] == labels[q] for g in gallery if g != q)]
    if not found or len(set(labels[queries]) | set(labels[gallery])) < 2:
        return
    report = retrieval(x, labels, queries=queries, gallery=gallery, metric="dot", ks=(1, 2), bootstrap=0)
    expected = by_loops(x, labels, queries, gallery, (1, 2), SIMILARITY["dot"])
    np.testing.assert_allclose(figures(report, (1, 2)), expected, rtol=1e-12)
    assert report.without_positives == len(queries) - len(found)


def test_pytorch_metric_learning_finds_the_same():
    x, labels = clouds(400, classes=17)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    calculator = AccuracyCalculator(
        include=("precision_at_1", "mean_average_precision_at_r", "r_precision", "mean_reciprocal_rank"),
        k=399,
        device=torch.device("cpu"),
    )
    theirs = calculator.get_accuracy(torch.from_numpy(x).float(), torch.from_numpy(labels))
    ours = retrieval(x.astype(np.float32), labels, bootstrap=0)
    assert ours.recall[1] == pytest.approx(theirs["precision_at_1"])
    assert ours.map_at_r == pytest.approx(theirs["mean_average_precision_at_r"])
    assert ours.r_precision == pytest.approx(theirs["r_precision"])
    assert ours.mrr == pytest.approx(theirs["mean_reciprocal_rank"])


def test_torchmetrics_finds_the_same():
    x, labels = clouds(120, classes=8)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    s, y = torch.from_numpy(x @ x.T), torch.from_numpy(labels)
    rows = []
    for q in range(len(y)):
        others = torch.arange(len(y)) != q
        scores, right = s[q][others], y[others] == y[q]
        hits = [retrieval_hit_rate(scores, right, top_k=k) for k in (1, 4)]
        rows.append([*hits, retrieval_r_precision(scores, right), retrieval_reciprocal_rank(scores, right)])
    expected = np.mean(np.array(rows, dtype=np.float64), axis=0)
    ours = retrieval(x, labels, ks=(1, 4), bootstrap=0)
    np.testing.assert_allclose([ours.recall[1], ours.recall[4], ours.r_precision, ours.mrr], expected, rtol=1e-6)


def test_faiss_finds_the_same_recall_in_a_gallery_apart():
    x, labels = clouds(500, classes=30, noise=2.0)
    x = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    index = faiss.IndexFlatIP(x.shape[1])
    index.add(x[200:])
    nearest = labels[200:][index.search(x[:200], 10)[1]]
    report = retrieval(x, labels, queries=np.arange(200), gallery=np.arange(200, 500), ks=(1, 5, 10), bootstrap=0)
    for k in (1, 5, 10):
        assert report.recall[k] == pytest.approx((nearest[:, :k] == labels[:200, None]).any(1).mean())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_collapsed_embedding_scores_zero_not_one(dtype):
    report = retrieval(np.full((60, 8), 0.3, dtype), np.arange(60) % 6, ks=(1, 8), bootstrap=0)
    assert report.recall == {1: 0.0, 8: 0.0}
    assert report.map_at_r == report.r_precision == 0


def test_a_duplicate_of_the_query_is_found_and_the_query_itself_is_not():
    x, labels = clouds(60, classes=30, noise=9)
    twice = np.concatenate([x, x])
    assert retrieval(twice, np.concatenate([labels, labels]), bootstrap=0).recall[1] == 1
    # the duplicate under another label: it, not the query, comes first
    assert retrieval(twice, np.concatenate([labels, labels + 100]), bootstrap=0).recall[1] == 0


def test_float32_gives_the_figures_of_float64_where_float32_products_cannot_tell_classes_apart():
    rng = np.random.default_rng(3)
    labels = np.arange(200) % 10
    x = (1.0 + 1e-5 * rng.normal(size=(200, 16))).astype(np.float32)
    single, double = (retrieval(x.astype(t), labels, bootstrap=0) for t in (np.float32, np.float64))
    assert single.figures == double.figures


def test_numpy_torch_strings_masks_and_order_make_no_difference():
    x, labels = clouds(100, classes=7)
    plain = retrieval(x, labels, queries=np.arange(40), bootstrap=0)
    mask = np.arange(100) < 40
    names = [f"class {label}" for label in labels]
    for report in (
        retrieval(torch.from_numpy(x).requires_grad_(), torch.from_numpy(labels), queries=mask, bootstrap=0),
        retrieval(x, names, queries=torch.arange(39, -1, -1), bootstrap=0),
        retrieval(np.asfortranarray(x.astype(">f8")), labels.astype(float), queries=list(range(40)), bootstrap=0),
    ):
        assert report.figures == pytest.approx(plain.figures)
    assert set(retrieval(x, names, bootstrap=0).per_class) == set(names)


def test_queries_without_a_positive_are_left_out_and_counted():
    x, labels = clouds(50, classes=5)
    alone = np.concatenate([x, np.random.default_rng(0).normal(size=(3, x.shape[1]))])
    report = retrieval(alone, [*labels, 90, 91, 92], bootstrap=0)
    assert (report.queries, report.without_positives, report.classes) == (53, 3, 8)
    assert len(report.per_class) == 5
    assert (report.first[-3:] == 0).all()
    assert np.isnan(report.average_precision[-3:]).all()


def test_a_k_as_large_as_the_gallery_finds_every_positive():
    x, labels = clouds(40, classes=4, noise=9)
    report = retrieval(x, labels, ks=(39, 40, 10_000), bootstrap=0)
    assert report.recall == {39: 1.0, 40: 1.0, 10_000: 1.0}
    assert report.empty_ks == (40, 10_000)
    assert "K = 40, 10000 is the whole gallery" in report.summary


def test_classes_average_to_the_whole():
    x, labels = clouds(130, classes=12)
    report = retrieval(x, labels)
    weighed = sum(one.queries * one.recall[1] for one in report.per_class.values()) / report.queries
    assert weighed == pytest.approx(report.recall[1])
    assert report.worst(3)[0][1].recall[1] == min(one.recall[1] for one in report.per_class.values())


def test_mutual_information_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    for size in (1, 3, 20):
        a, b = rng.integers(0, size, 300), rng.integers(0, 5, 300)
        assert normalised_mutual_information(a, b) == pytest.approx(normalized_mutual_info_score(b, a), abs=1e-12)


def test_clusters_of_well_separated_classes_are_the_classes():
    x, labels = clouds(200, classes=4, noise=0.01)
    report = retrieval(x, labels, nmi=True, bootstrap=0)
    assert report.nmi == pytest.approx(1, abs=0.15)  # k-means may start with two centres in one class
    assert "nmi" in report.figures
    assert retrieval(x, labels, bootstrap=0).nmi is None
