"""Whatever happens to the files of the feature cache: the activations are those of the images, or there is an error."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from secondsight.data.cache.contents import Contents
from secondsight.data.cache.feature_cache import FeatureCache
from secondsight.data.cache.store import RECORD, Store
from secondsight.data.loading.transforms import Resize
from secondsight.errors import DataError

ROW = 3 * 4 * 4 * 2  # bytes


@dataclass
class Photos:
    paths: list[Path]
    labels: None = None

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, i: int) -> Path:
        return self.paths[i]


@pytest.fixture
def photos(tmp_path) -> Photos:
    made = Photos([tmp_path / f"{i:02}.png" for i in range(16)])
    for i, path in enumerate(made.paths):
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
        os.utime(path, (1e9 + i, 1e9 + i))
    return made


class Prefix:
    """(b, 3, 8, 8) bytes to (b, 3, 4, 4) numbers, the last image with a scale of its own; counts what it computes."""

    def __init__(self) -> None:
        self.computed = 0

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        self.computed += len(x) if x.any() else 0  # the shape is found with a black image
        return torch.nn.functional.avg_pool2d(x.float(), 2) * 1e4


def features(photos: Photos, directory: Path, compute: Prefix | None = None, say=lambda line: None):
    cache = FeatureCache(directory, say=say)
    return cache.features(
        photos, compute or Prefix(), transform=Resize(8), key={"prefix": "p"}, batch_size=4, workers=0
    )


def overwrite(file: Path, offset: int, content: bytes) -> None:
    """Not a new file: what a bad disk or a stray write does."""
    with file.open("r+b") as handle:
        handle.seek(offset)
        handle.write(content)


def flip(file: Path, offset: int, bit: int = 3) -> None:
    overwrite(file, offset, bytes([file.read_bytes()[offset] ^ (1 << bit)]))


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


def damage(directory: Path, chance: random.Random) -> str:
    """Something wrong with one of the files; what it was."""
    file = chance.choice(sorted(path for path in directory.rglob("*") if path.is_file() and path.name != "lock"))
    size = file.stat().st_size
    what = chance.choice(["flip", "zero", "garbage", "cut", "grow", "remove", "empty"])
    start = chance.randrange(max(1, size))
    if what in ("flip", "zero", "garbage") and size:
        length = chance.randint(1, min(200, size - start))
        kinds = {"zero": bytes(length), "garbage": chance.randbytes(length)}
        flip(file, start, chance.randrange(8)) if what == "flip" else overwrite(file, start, kinds[what])
    elif what == "cut":
        os.truncate(file, start)
    elif what == "grow":
        file.write_bytes(file.read_bytes() + chance.randbytes(chance.randint(1, 300)))
    elif what == "remove":
        file.unlink()
    else:
        os.truncate(file, 0)
    return f"{what} {file.name} at {start}"


def test_no_damage_to_any_file_of_the_cache_changes_an_activation(photos, tmp_path, mutations):
    photos.paths[5].write_bytes(b"\x89PNG broken")  # so that there is a failed.json, too
    os.utime(photos.paths[5], (1e9, 1e9))
    first = features(photos, tmp_path / "whole")
    good = np.flatnonzero(first.rows >= 0)
    right = first[good]
    for seed in mutations(150):
        chance = random.Random(seed)
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        shutil.copytree(tmp_path / "whole", tmp_path / "cache")
        what = [damage(tmp_path / "cache", chance) for _ in range(chance.randint(1, 3))]
        try:
            again = features(photos, tmp_path / "cache")
        except DataError as error:
            if "store.json" in str(error):  # one that is damaged names its cure: to be removed
                continue
            raise AssertionError(f"seed {seed}: {what}") from error
        np.testing.assert_array_equal(again[good], right, err_msg=f"seed {seed}: {what}")
        assert [f.index for f in again.failures] == [5], (seed, what)


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
    assert Store(first.path).failed() == {}
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
    assert len(Store(first.path).failed()) == 1


def test_a_set_with_many_unreadable_images_says_so_loudly(photos, tmp_path):
    said = []
    for path in photos.paths[:2]:
        path.unlink()
    features(photos, tmp_path / "cache", say=said.append)
    assert said[-1].startswith("WARNING: 2 of 16 images (12.5 %) could not be used: every figure is of the others only")
