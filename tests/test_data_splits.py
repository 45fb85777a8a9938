"""Training and evaluation never share a class, and the halves are the ones that the protocols name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import data_layouts as layouts
from secondsight import data
from secondsight.data.imageset import ImageSet
from secondsight.errors import DataError, UnknownName


def _toy(classes: int) -> ImageSet:
    names = [f"c{c:03d}" for c in range(classes) for _ in range(2)]
    return ImageSet.labelled("toy", Path("/toy"), [f"{i}.jpg" for i in range(len(names))], names)


@given(st.integers(4, 40), st.integers(0, 9), st.integers(0, 99))
def test_validation_halves_the_classes_without_overlap_or_loss(classes, fold, seed):
    split = data.splits(_toy(classes), "validation", fold=fold, seed=seed)
    train, held_out = set(split.train.classes), set(split.eval.classes)
    assert not train & held_out
    assert len(train | held_out) == classes
    assert abs(len(train) - len(held_out)) <= 1
    assert len(split.train) + len(split.eval) == 2 * classes


def test_fold_0_holds_out_the_last_half_and_fold_1_swaps():
    first, second = (data.splits(_toy(9), "validation", fold=f) for f in (0, 1))
    assert first.train.classes == ("c000", "c001", "c002", "c003", "c004")
    assert first.eval.classes == ("c005", "c006", "c007", "c008")
    assert (second.train.classes, second.eval.classes) == (first.eval.classes, first.train.classes)


def test_later_folds_come_from_the_seed_in_swapped_pairs():
    def held_out(fold, seed=0):
        return data.splits(_toy(20), "validation", fold=fold, seed=seed).eval.classes

    assert held_out(2) == held_out(2)
    assert set(held_out(2)) | set(held_out(3)) == set(_toy(20).classes)
    assert not set(held_out(2)) & set(held_out(3))
    assert len({held_out(2), held_out(4), held_out(2, seed=1), held_out(0)}) == 4
    assert held_out(0, seed=1) == held_out(0)


def test_cub_validates_on_classes_51_to_100_and_the_other_way_round(shared):
    root = shared / "data" / "CUB_200_2011"
    split = data.splits(root, "validation")
    assert split.train.classes[0][:3] == "001"
    assert split.train.classes[-1][:3] == "050"
    assert [c[:3] for c in split.eval.classes] == [f"{n:03d}" for n in range(51, 101)]
    assert (len(split.train), len(split.eval)) == (2_889, 2_975)
    other = data.splits(root, "validation", fold=1)
    assert (other.train.paths, other.eval.paths) == (split.eval.paths, split.train.paths)
    assert data.open(root, split="validation", fold=1).paths == split.train.paths


def test_the_standard_split_of_half_a_cub_says_what_is_missing_and_what_to_do(shared):
    with pytest.raises(DataError) as error:
        data.splits(shared / "data" / "CUB_200_2011", "standard")
    message = str(error.value)
    for words in (
        "classes 101–200",
        "5,924 images of 100 classes, but 0 images of 0 classes are here",
        "only the train part (5,864 images, classes 1–100) is",
        "secondsight data get cub200",
        "'validation'",
    ):
        assert words in message


def test_half_a_cub_in_the_official_layout_serves_validation_only(tmp_path):
    layouts.cub(tmp_path, layouts.per_class(range(1, 101), 5_864), distinct=False)
    assert len(data.splits(tmp_path, "validation").eval.classes) == 50
    with pytest.raises(DataError, match=r"classes 101–200.*0 images of 0 classes"):
        data.splits(tmp_path)
    with pytest.raises(DataError, match="classes 101–200"):
        data.open(tmp_path, split="test")


def test_the_test_half_alone_cannot_train(tmp_path):
    layouts.cub(tmp_path, layouts.per_class(range(101, 201), 5_924), distinct=False)
    assert len(data.open(tmp_path, split="test")) == 5_924
    with pytest.raises(DataError, match=r"train part of cub200 \(classes 1–100\)"):
        data.splits(tmp_path, "validation")


def test_the_standard_split_of_a_folder_is_its_train_and_test(tmp_path):
    layouts.folder(tmp_path / "train", {"a": 2, "b": 3, "c": 1})
    layouts.folder(tmp_path / "test", {"d": 2, "e": 2})
    split = data.splits(tmp_path)
    assert (split.train.classes, split.eval.classes) == (("a", "b", "c"), ("d", "e"))
    assert data.splits(tmp_path, min_images=2).train.classes == ("a", "b")


def test_a_plain_folder_has_no_standard_split_but_can_be_validated(tmp_path):
    layouts.folder(tmp_path, dict.fromkeys("abcd", 2))
    with pytest.raises(DataError, match=r"'standard' needs a train part.*'validation', which needs neither"):
        data.splits(tmp_path)
    assert data.splits(tmp_path, "validation").eval.classes == ("c", "d")


def test_single_image_classes_are_dropped_before_the_halving(tmp_path):
    layouts.folder(tmp_path, {"a": 2, "b": 2, "c": 2, "d": 2, "x": 1, "y": 1})
    assert data.splits(tmp_path, "validation", min_images=2).eval.classes == ("c", "d")


def test_a_dataset_with_its_own_validation_part_uses_it(tmp_path):
    layouts.folder(tmp_path / "train", {"a": 2, "b": 2})
    layouts.folder(tmp_path / "val", {"c": 2, "d": 2})
    split = data.splits(tmp_path, "validation")
    assert (split.train.classes, split.eval.classes) == (("a", "b"), ("c", "d"))
    assert split.name == "validation (the dataset's own)"
    with pytest.raises(DataError, match="there is no fold 1"):
        data.splits(tmp_path, "validation", fold=1)


def test_the_first_images_of_every_class_are_kept():
    images = ImageSet.labelled("toy", Path("/toy"), [f"{i}.jpg" for i in range(6)], ["a", "b", "a", "a", "b", "b"])
    assert images.with_max_images(2).paths == ("0.jpg", "1.jpg", "2.jpg", "4.jpg")
    assert images.with_max_images(None) is images


def test_questions_that_make_no_sense_are_refused():
    with pytest.raises(UnknownName, match="unknown split 'standart'; did you mean 'standard'"):
        data.splits(_toy(4), "standart")
    with pytest.raises(DataError, match="fold must be 0 or more, got -1"):
        data.splits(_toy(4), "validation", fold=-1)
    with pytest.raises(DataError, match=r"3 training classes with a share of 0\.5 held out leave 1"):
        data.splits(_toy(3), "validation")
