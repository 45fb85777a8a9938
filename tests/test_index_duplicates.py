"""Duplicates on real photographs: every way of being the same is found, and different pictures are not."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from secondsight import Embedder, index
from secondsight.index.likeness import AGREE, Whole, likeness, read, template


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """Eight different pictures cut out of two photographs, and copies of the first made in five ways."""
    place = tmp_path_factory.mktemp("photos")
    for name, photo in zip(("china", "flower"), load_sample_images().images, strict=True):
        for row in range(2):
            for column in range(2):
                part = photo[row * 210 : row * 210 + 210, column * 320 : column * 320 + 300]
                Image.fromarray(part).save(place / f"{name}-{row}{column}.png")
    first = Image.open(place / "china-00.png")
    shutil.copy(place / "china-00.png", place / "copy.png")
    first.resize((150, 105)).save(place / "resized.png")
    first.save(place / "reencoded.jpg", quality=30)
    first.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(place / "mirrored.png")
    first.crop((20, 15, 280, 200)).save(place / "cropped.jpg", quality=85)
    return place


@pytest.fixture(scope="module")
def made(photos, tmp_path_factory):
    model = Embedder.build(backbone="efficientnet-lite0", pooling="average", dim=64, size=96).eval()
    return index.create(tmp_path_factory.mktemp("d") / "d.index", model, photos)


def names(made, group) -> set[str]:
    return {made.item(i).name for i in group.ids}


def test_copies_and_versions_of_a_picture_are_found_and_nothing_else(made):
    groups = made.duplicates()
    assert [(g.tier, len(g.ids)) for g in groups] == [("bytes", 2), ("picture", 5)]
    assert names(made, groups[0]) == {"china-00.png", "copy.png"}
    assert names(made, groups[1]) == {"china-00.png", "resized.png", "reencoded.jpg", "mirrored.png", "cropped.jpg"}


def test_the_same_subject_needs_no_agreement_of_pixels(made):
    (group, *_) = made.duplicates(["subject"], subject=0.5)
    assert names(made, group) >= {"china-00.png", "cropped.jpg"}
    assert made.duplicates(["subject"], subject=1.01) == []


def test_what_was_dismissed_is_not_said_again(photos, made, tmp_path):
    shutil.copytree(made.path, tmp_path / "x.index")
    mine = index.open(tmp_path / "x.index")
    (group,) = mine.duplicates(["bytes"])
    mine.dismiss(group)
    mine.dismiss([mine.find(photos / name) for name in ("china-00.png", "mirrored.png", "resized.png")])
    again = index.open(tmp_path / "x.index")
    assert again.duplicates(["bytes"]) == []
    known = {tuple(sorted(pair)) for pair in again.store.catalogue._connection().execute("SELECT a, b FROM dismissals")}
    assert len(known) == 4
    again.remove([again.find(photos / "mirrored.png")])
    left = again.store.catalogue._connection().execute("SELECT COUNT(*) FROM dismissals").fetchone()[0]
    assert left == 2, "what is gone needs no dismissal"


def test_correlation_is_the_textbook_s():
    rng = np.random.default_rng(0)
    whole, part = rng.random((12, 15)), rng.random((5, 4))
    (found,) = Whole(whole).correlations([template(part, whole.shape)])
    assert found.shape == (2, 8, 12)
    for way, picture in enumerate((whole, whole[:, ::-1])):
        for y in range(8):
            for x in range(12):
                window = picture[y : y + 5, x : x + 4]
                right = np.corrcoef(window.ravel(), part.ravel())[0, 1]
                assert found[way, y, x] == pytest.approx(right, abs=1e-6)


def test_different_pictures_do_not_agree(photos):
    pictures = [
        read(photos / f"{name}-{part}.png") for name in ("china", "flower") for part in ("00", "01", "10", "11")
    ]
    worst = max(likeness(a, b) for i, a in enumerate(pictures) for b in pictures[i + 1 :])
    assert worst < AGREE
