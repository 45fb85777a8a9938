"""Re-ranking against the published definitions written as loops, and on classes that overlap."""

from __future__ import annotations

import numpy as np
import pytest

from index_pictures import unit
from secondsight.index.rerank import METHODS, augmented, expanded, gain, k_reciprocal


def classes(n_classes=30, each=12, dim=24, noise=1.1, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(n_classes), each)
    centres = rng.standard_normal((n_classes, dim))
    return unit(centres[labels] + noise * rng.standard_normal((len(labels), dim))), labels


def test_alpha_query_expansion_is_its_equation():
    vectors, _ = classes()
    q, x, s = vectors[0], vectors[1:4], np.array([0.9, 0.5, -0.2], np.float32)
    expected = q + 0.9**3 * x[0] + 0.5**3 * x[1]
    np.testing.assert_allclose(expanded(q[None], x[None], s[None])[0], expected / np.linalg.norm(expected), atol=1e-6)


def test_database_augmentation_expands_every_item_by_its_nearest():
    vectors, _ = classes(n_classes=5)
    i = 7
    scores = vectors @ vectors[i]
    near = [j for j in np.argsort(-scores) if j != i][:5]
    expected = vectors[i] + sum(max(scores[j], 0) ** 3 * vectors[j] for j in near)
    np.testing.assert_allclose(augmented(vectors)[i], expected / np.linalg.norm(expected), atol=1e-5)


def published(query, candidates, k1, k2, weight):
    """k-reciprocal encoding as in the paper's algorithm, in sets and loops, on these vectors alone."""
    x = np.concatenate([query[None], candidates]).astype(float)
    d = np.clip(1 - x @ x.T, 0, None)
    order = np.argsort(d, axis=1, kind="stable")

    def reciprocal(i, k):
        return {j for j in order[i, : k + 1] if i in order[j, : k + 1]}

    v = np.zeros_like(d)
    for i in range(len(x)):
        star = reciprocal(i, k1)
        for j in list(reciprocal(i, k1)):
            other = reciprocal(j, round(k1 / 2))
            if len(other & reciprocal(i, k1)) > 2 / 3 * len(other):
                star |= other
        for j in star:
            v[i, j] = np.exp(-d[i, j])
        v[i] /= v[i].sum()
    v = np.array([v[order[i, :k2]].mean(0) for i in range(len(x))])
    final = []
    for j in range(1, len(x)):
        low = np.minimum(v[0], v[j]).sum()
        final.append((1 - weight) * (1 - low / (2 - low)) + weight * d[0, j])
    return np.argsort(final, kind="stable")


@pytest.mark.parametrize("seed", range(4))
def test_k_reciprocal_is_the_published_algorithm_on_the_candidates(seed):
    vectors, _ = classes(n_classes=6, seed=seed)
    found = k_reciprocal(vectors[0], vectors[1:], k1=10, k2=4, weight=0.3)
    assert np.array_equal(found, published(vectors[0], vectors[1:], 10, 4, 0.3))


@pytest.mark.parametrize("method", METHODS)
def test_the_gain_is_measured_on_labels(method):
    vectors, labels = classes()
    found = gain(vectors, labels, method)
    scores = vectors @ vectors.T
    np.fill_diagonal(scores, -2)
    assert found.recall[0] == pytest.approx((labels[scores.argmax(1)] == labels).mean())
    assert found.map_at_r[1] > found.map_at_r[0], "compact classes gain from their neighbours"
    noise = unit(np.random.default_rng(1).standard_normal((200, 16)))
    assert (
        not gain(noise, np.arange(200) % 20, method).helps or gain(noise, np.arange(200) % 20, method).recall[1] < 0.2
    )


def test_few_candidates_are_enough():
    vectors, _ = classes()
    assert k_reciprocal(vectors[0], vectors[1:2]).tolist() == [0]
    assert sorted(k_reciprocal(vectors[0], vectors[1:4]).tolist()) == [0, 1, 2]
