"""``start = "pairs"``: JCF begins as the second moment of an image, cut to the entries that tell images apart."""

from __future__ import annotations

import itertools

import pytest
import torch

from secondsight import pooling
from secondsight.errors import ConfigError, DataError
from secondsight.pooling.starts import pairs


@pytest.fixture
def features() -> torch.Tensor:
    """60 images of 9 locations, 6 channels that depend on each other and on the image."""
    generator = torch.Generator().manual_seed(3)
    mix = torch.randn(6, 6, generator=generator)
    gain = torch.rand(60, 1, 6, generator=generator) + 0.2
    return (torch.randn(60, 9, 6, generator=generator) * gain + 0.5) @ mix


def fitted(name: str, features: torch.Tensor, *, dim: int, **options) -> pooling.Pooling:
    torch.manual_seed(0)
    pool = pooling.build(name, features.shape[-1], dim, start="pairs", **options).eval()
    pool.fit(features.split(16))
    return pool


@pytest.mark.parametrize("name", ["jcf", "jcf-4", "jcf-8-2"])
def test_with_all_pairs_images_compare_by_the_exact_second_order_kernel(features, name):
    z = fitted(name, features, dim=21)(features)
    kernel = torch.stack(
        [torch.stack([(x @ y.T).square().sum() for y in features]) for x in features]
    )  # Σ_ij ⟨x_i, y_j⟩²
    ratio = (z @ z.T) / kernel
    torch.testing.assert_close(ratio, ratio.mean().expand_as(ratio), rtol=1e-3, atol=0)


def test_those_pairs_stay_that_vary_most_between_images(features):
    moment = sum(x.T @ x for x in features)
    axes = torch.linalg.eigh(moment.double()).eigenvectors.float()
    found = {}
    for a, b in itertools.combinations_with_replacement(range(6), 2):
        sums = ((features @ axes[:, a]) * (features @ axes[:, b])).sum(1)
        found[a, b] = (sums * (1 if a == b else 2**0.5)).var(unbiased=False).item()
    best = sorted(found.values(), reverse=True)[:5]
    u, v = pairs(features.split(7), 6, 5)
    chosen = (features @ u * (features @ v)).sum(1).var(0, unbiased=False)
    torch.testing.assert_close(chosen.sort(descending=True).values, torch.tensor(best), rtol=1e-3, atol=1e-4)


def test_a_codebook_changes_nothing_before_it_learns(features):
    plain, shared = fitted("jcf", features, dim=8), fitted("jcf-8-2", features, dim=8)
    a, b = (torch.nn.functional.normalize(pool(features), dim=1) for pool in (plain, shared))
    torch.testing.assert_close(a @ a.T, b @ b.T, rtol=1e-4, atol=1e-5)


def test_a_matrix_at_the_end_may_follow(features):
    z = fitted("jcf-4", features, dim=5, width=12, whiten=0.375)(features)
    assert z.shape == (60, 5)
    assert torch.linalg.matrix_rank(z) == 5


def test_more_pairs_than_there_are_is_an_error_that_says_how_many(features):
    with pytest.raises(ConfigError, match=r"6 channels have 21 pairs, .* asked for 22"):
        fitted("jcf", features, dim=22)


def test_it_needs_to_know_which_locations_are_one_image(features):
    with pytest.raises(DataError, match="fitted from images"):
        pairs(features.flatten(0, 1), 6, 3)
