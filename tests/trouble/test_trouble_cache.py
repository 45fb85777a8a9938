"""Whatever happens to the files of the feature cache: the activations are those of the images, or there is an error."""

from __future__ import annotations

import os
import random
import time

import numpy as np
import pytest
from cached_photos import Photos, Prefix, features, flip, make_photos, overwrite

from secondsight.data.cache.contents import Contents
from secondsight.data.cache.store import RECORD, RowStore
from secondsight.errors import SecondsightError

ROW = 3 * 4 * 4 * 2  # bytes


@pytest.fixture
def photos(tmp_path) -> Photos:
    return make_photos(tmp_path)


def test_zeroed_rows_are_computed_again_counted_and_said(photos, tmp_path):
    first = features(photos, tmp_path / "cache")
    right, said, compute = first[:], [], Prefix()
    overwrite(first.path / "rows.f16", 2 * ROW + 10, bytes(3 * ROW))  # touches rows 2 to 5
    again = features(photos, tmp_path / "cache", compute, said.append)
    np.testing.assert_array_equal(again[:], right)
    assert (compute.computed, again.damaged) == (4, 4)
    assert "4 of 16 stored rows are damaged (a disk fault?); they are computed again" in said[0]
    compute, said = Prefix(), []
    healed = features(photos, tmp_path / "cache", compute, said.append)
    np.testing.assert_array_equal(healed[:], right)
    assert (compute.computed, healed.damaged, said) == (0, 0, [])


class Kernels(Prefix):
    """As a library that takes another kernel for another number of images: the last bits are others."""

    def __call__(self, x):
        return super().__call__(x) * (1 + len(x) / 64)


def test_a_row_has_the_same_bits_whenever_it_is_computed(photos, tmp_path):
    right = features(photos, tmp_path / "cache", Kernels())
    rows = right[:]
    flip(right.path / "rows.f16", 6 * ROW)
    again = features(photos, tmp_path / "cache", Kernels())
    assert again.damaged == 1
    np.testing.assert_array_equal(again[:], rows)
    some = features(Photos(photos.paths[:3]), tmp_path / "another", Kernels())
    np.testing.assert_array_equal(some[:], rows[:3])
    grown = features(photos, tmp_path / "another", Kernels())  # in blocks that begin elsewhere
    np.testing.assert_array_equal(grown[:], rows)


@pytest.mark.parametrize("byte", range(RECORD.itemsize))
def test_no_byte_of_an_index_record_can_be_wrong_unnoticed(photos, tmp_path, byte):
    first = features(photos, tmp_path / "cache")
    right, compute = first[:], Prefix()
    for record in (0, 7, 15):
        flip(first.path / "index.bin", record * RECORD.itemsize + byte)
    again = features(photos, tmp_path / "cache", compute)
    np.testing.assert_array_equal(again[:], right)
    assert (compute.computed, again.damaged) == (3, 3)
    assert features(photos, tmp_path / "cache").damaged == 0


def test_records_that_changed_places_are_noticed(photos, tmp_path):
    first = features(photos, tmp_path / "cache")
    right, index = first[:], first.path / "index.bin"
    content = index.read_bytes()
    one, two = content[: RECORD.itemsize], content[RECORD.itemsize : 2 * RECORD.itemsize]
    overwrite(index, 0, two + one)
    again = features(photos, tmp_path / "cache")
    np.testing.assert_array_equal(again[:], right)
    assert again.damaged == 2


def test_a_damaged_row_that_no_one_asks_for_disturbs_no_one(photos, tmp_path):
    first = features(photos, tmp_path / "cache")
    flip(first.path / "rows.f16", 9 * ROW)
    compute = Prefix()
    some = features(Photos(photos.paths[:5]), tmp_path / "cache", compute)
    assert (compute.computed, some.damaged) == (0, 0)


@pytest.mark.parametrize("content", [b"", b"[1]", b"{}", b'{"xyz": "?"}', b'{"00": 1}', b"[" * 100_000, b"\xff\xfe"])
def test_a_list_of_failures_that_is_none_is_made_again(photos, tmp_path, content):
    photos.paths[3].write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    first = features(photos, tmp_path / "cache")
    (first.path / "failed.json").write_bytes(content)
    again = features(photos, tmp_path / "cache")
    np.testing.assert_array_equal(again.rows, first.rows)
    assert [failure.index for failure in again.failures] == [3]


@pytest.mark.parametrize("content", [b"", b"[1]", b"{}", b"null", b"[" * 100_000, b"\xff\xfe"])
def test_a_description_that_is_none_is_refused_with_the_cure(photos, tmp_path, content):
    first = features(photos, tmp_path / "cache")
    (first.path / "store.json").write_bytes(content)
    with pytest.raises(SecondsightError, match=r"store\.json.*remove"):
        features(photos, tmp_path / "cache")


@pytest.mark.parametrize("seed", range(20))
def test_pages_of_the_digests_that_were_overwritten_cost_time_only(photos, tmp_path, seed):
    right, chance = features(photos, tmp_path / "cache")[:], random.Random(seed)
    memory = tmp_path / "cache" / "contents.sqlite"
    overwrite(memory, chance.randrange(memory.stat().st_size - 200), chance.randbytes(200))
    np.testing.assert_array_equal(features(photos, tmp_path / "cache")[:], right)


def test_sqlite_may_quote_bytes_that_are_no_text(photos, tmp_path):
    right = features(photos, tmp_path / "cache")[:]
    memory = tmp_path / "cache" / "contents.sqlite"
    content = memory.read_bytes()
    memory.write_bytes(content.replace(b"CREATE TABLE", b"\xef\xee\xedATE TABLE"))
    assert memory.read_bytes() != content
    np.testing.assert_array_equal(features(photos, tmp_path / "cache")[:], right)


# ---------------------------------------------------------------- what is remembered


def test_a_passing_read_error_is_not_remembered(photos, tmp_path, monkeypatch):
    gone, hashed = photos.paths[0], Contents.of

    def hashed_and_then_gone(*arguments, **options):
        contents = hashed(*arguments, **options)
        gone.rename(tmp_path / "elsewhere.png")
        return contents

    monkeypatch.setattr(Contents, "of", hashed_and_then_gone)
    first = features(photos, tmp_path / "cache")
    assert [(f.index, f.cause, f.lasting) for f in first.failures] == [(0, "No such file or directory", False)]
    assert first.rows[0] == -1
    assert RowStore(first.path).failed() == {}
    monkeypatch.undo()
    (tmp_path / "elsewhere.png").rename(gone)
    compute = Prefix()
    second = features(photos, tmp_path / "cache", compute)
    assert (len(second.failures), compute.computed) == (0, 1)
    assert (second.rows >= 0).all()


def test_what_the_content_says_is_remembered(photos, tmp_path):
    photos.paths[3].write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    first = features(photos, tmp_path / "cache")
    assert [f.lasting for f in first.failures] == [True]
    assert len(RowStore(first.path).failed()) == 1


@pytest.mark.parametrize("jump", [-10 * 365 * 86400, -3600, 3600, 10 * 365 * 86400])
def test_a_clock_that_jumps_hides_no_change(photos, tmp_path, monkeypatch, jump):
    first, now = features(photos, tmp_path / "cache")[:], time.time()
    monkeypatch.setattr("time.time", lambda: now + jump)
    content = photos.paths[4].read_bytes()
    photos.paths[4].write_bytes(photos.paths[5].read_bytes())
    os.utime(photos.paths[4], (now + jump, now + jump))  # written by the clock as it is now
    again = features(photos, tmp_path / "cache")[:]
    np.testing.assert_array_equal(again[4], first[5])
    photos.paths[4].write_bytes(content)
    os.utime(photos.paths[4], (now, now))  # the clock was put right
    monkeypatch.undo()
    np.testing.assert_array_equal(features(photos, tmp_path / "cache")[:], first)


def test_a_set_with_many_unreadable_images_says_so_loudly(photos, tmp_path):
    said = []
    for path in photos.paths[:2]:
        path.unlink()
    features(photos, tmp_path / "cache", say=said.append)
    assert said[-1].startswith("WARNING: 2 of 16 images (12.5 %) could not be used: every figure is of the others only")
