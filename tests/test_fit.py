"""A model fitted to pictures without labels: how large it sees them."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from index_pictures import picture
from secondsight.cli import train
from secondsight.cli.main import app
from secondsight.data import ImageSet
from secondsight.data.loading.sizes import shorter_side, usual_side
from secondsight.fit import LARGER, fit_to, framing

LITE = "efficientnet-lite0"


def pictures(folder, *sizes: tuple[int, int]) -> ImageSet:
    for i, size in enumerate(sizes):
        picture(folder / f"{i:02}.png", i, size=size)
    return ImageSet("some", folder, tuple(sorted(file.name for file in folder.iterdir())))


def test_photographs_are_seen_larger_and_of_small_pictures_nothing_is_cut_off(tmp_path):
    assert framing(pictures(tmp_path / "photographs", *[(340, 256)] * 5), LITE) == (
        LARGER[LITE],
        "resize-crop",
        "288 pixels a side, for the shorter side of these pictures has 256",
    )
    drawings = pictures(tmp_path / "drawings", *[(72, 300)] * 5)
    small = (None, "resize", "all of each picture, for the shorter side of these has 72 pixels")
    assert framing(drawings, LITE) == framing(drawings, "vgg16") == small
    assert fit_to(drawings, weights="random").transform.key.startswith("resize-224")


def test_most_pictures_decide_and_broken_ones_do_not(tmp_path):
    images = pictures(tmp_path, *[(300, 400)] * 3, *[(40, 40)] * 2)
    for i in range(3):
        (tmp_path / f"{i}-broken.jpg").write_bytes(b"\xff\xd8\xff nothing")
    images = ImageSet("all", tmp_path, (*images.paths, *(f"{i}-broken.jpg" for i in range(3)), "missing.png"))
    assert shorter_side(tmp_path / "0-broken.jpg") is None
    assert usual_side(images) == 300
    assert framing(images, LITE).size == LARGER[LITE]
    assert framing(ImageSet("none", tmp_path, ("missing.png",)), LITE) == (None, "resize-crop", "")


def test_a_network_of_which_nothing_was_measured_keeps_its_size(tmp_path):
    assert framing(pictures(tmp_path, (600, 600)), "vgg16") == (None, "resize-crop", "")


@pytest.mark.parametrize("size", [None, 64])
def test_the_model_keeps_the_size_that_was_chosen_or_given(tmp_path, size):
    model = fit_to(pictures(tmp_path, *[(256, 256)] * 9), weights="random", size=size)
    assert model.size == (size or LARGER[LITE])


def test_training_shows_all_of_small_pictures(tmp_path, capsys):
    for label in "abcd":
        pictures(tmp_path / label, *[(72, 72)] * 2)
    recipe, _ = train._recipe("photos", str(tmp_path), None, None, None, [])
    assert (recipe.model.size, recipe.data.transform) == (None, "resize")
    assert "all of each picture, for the shorter side of these has 72 pixels" in capsys.readouterr().err


@pytest.mark.parametrize(("override", "size"), [([], 288), (["model.size=160"], 160)])
def test_training_sees_large_pictures_larger_unless_told_otherwise(tmp_path, capsys, override, size):
    for label in "abcd":
        pictures(tmp_path / label, *[(300, 256)] * 2)
    recipe, _ = train._recipe("photos", str(tmp_path), None, None, None, override)
    assert recipe.model.size == size
    assert ("288 pixels a side" in capsys.readouterr().err) == (not override)
    with_own, _ = train._recipe("frozen-plain", str(tmp_path), None, None, None, [])
    assert with_own.model.size is None  # it squeezes pictures, with which nothing larger was tried


def test_index_says_which_size_it_took_and_why(tmp_path):
    pictures(tmp_path / "photos", *[(256, 260)] * 9)
    words = ["index", str(tmp_path / "photos"), "-o", str(tmp_path / "p.index"), "--weights", "random"]
    said = CliRunner().invoke(app, words, env={"COLUMNS": "400"}).output
    assert "288 pixels a side, for the shorter side of these pictures has 256" in said


def test_index_says_how_many_pictures_it_was_fitted_to(tmp_path):
    pictures(tmp_path / "photos", *[(40, 40)] * 11)
    (tmp_path / "photos/broken.jpg").write_bytes(b"no picture")
    words = ["index", str(tmp_path / "photos"), "-o", str(tmp_path / "p.index"), "--weights", "random"]
    said = CliRunner().invoke(app, [*words, "--fit-images", "8"], env={"COLUMNS": "400"}).output
    assert "fitted to 11 of these pictures" in said, "all of them, as one in one is the nearest to 8 of 12"
