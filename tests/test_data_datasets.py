"""Every layout opens as the same kind of set: 0-based labels, sorted, checked; and bad input says what is wrong."""

from __future__ import annotations

import os
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import data_layouts as layouts
from secondsight import data
from secondsight.data.imageset import ImageSet
from secondsight.data.readers.paths import list_folder
from secondsight.errors import DataError, UnknownName

# ImageSet


def _set(labels: list[int], *, classes: int | None = None) -> ImageSet:
    names = tuple(f"c{i}" for i in range(classes if classes is not None else max(labels) + 1))
    paths = tuple(f"{names[label]}/{i}.jpg" for i, label in enumerate(labels))
    return ImageSet("toy", Path("/toy"), paths, np.array(labels), names)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.data())
def test_a_subset_keeps_every_image_with_its_class(labels, draw):
    full = ImageSet.labelled("toy", Path("/toy"), [f"{i}" for i in range(len(labels))], [f"c{c}" for c in labels])
    chosen = draw.draw(st.lists(st.integers(0, len(labels) - 1), max_size=30))
    part = full.subset(chosen)
    assert [(p, part.classes[c]) for p, c in zip(part.paths, part.labels, strict=True)] == [
        (str(i), f"c{labels[i]}") for i in chosen
    ]
    assert sorted(set(part.labels.tolist())) == list(range(len(part.classes)))
    assert list(part.classes) == sorted(part.classes)


def test_a_mask_and_its_indices_choose_the_same_images():
    images = _set([0, 1, 2, 1])
    mask = np.array([True, False, True, False])
    assert images.subset(mask).paths == images.subset([0, 2]).paths == ("c0/0.jpg", "c2/2.jpg")


def test_classes_can_be_chosen_by_name_and_by_number():
    images = _set([0, 1, 2, 1])
    assert images.select_classes(["c2", "c1"]).paths == images.select_classes([1, 2]).paths
    assert images.select_classes(["c2", "c1"]).classes == ("c1", "c2")
    with pytest.raises(DataError, match=r"no class 'c11' among its 3; did you mean 'c1'"):
        images.select_classes(["c11"])
    with pytest.raises(DataError, match="no class 3 among its 3"):
        images.select_classes([3])


def test_small_classes_can_be_dropped_and_the_error_says_how():
    images = _set([0, 0, 1, 2, 2])
    with pytest.raises(DataError, match="1 class has one image; retrieval needs two — drop them with --min-images 2"):
        images.require_pairs()
    kept = images.with_min_images(2)
    assert kept.classes == ("c0", "c2")
    assert kept.labels.tolist() == [0, 0, 1, 1]
    assert kept.require_pairs() is kept
    with pytest.raises(DataError, match="none of its 3 classes has 3 images"):
        images.with_min_images(3)


def test_an_empty_set_has_no_classes_to_drop():
    empty = _set([0, 1]).part("val")
    assert (len(empty), empty.classes) == (0, ())
    assert empty.with_min_images(2) is empty


def test_one_class_is_not_enough_for_retrieval():
    with pytest.raises(DataError, match=r"1 class \('c0'\); retrieval needs two or more"):
        _set([0, 0]).require_pairs()


def test_labels_that_skip_a_number_are_refused():
    with pytest.raises(DataError, match="every number from 0 to 2"):
        _set([0, 2, 2], classes=3)
    with pytest.raises(DataError, match="every number from 0 to 0"):
        _set([-1, 0], classes=1)


def test_columns_of_the_wrong_length_are_refused():
    with pytest.raises(DataError, match=r"labels has shape \(2,\), but there are 3 images"):
        ImageSet("toy", Path("/toy"), ("a", "b", "c"), np.array([0, 1]), ("x", "y"))


def test_the_fingerprint_sees_paths_labels_and_order_but_not_where_the_files_are():
    images = _set([0, 1, 1])
    moved = ImageSet("other", Path("/elsewhere"), images.paths, images.labels, ("x", "y"))
    assert images.fingerprint() == moved.fingerprint()
    others = [
        images.subset([1, 0, 2]),
        images.subset([0, 1]),
        ImageSet("toy", Path("/toy"), images.paths),
        ImageSet("toy", Path("/toy"), images.paths, np.array([1, 0, 0]), images.classes),
    ]
    assert len({images.fingerprint(), *(o.fingerprint() for o in others)}) == 5


def test_a_set_is_frozen_and_survives_a_trip_to_a_worker():
    images = _set([0, 1, 1])
    with pytest.raises(ValueError, match="read-only"):
        images.labels[0] = 1
    again = pickle.loads(pickle.dumps(images))
    assert again.paths == images.paths
    assert again.fingerprint() == images.fingerprint()


# Folders


def test_class_folders_become_labels_in_sorted_order(tmp_path):
    images = data.open(layouts.folder(tmp_path / "photos", {"zebra": 2, "ape": 3, "Éland": 1}))
    assert images.name == "photos"
    assert images.classes == ("ape", "zebra", "Éland")
    assert images.labels.dtype == np.int64
    assert images.paths == ("ape/0.png", "ape/1.png", "ape/2.png", "zebra/0.png", "zebra/1.png", "Éland/0.png")
    assert images.path(3) == tmp_path / "photos" / "zebra/0.png"
    assert images.counts.tolist() == [3, 2, 1]


def test_the_order_does_not_depend_on_the_filesystem(tmp_path):
    names = [f"{c}/{i:02d}.png" for c in "abc" for i in range(12)]
    orders = []
    for seed in range(2):
        root = tmp_path / str(seed)
        for name in random.Random(seed).sample(names, len(names)):
            layouts.picture(root / name)
        orders.append(data.open(root).paths)
    assert orders[0] == orders[1] == tuple(names)


def test_a_flat_folder_has_no_labels(tmp_path):
    layouts.picture(tmp_path / "b.jpg")
    layouts.picture(tmp_path / "a.PNG")
    images = data.open(tmp_path)
    assert images.labels is None
    assert images.paths == ("a.PNG", "b.jpg")
    with pytest.raises(DataError, match="no labels; put each class in a folder of its own"):
        images.require_labels()
    with pytest.raises(DataError, match="no labels"):
        data.splits(images, "validation")


def test_what_the_system_leaves_behind_is_no_image(tmp_path):
    root = layouts.folder(tmp_path, {"a": 2, "b": 2})
    for junk in (
        ".DS_Store",
        "Thumbs.db",
        "a/._0.png",
        "a/.hidden.png",
        "__MACOSX/a/0.png",
        ".git/x.png",
        "a/notes.txt",
    ):
        (root / junk).parent.mkdir(parents=True, exist_ok=True)
        (root / junk).write_bytes(b"junk")
    assert data.open(root).paths == ("a/0.png", "a/1.png", "b/0.png", "b/1.png")


def test_folders_inside_a_class_belong_to_the_class(tmp_path):
    layouts.folder(tmp_path, {"a": 1, "b": 1})
    layouts.picture(tmp_path / "a" / "morning" / "first" / "0.png")
    images = data.open(tmp_path)
    assert images.classes == ("a", "b")
    assert images.paths == ("a/0.png", "a/morning/first/0.png", "b/0.png")


def test_train_and_test_folders_are_parts_not_classes(tmp_path):
    layouts.folder(tmp_path / "train", {"a": 2, "b": 2})
    layouts.folder(tmp_path / "test", {"c": 3})
    images = data.open(tmp_path)
    assert images.classes == ("a", "b", "c")
    assert data.open(tmp_path, split="test").paths == ("test/c/0.png", "test/c/1.png", "test/c/2.png")
    with pytest.raises(UnknownName, match=r"'tset'; did you mean 'test'\? Valid: all, test, train, validation"):
        data.open(tmp_path, split="tset")


def test_a_folder_that_only_wraps_the_class_folders_is_stepped_into(tmp_path):
    layouts.folder(tmp_path / "photos" / "photos", {"a": 1, "b": 1})
    assert data.open(tmp_path).classes == ("a", "b")
    one = layouts.folder(tmp_path / "one", {"a": 2})
    assert data.open(one).classes == ("a",)


def test_images_beside_class_folders_are_an_error_that_names_them(tmp_path):
    layouts.folder(tmp_path, {"a": 1, "b": 1})
    layouts.picture(tmp_path / "loose.jpg")
    with pytest.raises(DataError, match=r"1 of 3 images are in no class folder \(the first: loose.jpg\)"):
        data.open(tmp_path)


def test_an_empty_folder_and_a_missing_one_are_errors_with_a_way_out(tmp_path):
    (tmp_path / "photos").mkdir()
    with pytest.raises(DataError, match="no images here"):
        data.open(tmp_path / "photos")
    with pytest.raises(DataError, match=r"photoz: no such file or folder; did you mean '.*photos'"):
        data.open(tmp_path / "photoz")
    with pytest.raises(DataError, match=r"photos/x/y: no such file or folder; nothing like it is in '.*photos'"):
        data.open(tmp_path / "photos" / "x" / "y")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match="neither a folder nor a table"):
        data.open(tmp_path / "notes.txt")
    with pytest.raises(DataError, match="name of the dataset is empty"):
        data.open(" ")


def test_links_are_followed_and_circles_end(tmp_path):
    layouts.folder(tmp_path / "store", {"a": 2})
    root = layouts.folder(tmp_path / "photos", {"b": 1})
    (root / "a").symlink_to(tmp_path / "store" / "a")
    (root / "b" / "up").symlink_to(root)
    (root / "b" / "self.png").symlink_to("self.png")
    (root / "b" / "nowhere.png").symlink_to("gone.png")
    assert data.open(root).paths == ("a/0.png", "a/1.png", "b/0.png")
    assert list_folder(root).broken == ["b/nowhere.png", "b/self.png", "b/up"]


def test_long_and_foreign_names_are_only_names(tmp_path):
    long = "x" * 200
    layouts.folder(tmp_path, {long: 1, "日本語 🐦 [bold]": 1})
    raw = tmp_path / os.fsdecode(b"caf\xe9")  # Latin-1 bytes that are no UTF-8
    layouts.picture(raw / "0.png")
    images = data.open(tmp_path)
    assert set(images.classes) == {long, "日本語 🐦 [bold]", raw.name}
    assert all(images.path(i).is_file() for i in range(3))
    assert len(images.fingerprint()) == 32


# Tables


def _table(tmp_path: Path, text: str, *, name: str = "list.csv", encoding: str = "utf-8") -> Path:
    for i in range(4):
        layouts.picture(tmp_path / "img" / f"{i}.png", i)
    (tmp_path / name).write_bytes(text.encode(encoding))
    return tmp_path / name


def test_a_table_gives_paths_labels_splits_and_groups(tmp_path):
    text = (
        "path,label,split,group\nimg/0.png,10,train,x\nimg/1.png,9,training,x\nimg/2.png,9,test,\nimg/3.png,10,TEST,\n"
    )
    images = data.open(_table(tmp_path, text))
    assert images.name == "list"
    assert images.classes == ("9", "10")  # by value
    assert images.labels.tolist() == [1, 0, 0, 1]
    assert images.parts.tolist() == ["train", "train", "test", "test"]
    assert images.groups[0] == images.groups[1]
    assert len(set(images.groups.tolist())) == 3  # an empty cell is a group of its own


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("path,label\nimg/0.png,a\nimg/1.png,b\n", "utf-8-sig"),
        ("Path ; LABEL\r\nimg/0.png;a\r\n\r\nimg/1.png;b\r\n", "utf-8"),
        ("label\tpath\na\timg/0.png\nb\timg/1.png", "utf-8"),
        ('"path","label"\n"img/0.png","a"\n"img/1.png"," b "\n', "utf-8"),
        ("path,label\nimg\\0.png,a\nimg\\1.png,b\n", "utf-8"),
    ],
    ids=["byte order mark", "semicolons and blank lines", "tabs", "quotes", "backslashes"],
)
def test_tables_are_read_however_a_spreadsheet_writes_them(tmp_path, text, encoding):
    images = data.open(_table(tmp_path, text, encoding=encoding))
    assert images.paths == ("img/0.png", "img/1.png")
    assert images.classes == ("a", "b")


def test_a_parquet_table_reads_as_the_same_csv_does(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    text = "path,label,split\nimg/0.png,7,train\nimg/1.png,12,test\nimg/2.png,7,test\n"
    csv = data.open(_table(tmp_path, text))
    table = arrow.table(
        {
            "path": ["img/0.png", "img/1.png", "img/2.png"],
            "label": [7, 12, 7],
            "split": arrow.array(["train", "test", "test"]).dictionary_encode(),
        }
    )
    parquet.write_table(table, tmp_path / "list.parquet")
    images = data.open(tmp_path / "list.parquet")
    assert images.fingerprint() == csv.fingerprint()
    assert images.parts.tolist() == csv.parts.tolist()
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(DataError, match=r"bad.parquet: not a Parquet table"):
        data.open(tmp_path / "bad.parquet")


def test_a_null_label_in_parquet_is_an_error(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    layouts.picture(tmp_path / "0.png")
    parquet.write_table(
        arrow.table({"path": ["0.png"] * 3, "label": [1.0, None, float("nan")]}), tmp_path / "t.parquet"
    )
    with pytest.raises(DataError, match=r"2 of 3 rows have no label: column 'label' is empty or NaN in data row 2, 3"):
        data.open(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,lable\nimg/0.png,a\n", r"no column 'label'; did you mean 'lable'\? The columns are 'path', 'lable'"),
        (
            "file,label\nimg/0.png,a\n",
            r"no column 'path'.* The columns are 'file', 'label'.* pass columns=\{'path': …\}",
        ),
        (
            "path,label\nimg/0.png,\nimg/1.png,nan\nimg/2.png,c\n",
            "2 of 3 rows have no label: .* in data row 1, 2; fill",
        ),
        ("path,label\n,a\n", "1 of 1 rows have no path"),
        ("path,label,split\nimg/0.png,a,\n", "1 of 1 rows have no split"),
        ("path,label\nimg/0.png,a\nimg/9.png,b\n", "1 of 2 listed images are missing: img/9.png"),
        (
            "path,label\nimg/0.png,a,b\n",
            "list.csv:2: 3 cells under 2 column names; put quotes around cells that contain ','",
        ),
        ('path,label\n"img/0.png,a\n', "not a CSV table"),
        ("path,label\n", "no rows below its header"),
        ("", "the table is empty"),
    ],
    ids=["typo", "no path", "nan", "empty path", "empty split", "gone", "ragged", "quote", "header only", "empty"],
)
def test_a_bad_table_says_where_and_how_to_mend_it(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        data.open(_table(tmp_path, text))


def test_a_table_that_is_not_utf8_names_the_line(tmp_path):
    file = _table(tmp_path, "path,label\nimg/0.png,a\nimg/1.png,é\n", encoding="latin-1")
    with pytest.raises(DataError, match=r"list.csv:3: not UTF-8; save the table as 'CSV UTF-8'"):
        data.open(file)


def test_columns_can_have_other_names_and_paths_another_root(tmp_path):
    file = _table(tmp_path, "file,species\n0.png,a\n1.png,b\n")
    images = data.open(file, columns={"path": "file", "label": "species"}, root=tmp_path / "img")
    assert images.classes == ("a", "b")
    assert images.path(1) == tmp_path / "img" / "1.png"
    with pytest.raises(DataError, match=r"no column 'specie'; did you mean 'species'"):
        data.open(file, columns={"path": "file", "label": "specie"}, root=tmp_path / "img")
    with pytest.raises(DataError, match="columns and root are for tables"):
        data.open(tmp_path, columns={"path": "file"})


def test_a_table_without_labels_is_a_set_without_labels(tmp_path):
    images = data.open(_table(tmp_path, "path,width\nimg/0.png,9\nimg/1.png,9\n"))
    assert images.labels is None
    assert len(images) == 2


# CUB


def test_the_full_cub_layout_opens_with_its_zero_shot_halves(tmp_path):
    layouts.cub(tmp_path / "CUB_200_2011", layouts.CUB_FULL, distinct=False)
    images = data.open(tmp_path)  # the folder around it will do
    assert (images.name, len(images), len(images.classes)) == ("cub200", 11_788, 200)
    train, test = data.open(f"cub200:{tmp_path}", split="train"), data.open(tmp_path, split="test")
    assert (len(train), len(train.classes), len(test), len(test.classes)) == (5_864, 100, 5_924, 100)
    assert test.classes[0] == "101.Bird_101"
    assert test.labels.min() == 0
    assert not set(train.classes) & set(test.classes)


def test_the_real_training_half_of_cub_opens(shared):
    images = data.open(shared / "data" / "CUB_200_2011")
    assert (images.name, len(images), len(images.classes)) == ("cub200", 5_864, 100)
    assert images.classes[0] == "001.Black_footed_Albatross"
    assert images.paths[0] == "images/001.Black_footed_Albatross/Black_Footed_Albatross_0046_18.jpg"
    assert (images.counts.min(), images.counts.max()) == (41, 60)


def test_cub_without_its_lists_is_known_by_the_numbers_of_its_folders(tmp_path):
    full = layouts.cub(tmp_path / "a", {1: 2, 2: 1, 101: 2})
    listed = data.open(f"cub200:{full}", check=False)
    for file in full.glob("*.txt"):
        file.unlink()
    found = data.open(f"cub200:{full}", check=False)
    assert sorted(f"images/{p}" for p in found.paths) == sorted(listed.paths)
    assert found.classes == listed.classes
    assert found.part("test").classes == ("101.Bird_101",)


def test_an_incomplete_part_of_cub_is_an_error_on_opening(tmp_path):
    root = layouts.cub(tmp_path, layouts.per_class(range(1, 101), 5_863), distinct=False)
    with pytest.raises(DataError, match=r"classes 1–100\) has 5,864 images of 100 classes, but 5,863 images of 100"):
        data.open(root)
    assert len(data.open(root, check=False)) == 5_863


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("images.txt", "7", r"images.txt:6: '7' is not a number and a value"),
        ("images.txt", "1 x.jpg", r"images.txt:6: '1 x.jpg' is a number that was there before"),
        ("images.txt", "9 x.jpg", r"image 9 is in only one of images.txt \(6 lines\) and image_class_labels.txt \(5\)"),
        ("image_class_labels.txt", "6 bird", "image 6 is in only one|'bird' is not a class number"),
    ],
)
def test_damaged_cub_lists_name_the_line(tmp_path, file, line, message):
    root = layouts.cub(tmp_path, {1: 3, 2: 2})
    with (root / file).open("a") as lines:
        lines.write(line + "\n")
    with pytest.raises(DataError, match=message):
        data.open(root, check=False)


def test_a_folder_that_is_not_the_dataset_it_is_called_says_so(tmp_path):
    layouts.folder(tmp_path, {"a": 1})
    with pytest.raises(DataError, match="not CUB-200-2011"):
        data.open(f"cub200:{tmp_path}")
    with pytest.raises(DataError, match="not Stanford Online Products"):
        data.open(f"sop:{tmp_path}")
    with pytest.raises(DataError, match="not a known layout of Cars-196"):
        data.open(f"cars196:{tmp_path}")
    with pytest.raises(UnknownName, match="unknown dataset 'cub'; did you mean 'cub200'"):
        data.open(f"cub:{tmp_path}")


def test_a_known_name_alone_is_looked_for_where_get_puts_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SECONDSIGHT_DATA", str(tmp_path))
    with pytest.raises(DataError, match="get it with: secondsight data get cub200"):
        data.open("cub200")
    layouts.cub(tmp_path / "cub200", {1: 1, 101: 1})
    assert len(data.open("cub200", check=False)) == 2


# Cars


def test_the_official_cars_layout_opens_with_its_zero_shot_halves(tmp_path):
    root = layouts.cars_single(tmp_path / "cars196", layouts.CARS_FULL)
    images = data.open(tmp_path)
    assert (images.name, images.root, len(images), len(images.classes)) == ("cars196", root, 16_185, 196)
    train, test = images.part("train"), images.part("test")
    assert (len(train), len(train.classes), len(test), len(test.classes)) == (8_054, 98, 8_131, 98)
    assert train.classes[:2] == ("Acura 001", "Acura 000")  # the official order, which is not alphabetical
    assert test.classes[-1] == "smart C/V 2012"


@pytest.mark.parametrize("nested", [False, True])
def test_the_classification_halves_of_cars_are_put_together(tmp_path, nested):
    root = layouts.cars_halves(tmp_path, [1, 150, 2], [2, 99], nested=nested)
    images = data.open(root, check=False)
    assert images.name == "cars196"
    assert images.part("train").classes == ("Acura 001", "Acura 000")
    assert images.part("test").classes == ("Ferrari 000", "Ferrari 051")
    assert all(images.path(i).is_file() for i in range(len(images)))
    (root / "cars_test_annos_withlabels.mat").unlink()
    with pytest.raises(DataError, match=r"cars_test_annos_withlabels.mat is missing.*has no labels"):
        data.open(root, check=False)


@pytest.mark.parametrize("official", [True, False])
def test_cars_in_class_folders_have_the_same_halves(tmp_path, official):
    names = [name.replace("/", "-") for name in layouts.car_names()]
    base = tmp_path / "car_data" / "car_data"
    for part in ("train", "test"):
        for i, name in enumerate(names):
            layouts.picture(base / part / name / "0.jpg", i)
    if official:
        (tmp_path / "names.csv").write_text("\n".join(layouts.car_names()) + "\n")
    images = data.open(f"cars196:{tmp_path}", check=False)
    assert len(images) == 392
    assert set(images.part("train").classes) == set(names[:98])
    assert images.classes == tuple(names if official else sorted(names))


def test_a_damaged_matlab_file_is_named(tmp_path):
    root = layouts.cars_single(tmp_path, {1: 1})
    (root / "cars_annos.mat").write_bytes(b"not matlab" * 50)
    with pytest.raises(DataError, match=r"cars_annos.mat: not a MATLAB file"):
        data.open(root)


# SOP


def test_the_full_sop_layout_opens_with_its_official_halves(tmp_path):
    root = layouts.sop(tmp_path / "Stanford_Online_Products", *layouts.SOP_FULL)
    images = data.open(tmp_path)
    assert (images.name, images.root, len(images), len(images.classes)) == ("sop", root, 120_053, 22_634)
    train, test = images.part("train"), images.part("test")
    assert (len(train), len(train.classes), len(test), len(test.classes)) == (59_551, 11_318, 60_502, 11_316)
    assert images.classes[:2] == ("chair-1", "bicycle-2")
    assert train.labels.max() == 11_317


def test_sop_with_one_list_has_one_part(tmp_path):
    root = layouts.sop(tmp_path, {1: 2, 2: 2}, {3: 2})
    (root / "Ebay_train.txt").write_text("image_id class_id super_class_id path\n1 x 1 a.jpg\n")
    with pytest.raises(DataError, match=r"Ebay_train.txt:2: '1 x 1 a.jpg' is not 'image_id class_id"):
        data.open(root, check=False)
    (root / "Ebay_train.txt").unlink()
    assert data.open(root, check=False).parts.tolist() == ["test", "test"]


def test_listed_files_that_are_gone_are_named(tmp_path):
    root = layouts.cub(tmp_path, layouts.per_class(range(1, 101), 5_864), distinct=False)
    (root / "images" / "007.Bird_7" / "Bird_007_0.jpg").unlink()
    with pytest.raises(DataError, match=r"59 of 5,864 listed images are missing: images/007.Bird_7/Bird_007_0.jpg"):
        data.open(root)
