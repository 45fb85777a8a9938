"""Before it trains, ``choose_pooling`` finds out which pooling suits the images."""

from __future__ import annotations

import pytest
import torch

from secondsight.errors import DataError, UnknownName
from secondsight.evaluate import retrieval
from secondsight.model import Embedder
from secondsight.train.choice import choose_pooling, class_halves, hits, learned_metric

CLASSES, IMAGES, PLACES, CHANNELS = 24, 12, 16, 32


class Bare:
    """A pooling without a network, as ``choose_pooling`` needs it."""

    def __init__(self, name: str, dim: int = 24, **options):
        from secondsight import pooling

        torch.manual_seed(0)
        self.pooling = pooling.build(name, CHANNELS, dim, **options).eval()

    def fit(self, features, *, grid=None, seed=0):
        self.pooling.fit(features, grid=grid, seed=seed)

    def pool(self, features, mask=None, *, grid=None):
        return self.pooling(features, mask, grid=grid)


HEADS = {
    "jcf": lambda: Bare("jcf", start="pairs", width=200, whiten=0.25),
    "average": lambda: Bare("average", whiten=0.25),
}


def labels() -> torch.Tensor:
    return torch.arange(CLASSES).repeat_interleave(IMAGES)


def paired(noise: float = 0.3) -> torch.Tensor:
    """Every image has the same sixteen parts; a class is which of them come together. Averages are all alike."""
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, PLACES, CHANNELS, generator=generator)
    images = []
    for _ in range(CLASSES):
        order = torch.randperm(PLACES, generator=generator)
        clean = first + second[order]
        images += [clean + noise * torch.randn(PLACES, CHANNELS, generator=generator) for _ in range(IMAGES)]
    return torch.stack(images)


def shifted(noise: float = 3.0) -> torch.Tensor:
    """A class is a direction that all places of an image have in common; products drown it in noise."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(CLASSES, 1, CHANNELS, generator=generator).repeat_interleave(IMAGES, 0)
    return centres + noise * torch.randn(CLASSES * IMAGES, PLACES, CHANNELS, generator=generator)


def test_where_classes_are_combinations_second_order_is_taken_from_averaging():
    choice = choose_pooling(paired(), labels(), HEADS, preferred="average")
    assert choice.name == "jcf"
    assert choice.recalls["jcf"] > choice.recalls["average"] + 0.3
    assert choice.ahead > 2
    assert str(choice).startswith("jcf is taken: ")


def test_where_classes_are_directions_averaging_is_taken():
    choice = choose_pooling(shifted(), labels(), HEADS, preferred="jcf")
    assert choice.name == "average"
    assert choice.recalls["average"] > choice.recalls["jcf"]


def test_where_there_is_nothing_to_see_the_preferred_one_stays():
    noise = torch.randn(CLASSES * IMAGES, PLACES, CHANNELS, generator=torch.Generator().manual_seed(0))
    for preferred in HEADS:
        choice = choose_pooling(noise, labels(), HEADS, preferred=preferred)
        assert choice.name == preferred
        assert choice.ahead == 0
        assert choice.images == CLASSES * IMAGES
        assert f"{preferred} is kept" in str(choice)


def test_a_whole_embedder_is_a_candidate():
    def build(pooling: str, **options):
        return Embedder.build(
            backbone="efficientnet-lite0", weights="random", pooling=pooling, dim=8, reduce=16, **options
        ).eval()

    features = torch.rand(48, 9, 1280, generator=torch.Generator().manual_seed(0))
    heads = {"average": lambda: build("average"), "jcf-4": lambda: build("jcf-4")}
    choice = choose_pooling(features, torch.arange(8).repeat(6), heads, preferred="jcf-4")
    assert choice.recalls.keys() == heads.keys()


def test_halves_share_no_class_and_leave_nothing_out():
    given = labels()[torch.randperm(CLASSES * IMAGES, generator=torch.Generator().manual_seed(1))]
    first, second = class_halves(given, seed=4)
    assert not set(given[first].tolist()) & set(given[second].tolist())
    assert sorted(torch.cat([first, second]).tolist()) == list(range(len(given)))


def test_the_metric_whitens_what_differs_within_classes():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(400, 6, generator=generator) @ torch.randn(6, 6, generator=generator)
    y = torch.arange(20).repeat(20)
    z = z + 5 * torch.randn(20, 6, generator=generator)[y]
    z = z @ learned_metric(z, y, shrink=1e-9)
    within = torch.cat([z[y == k] - z[y == k].mean(0) for k in range(20)])
    torch.testing.assert_close(within.T @ within / len(z), torch.eye(6), atol=1e-3, rtol=0)


def test_hits_agree_with_the_evaluation(monkeypatch):
    monkeypatch.setattr("secondsight.train.choice.BLOCK", 7)
    z, y = torch.randn(50, 4, generator=torch.Generator().manual_seed(2)), torch.arange(50) % 5
    report = retrieval(torch.nn.functional.normalize(z, dim=1), y.numpy(), ks=(1,), bootstrap=0)
    assert hits(z, y).float().mean().item() == pytest.approx(report.figures["recall@1"])


def test_three_classes_are_too_few():
    with pytest.raises(DataError, match="3 classes are too few"):
        choose_pooling(dict.fromkeys(HEADS, torch.rand(9, 4, CHANNELS)), torch.arange(9) % 3, HEADS, preferred="jcf")


def test_the_preferred_one_must_be_among_them():
    with pytest.raises(UnknownName, match="gem"):
        choose_pooling(paired(), labels(), HEADS, preferred="gem")
