"""Activations are computed once, survive crashes, full disks and second runs, and come back as they were."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import shutil
import signal
import threading
import time
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from data_layouts import read_image
from secondsight.data.cache.cached_features import to_half
from secondsight.data.cache.contents import digest, digests
from secondsight.data.cache.feature_cache import DiskFull, FeatureCache, size
from secondsight.data.cache.store import RowStore
from secondsight.data.loading.batches import BatchLoader
from secondsight.data.loading.decode import DecodeError
from secondsight.data.loading.samplers import ClassBalanced
from secondsight.data.loading.transforms import RandomResizedCrop, Resize
from secondsight.errors import ConfigError, DataError, RunError

KEY = {"prefix": "conv4 of abc"}


@dataclass
class Pictures:
    paths: list[Path]
    labels: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, i: int) -> Path:
        return self.paths[i]


def picture(path: Path, seed: int) -> Path:
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(path)
    os.utime(path, (1e9 + seed, 1e9 + seed))  # long ago: its digest may be remembered
    return path


@pytest.fixture
def images(tmp_path) -> Pictures:
    (tmp_path / "photos").mkdir()
    paths = [picture(tmp_path / "photos" / f"{i:02}.png", i) for i in range(20)]
    return Pictures(paths, np.arange(20) % 5)


class Prefix:
    """A frozen network for the tests: (b, 3, 8, 8) bytes to (b, 3, 4, 4) numbers; counts what it computes."""

    def __init__(self, *, fail_after: int | None = None):
        self.computed = 0
        self.fail_after = fail_after

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.any():  # the shape is found with a black image, and black ones fill up a block
            self.computed += int(x.flatten(1).any(1).sum())
            if self.fail_after is not None and self.computed > self.fail_after:
                raise KeyboardInterrupt
        return torch.nn.functional.avg_pool2d(x.float(), 2)


def expected(images: Pictures) -> np.ndarray:
    rows = [torch.nn.functional.avg_pool2d(read_image(p, Resize(8)).float(), 2) for p in images.paths]
    return torch.stack(rows).half().float().numpy()


def run(images, directory, compute=None, **options):
    options = {"transform": Resize(8), "key": KEY, "batch_size": 4, "workers": 1, **options}
    return FeatureCache(directory).features(images, compute or Prefix(), **options)


def test_activations_are_computed_once_and_come_back_in_half_precision(images, tmp_path):
    first, second = Prefix(), Prefix()
    features = run(images, tmp_path / "cache", first)
    assert first.computed == 20
    np.testing.assert_array_equal(features[:], expected(images))
    again = run(images, tmp_path / "cache", second)
    assert second.computed == 0
    np.testing.assert_array_equal(again[np.arange(20)], expected(images))
    assert again.shape == (20, 3, 4, 4)
    assert again[3].shape == (3, 4, 4)
    assert again[3].dtype == np.float32
    assert isinstance(again.stored, np.memmap)
    assert again.stored.dtype == np.float16
    assert again.nbytes == 20 * 48 * 2


def test_rows_are_found_by_content_not_by_name_order_or_split(images, tmp_path):
    run(images, tmp_path / "cache")
    shuffled = Pictures([*images.paths[::-3]])
    moved = tmp_path / "elsewhere.png"
    shutil.copy(images.paths[4], moved)
    shuffled.paths += [moved, moved]
    compute = Prefix()
    features = run(shuffled, tmp_path / "cache", compute)
    assert compute.computed == 0
    np.testing.assert_array_equal(features[:], expected(shuffled))


def test_only_new_and_changed_files_are_computed(images, tmp_path):
    run(images, tmp_path / "cache")
    picture(images.paths[7], 777)
    images.paths.append(picture(tmp_path / "new.png", 888))
    compute = Prefix()
    features = run(images, tmp_path / "cache", compute)
    assert compute.computed == 2
    np.testing.assert_array_equal(features[:], expected(images))


def test_another_prefix_or_transform_has_rows_of_its_own(images, tmp_path):
    run(images, tmp_path / "cache")
    for options in ({"key": {"prefix": "other"}}, {"transform": Resize(8, "bicubic")}):
        compute = Prefix()
        run(images, tmp_path / "cache", compute, **options)
        assert compute.computed == 20
    assert len(FeatureCache(tmp_path / "cache").entries()) == 3


def test_copies_of_a_file_are_computed_once(images, tmp_path):
    images.paths += images.paths[:5]
    compute = Prefix()
    features = run(images, tmp_path / "cache", compute)
    assert compute.computed == 20
    np.testing.assert_array_equal(features[:], expected(images))
    assert features.nbytes == 20 * 96


# ---------------------------------------------------------------- half precision


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=8), st.integers(-100, 60))
@settings(max_examples=200, deadline=None)
def test_half_rows_keep_eleven_bits_of_their_largest_value_at_any_scale(values, power):
    x = torch.tensor([values], dtype=torch.float32) * 2.0 ** min(power, 20)
    half, scale = to_half(x)
    back = half.astype(np.float64) * scale[:, None]
    largest = x.abs().max().item()
    assert np.isfinite(half).all()
    assert np.abs(back - x.double().numpy()).max() <= largest * 2.0**-11 + 1e-44


def test_ordinary_rows_are_stored_as_they_are():
    x = torch.tensor([[0.5, -2.0], [0.0, 0.0], [65504.0, 1.0]])
    half, scale = to_half(x)
    np.testing.assert_array_equal(scale, 1)
    np.testing.assert_array_equal(half, x.half().numpy())


def test_values_beyond_half_survive_the_disk_and_the_loader(images, tmp_path):
    def huge(x: torch.Tensor) -> torch.Tensor:
        return x.float().mean((2, 3)) * torch.tensor([1e6, 1.0, 1e-9])

    features = run(images, tmp_path / "cache", huge)
    exact = torch.stack([huge(read_image(p, Resize(8))[None])[0] for p in images.paths]).numpy()
    assert exact.max() > 65504
    np.testing.assert_allclose(features[:][:, 0], exact[:, 0], rtol=1e-3)
    batch = next(iter(BatchLoader(features, batch_size=20)))
    np.testing.assert_array_equal(batch.images.numpy(), features[:])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused_with_the_files_name(images, tmp_path, bad):
    def poisoned(x: torch.Tensor) -> torch.Tensor:
        y = x.float().mean((2, 3))
        y[x.flatten(1).float().mean(1) == target] = bad
        return y

    target = read_image(images.paths[9], Resize(8)).float().mean()
    with pytest.raises(DataError, match=r"09\.png: its activations hold NaN or infinity"):
        run(images, tmp_path / "cache", poisoned)


# ---------------------------------------------------------------- training from it


@pytest.mark.parametrize("workers", [0, 2])
def test_the_loader_gives_activations_with_the_same_samplers(images, tmp_path, workers):
    features = run(images, tmp_path / "cache")
    sampler = ClassBalanced(images.labels, 3, 2, seed=1)
    loader = BatchLoader(features, batches=sampler, workers=workers)
    loader.batches.turn_to(2)
    count = 0
    for batch, indices in zip(loader, list(sampler), strict=True):
        np.testing.assert_array_equal(batch.indices, indices)
        np.testing.assert_array_equal(batch.labels, images.labels[indices])
        np.testing.assert_array_equal(batch.images, expected(images)[indices])
        assert batch.images.dtype == torch.float32
        count += 1
    assert count == len(loader)


def test_undecodable_files_have_no_row_are_listed_and_not_tried_again(images, tmp_path):
    for i in (3, 11):
        images.paths[i].write_bytes(b"\x89PNG\r\n\x1a\nbroken")
    images.paths[12].unlink()
    features = run(images, tmp_path / "cache")
    for result in (features, run(images, tmp_path / "cache")):
        assert [f.index for f in result.failures] == [3, 11, 12]
        assert "No such file" in result.failures.text()
        np.testing.assert_array_equal(np.flatnonzero(result.rows < 0), [3, 11, 12])
        with pytest.raises(DataError, match=r"11\.png could not be decoded"):
            result[10:12]
    assert RowStore(features.path).records().size == 17
    batches = list(BatchLoader(features, batch_size=10))
    assert [len(b) for b in batches] == [9, 8]
    swapped = BatchLoader(features, batches=ClassBalanced(images.labels, 5, 2), substitute=True)
    assert all(len(b) == 10 for b in swapped)
    assert [f.index for f in swapped.failures] == [3, 11, 12]
    with pytest.raises(DecodeError):
        run(images, tmp_path / "cache", strict=True)


def test_a_repaired_file_is_computed(images, tmp_path):
    images.paths[3].write_bytes(b"broken")
    run(images, tmp_path / "cache")
    picture(images.paths[3], 3)
    features = run(images, tmp_path / "cache")
    assert not features.failures
    np.testing.assert_array_equal(features[:], expected(images))


def test_nothing_readable_is_an_error(images, tmp_path):
    with pytest.raises(DataError, match="none of the 2 files can be read"):
        run(Pictures([tmp_path / "a.png", tmp_path / "b.png"]), tmp_path / "cache")
    with pytest.raises(DataError, match="no images"):
        run(Pictures([]), tmp_path / "cache")


# ---------------------------------------------------------------- crashes, full disks, two runs


def test_an_interrupted_computation_goes_on_after_the_last_finished_block(images, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(images, tmp_path / "cache", Prefix(fail_after=10))
    compute = Prefix()
    features = run(images, tmp_path / "cache", compute)
    assert compute.computed == 12  # two blocks of four were finished
    np.testing.assert_array_equal(features[:], expected(images))


def in_a_process(images: Pictures, directory: Path, *, kill_after: int = 10**9, pause: float = 0.0):
    """A run in a process of its own, forked because importing torch anew takes seconds."""

    class Mortal(Prefix):
        def __call__(self, x):
            y = super().__call__(x)
            time.sleep(pause)
            if self.computed > kill_after:
                os.kill(os.getpid(), signal.SIGKILL)
            return y

    def work(connection) -> None:
        torch.set_num_threads(1)  # the parent's threads are not there after a fork, and would be waited for
        compute = Mortal()
        run(images, directory, compute, workers=0)
        connection.send(compute.computed)

    fork = multiprocessing.get_context("fork")
    ours, theirs = fork.Pipe(duplex=False)
    process = fork.Process(target=work, args=(theirs,), daemon=True)
    process.start()
    return process, ours


def test_a_killed_process_loses_one_block_and_two_at_once_compute_every_image_once(images, tmp_path):
    killed, _ = in_a_process(images, tmp_path / "cache", kill_after=4)
    killed.join(60)
    assert killed.exitcode == -signal.SIGKILL
    both = [in_a_process(images, tmp_path / "cache", pause=0.05) for _ in range(2)]
    for process, _ in both:
        process.join(60)
        assert process.exitcode == 0
    assert sorted(results.recv() for _, results in both) == [0, 16]  # four were there
    compute = Prefix()
    np.testing.assert_array_equal(run(images, tmp_path / "cache", compute)[:], expected(images))
    assert compute.computed == 0


def test_torn_files_after_a_power_cut_lose_what_was_torn_and_nothing_else(images, tmp_path):
    features = run(images, tmp_path / "cache")
    index, rows = features.path / "index.bin", features.path / "rows.f16"
    with index.open("ab") as file:
        file.write(bytes(20) + b"half a rec")  # a record of zeros, and half of one
    with rows.open("ab") as file:
        file.write(b"x" * 50)
    compute = Prefix()
    np.testing.assert_array_equal(run(images, tmp_path / "cache", compute)[:], expected(images))
    assert compute.computed == 0
    os.truncate(rows, 10 * 96 + 7)
    np.testing.assert_array_equal(run(images, tmp_path / "cache", compute)[:], expected(images))
    assert compute.computed == 10


def test_a_second_run_waits_says_so_and_reads_what_the_first_computed(images, tmp_path):
    said, counts = [], []
    entered, go = threading.Event(), threading.Event()

    class Slow(Prefix):
        def __call__(self, x):
            entered.set()
            assert go.wait(30)
            return super().__call__(x)

    def work(compute: Prefix) -> None:
        cache = FeatureCache(tmp_path / "cache", say=said.append)
        cache.features(images, compute, transform=Resize(8), key=KEY, batch_size=4, workers=1)
        counts.append(compute.computed)

    first = threading.Thread(target=work, args=(Slow(),))
    second = threading.Thread(target=work, args=(Prefix(),))
    first.start()
    assert entered.wait(30)
    second.start()
    while not any("waiting for another run" in line for line in said):
        assert second.is_alive()
        time.sleep(0.01)
    go.set()
    first.join(30)
    second.join(30)
    assert sorted(counts) == [0, 20]


@contextlib.contextmanager
def files_no_larger_than(count: int):
    """What a full disk does to a growing file: the system writes a part, and then refuses."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


def wide(x: torch.Tensor) -> torch.Tensor:
    return x.float().mean((1, 2, 3))[:, None].expand(-1, 20_000)


def test_a_full_disk_stops_cleanly_and_what_was_stored_stays(images, tmp_path):
    with files_no_larger_than(500_000), pytest.raises(DiskFull, match="12 of 20 images are stored and kept: make room"):
        run(images, tmp_path / "cache", wide)
    (entry,) = FeatureCache(tmp_path / "cache").entries()
    assert entry.rows == 12
    assert (entry.path / "rows.f16").stat().st_size == 12 * 40_000
    compute = Prefix()
    features = run(images, tmp_path / "cache", lambda x: (compute(x), wide(x))[1])
    assert compute.computed == 8
    assert len(features) == 20


def test_too_little_room_is_noticed_before_anything_is_computed(images, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, (64 << 20) + 1000))
    compute = Prefix()
    with pytest.raises(DiskFull, match=r"20 × 3×4×4 activations in half precision need 1\.9 kB, and 1\.0 kB are free"):
        run(images, tmp_path / "cache", compute)
    assert compute.computed == 0


def test_the_size_is_said_before_anything_is_written(images, tmp_path):
    said = []

    def compute(x: torch.Tensor) -> torch.Tensor:
        if x.any():
            assert said
        return x.float().mean((2, 3))

    cache = FeatureCache(tmp_path / "cache", say=said.append)
    cache.features(images, compute, transform=Resize(8), key=KEY)
    assert len(said) == 1
    assert said[0].startswith("what the frozen stages make of 20 images is kept for the next time: 120 bytes in ")


# ---------------------------------------------------------------- housekeeping


def test_listing_removing_and_pruning(images, tmp_path):
    cache = FeatureCache(tmp_path / "cache", say=lambda line: None)
    for number, name in enumerate("abc"):
        features = run(images, cache.directory, key={"prefix": name})
        os.utime(features.path / "store.json", (number, number))
    entries = cache.entries()
    assert [e.key["prefix"] for e in entries] == ["c", "b", "a"]  # the last used first
    assert all(e.rows == 20 and e.shape == (3, 4, 4) and e.bytes >= 20 * 96 for e in entries)
    run(images, cache.directory, key={"prefix": "a"})
    assert cache.entries()[0].key["prefix"] == "a"
    removed = cache.prune(entries[0].bytes * 2)
    assert [e.key["prefix"] for e in removed] == ["b"]
    cache.remove(cache.entries()[0])
    assert [e.key["prefix"] for e in cache.entries()] == ["c"]
    assert FeatureCache(tmp_path / "nowhere").entries() == []


def test_what_is_being_filled_is_not_removed_and_what_is_read_survives(images, tmp_path):
    features = run(images, tmp_path / "cache")
    cache = FeatureCache(tmp_path / "cache")
    (entry,) = cache.entries()
    with RowStore(entry.path).locked(), pytest.raises(RunError, match="another run is filling it"):
        cache.remove(entry)
    cache.remove(entry)
    assert cache.entries() == []
    np.testing.assert_array_equal(features[:], expected(images))  # still mapped


def test_one_who_waits_for_a_store_that_is_removed_makes_a_new_one(images, tmp_path):
    store = RowStore(tmp_path / "store")
    locked, done = threading.Event(), threading.Event()

    def wait() -> None:
        with store.locked(locked.set):
            assert (store.path / "lock").exists()
            done.set()

    with store.locked():
        thread = threading.Thread(target=wait)
        thread.start()
        assert locked.wait(30)
        shutil.rmtree(store.path)
    thread.join(30)
    assert done.is_set()


def test_digests_are_remembered_until_size_or_time_change(tmp_path):
    memory, path = tmp_path / "memory.sqlite", tmp_path / "file"

    def found() -> bytes:
        (one,) = digests([path], memory)
        return one

    path.write_bytes(b"one")
    os.utime(path, (1e9, 1e9))
    assert found() == digest(b"one")
    path.write_bytes(b"two")
    os.utime(path, (1e9, 1e9))  # same size, same time: it is taken for the same file
    assert found() == digest(b"one")
    os.utime(path, (1e9 + 1, 1e9 + 1))
    assert found() == digest(b"two")
    path.write_bytes(b"red")  # just now: not relied on
    assert found() == digest(b"red")
    path.write_bytes(b"sea")
    assert found() == digest(b"sea")


@pytest.mark.parametrize("damage", ["garbage", "directory", "read-only"])
def test_a_broken_memory_of_digests_costs_time_only(images, tmp_path, damage):
    run(images, tmp_path / "cache")
    memory = tmp_path / "cache" / "contents.sqlite"
    memory.unlink()
    if damage == "garbage":
        memory.write_bytes(b"not a database" * 1000)
    elif damage == "directory":
        memory.mkdir()
    else:
        memory.write_bytes(b"")
        memory.chmod(0o444)
    compute = Prefix()
    np.testing.assert_array_equal(run(images, tmp_path / "cache", compute)[:], expected(images))
    assert compute.computed == 0


# ---------------------------------------------------------------- mistakes


def test_mistakes_are_named(images, tmp_path):
    with pytest.raises(ConfigError, match="is random"):
        run(images, tmp_path / "cache", transform=RandomResizedCrop(8))
    with pytest.raises(ConfigError, match=r"1 images gave \(2, 3\)"):
        run(images, tmp_path / "cache", lambda x: torch.zeros(2, 3))
    with pytest.raises(ConfigError, match="gave list"):
        run(images, tmp_path / "cache", lambda x: [1])
    run(Pictures(images.paths[:4]), tmp_path / "cache")
    with pytest.raises(ConfigError, match="the key must name everything"):
        run(images, tmp_path / "cache", lambda x: x.float().mean((2, 3)))


def test_sizes_read_well():
    assert [size(n) for n in (999, 1500, 2_500_000, 4_700_000_000)] == ["999 bytes", "1.5 kB", "2.5 MB", "4.7 GB"]
