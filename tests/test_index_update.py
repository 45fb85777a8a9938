"""An index follows the disk: new, changed, moved, touched, gone, broken and strangely named files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from index_pictures import folder, picture, small_model
from secondsight import index
from secondsight.data import open as open_images
from secondsight.errors import DataError


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture
def photos(tmp_path) -> Path:
    return folder(tmp_path / "photos")


@pytest.fixture
def made(tmp_path, model, photos):
    return index.create(tmp_path / "p.index", model, photos)


def names(made) -> dict[str, int]:
    return {item.name: item.id for item in made.items()}


def test_update_does_what_happened_on_disk_and_nothing_else(made, photos):
    before = names(made)
    (photos / "a/0.png").rename(photos / "b/moved.png")
    (photos / "a/1.png").unlink()
    picture(photos / "a/2.png", 777)
    picture(photos / "c/new.png", 778)
    os.utime(photos / "a/3.png", (1, 1))
    grown = made.update()
    assert (grown.added, grown.changed, grown.moved, grown.removed, grown.unchanged) == (1, 1, 1, 1, 7)
    after = names(made)
    assert after["b/moved.png"] == before["a/0.png"], "a moved picture keeps its id"
    assert after["a/2.png"] not in before.values(), "a changed picture gets a new one"
    assert after["a/3.png"] == before["a/3.png"]
    assert made.item(after["b/moved.png"]).label == "b"
    assert made.item(after["c/new.png"]).label == "c"
    assert not made.update(), "a second update finds nothing to do"
    for name, number in after.items():
        assert made.search(photos / name, 1).ids[0, 0] == number


def test_nothing_is_loaded_for_an_update_that_finds_nothing_to_embed(made, photos):
    again, chosen = index.open(made.path), []
    again.choose = lambda: chosen.append("a runtime")
    (photos / "a/0.png").rename(photos / "b/moved.png")
    assert again.update().moved == 1
    assert chosen == []
    assert again._model is None
    picture(photos / "c/new.png", 778)
    assert again.update().added == 1
    assert chosen == ["a runtime"]


def test_files_that_swap_their_names(made, photos):
    (photos / "a/0.png").rename(photos / "x")
    (photos / "a/1.png").rename(photos / "a/0.png")
    (photos / "x").rename(photos / "a/1.png")
    made.update()
    for name, number in names(made).items():
        assert made.search(photos / name, 1).ids[0, 0] == number


def test_a_file_moved_onto_another_one(made, photos):
    kept = names(made)["a/0.png"]
    (photos / "a/0.png").replace(photos / "a/1.png")
    grown = made.update()
    assert grown.moved == 1
    assert names(made)["a/1.png"] == kept
    assert len(made) == 9


def test_copies_are_not_embedded_again(made, photos):
    shutil.copy(photos / "a/0.png", photos / "b/copy.png")
    picture(photos / "c/x.png", 5000)
    shutil.copy(photos / "c/x.png", photos / "c/y.png")
    grown = made.update()
    assert (grown.added, grown.copies) == (3, 2)
    at = names(made)
    assert np.array_equal(made.vector(at["a/0.png"]), made.vector(at["b/copy.png"]))


def test_a_broken_file_is_set_aside_once_and_taken_when_it_is_mended(made, photos):
    (photos / "a/bad.jpg").write_bytes(b"\xff\xd8\xff nothing")
    assert list(made.update().failures) == [str(photos / "a/bad.jpg")]
    again = made.update()
    assert list(again.failures) == [str(photos / "a/bad.jpg")], "it is still said"
    assert made.info()["files set aside"] == 1
    picture(photos / "a/ok.png", 9).replace(photos / "a/bad.jpg")
    assert made.update().added == 1
    assert made.info()["files set aside"] == 0


def test_a_file_that_cannot_be_read_today_is_tried_again(made, photos, monkeypatch):
    from secondsight.data.loading.decode import DecodeError
    from secondsight.index import scan

    picture(photos / "a/late.png", 10)
    real = scan.content

    def failing(path: str):
        if path.endswith("late.png"):
            raise DecodeError(path, "Input/output error")
        return real(path)

    monkeypatch.setattr(scan, "content", failing)
    assert made.update().failures == {str(photos / "a/late.png"): "Input/output error"}
    monkeypatch.undo()
    assert made.update().added == 1


@pytest.mark.parametrize("when", ["while it is embedded", "and again when the others are tried"])
def test_what_only_this_time_kept_a_picture_from_being_decoded_is_tried_again(made, photos, monkeypatch, when):
    """Memory, a disk, a decoder that is not installed: the file is read for its hash, and then not decoded."""
    from secondsight.data.loading import picture_rows
    from secondsight.data.loading.decode import ReadError
    from secondsight.index import queries

    late = picture(photos / "a/late.png", 10)
    if when == "while it is embedded":
        picture(photos / "a/good.png", 11)  # otherwise `embed` refuses a set of which nothing can be read
    real = picture_rows.decode

    def failing(source, **options):
        if str(source).endswith("late.png"):
            raise ReadError(str(source), "there is not enough memory to decode it")
        return real(source, **options)

    for place in (picture_rows, queries):
        monkeypatch.setattr(place, "decode", failing)
    assert made.update().failures == {str(late): "there is not enough memory to decode it"}
    assert made.info()["files set aside"] == 0, "said, not remembered"
    monkeypatch.undo()
    assert made.update().added == 1


def test_copies_of_a_broken_file_are_set_aside_with_its_cause(made, photos):
    for name in ("a/bad.jpg", "b/bad.jpg"):
        (photos / name).write_bytes(b"\xff\xd8\xff nothing")
    causes = made.update().failures
    assert len(causes) == 2
    assert len(set(causes.values())) == 1
    assert made.info()["files set aside"] == 2


def test_a_drive_that_vanishes_takes_nothing_with_it(made, photos):
    photos.rename(photos.with_name("away"))
    with pytest.raises(DataError, match="nothing was removed"):
        made.update()
    photos.mkdir()  # an empty mount point
    with pytest.raises(DataError, match="nothing was removed"):
        made.update()
    assert len(made) == 10
    photos.rmdir()
    photos.with_name("away").rename(photos)
    assert not made.update()
    shutil.rmtree(photos)
    assert made.update(gone=True).removed == 10


def test_a_file_that_changes_while_it_is_read_waits_for_the_next_update(made, photos, monkeypatch):
    from secondsight.index import queries

    target = picture(photos / "a/busy.png", 11)
    real = queries.encoder(made)

    def slow(paths):
        answer = real(paths)
        picture(target, 12)
        return answer

    monkeypatch.setattr("secondsight.index.collection.encoder", lambda _: slow)
    grown = made.update()
    assert grown.unsteady == [str(target)]
    assert len(made) == 10
    monkeypatch.undo()
    assert made.update().added == 1
    assert made.search(target, 1).ids[0, 0] == names(made)["a/busy.png"]


NAMES = [
    "é è.png",
    "new\nline.png",
    "tab\t.png",
    "日本語.png",
    "q'uo\"te.png",
    "[brackets].png",
    "a" * 240 + ".png",
    "%s.png",
]


def test_strange_names(tmp_path, model):
    deep = tmp_path / "photos" / "/".join(["d" * 60] * 20)
    for i, name in enumerate(NAMES):
        picture(tmp_path / "photos" / "x" / name, i)
        picture(deep / name, 50 + i)
    raw = os.fsencode(tmp_path / "photos" / "x") + b"/latin\xe9.png"
    os.link(tmp_path / "photos" / "x" / NAMES[0], raw)
    made = index.create(tmp_path / "n.index", model, tmp_path / "photos")
    assert len(made) == 2 * len(NAMES) + 1
    for item in made.items():
        assert made.find(item.path) == item.id
        hit = made.search(item.path, 2)
        assert item.id in hit.ids[0]
    assert made.count({"path": "*[brackets]*"}) == 2
    assert not made.update()


def test_a_table_brings_columns_and_its_changes_are_followed(tmp_path, model):
    photos = folder(tmp_path / "photos")
    rows = [f"photos/{c}/{i}.png,{c},{2000 + i},{'x' if i else ''}" for c in "ab" for i in range(5)]
    (tmp_path / "list.csv").write_text("\n".join(["path,label,year,note", *rows]))
    made = index.create(tmp_path / "t.index", model, tmp_path / "list.csv")
    assert made.count({"year": (2001, 2002)}) == 4
    assert made.item(names(made)["photos/a/3.png"]).columns == {"year": 2003, "note": "x"}
    rows[3] = rows[3].replace("2003", "1999").replace(",a,", ",heron,")
    (tmp_path / "list.csv").write_text("\n".join(["path,label,year,note", *rows[:-1]]))
    grown = made.update()
    assert (grown.relabelled, grown.removed, grown.added) == (1, 1, 0)
    found = made.items({"label": "heron"})
    assert [(item.name, item.columns["year"]) for item in found] == [("photos/a/3.png", 1999)]
    assert photos.exists()


def test_an_image_set_and_a_list_of_files_can_be_added_and_are_watched(tmp_path, model, photos):
    images = open_images(photos)
    made = index.create(tmp_path / "s.index", model, images)
    assert {i.label for i in made.items()} == {"a", "b"}
    extra = picture(tmp_path / "elsewhere/e.png", 40)
    assert made.add([extra]).added == 1
    assert made.add([extra]).unchanged == 1
    picture(extra, 41)
    (photos / "a/0.png").unlink()
    picture(photos / "a/not-listed.png", 42)
    grown = made.update()
    assert (grown.added, grown.changed, grown.removed) == (0, 1, 1)
    assert sum(i.label == "b" for i in made.items()) == 5


def test_loose_pictures_beside_folders_are_no_classes(tmp_path, model, photos):
    picture(photos / "loose.png", 3)
    made = index.create(tmp_path / "l.index", model, photos)
    assert {item.label for item in made.items()} == {None}
    other = index.create(tmp_path / "m.index", model, photos, labelled=True)
    assert {item.label for item in other.items()} == {None, "a", "b"}


def test_an_empty_folder_is_an_error_and_leaves_nothing_behind(tmp_path, model):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no images here"):
        index.create(tmp_path / "e.index", model, tmp_path / "empty")
    assert not (tmp_path / "e.index").exists()


def test_classes_whose_names_are_not_utf_8_are_not_relabelled_every_time(tmp_path, model):
    place = tmp_path / "photos"
    for i, name in enumerate([b"caf\xe9", b"bar"]):
        picture(place / os.fsdecode(name) / "0.png", i)
    made = index.create(tmp_path / "p.index", model, place)
    assert {item.label for item in made.items()} == {"caf\udce9", "bar"}
    assert made.update().relabelled == 0
