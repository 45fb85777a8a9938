"""The loader gives the batches of its sampler whatever the workers, and outlives bad files, bad code and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from data_layouts import read_image
from secondsight.data.loading.batches import Batch, BatchLoader
from secondsight.data.loading.decode import DecodeError, decode
from secondsight.data.loading.failures import Failures
from secondsight.data.loading.limits import MAX_PIXELS
from secondsight.data.loading.picture_rows import Pictures as PictureRows
from secondsight.data.loading.samplers import ClassBalanced, Sequential
from secondsight.data.loading.transforms import RandomResizedCrop, Resize
from secondsight.errors import ConfigError, DataError

SIZE = 16


@dataclass
class Pictures:
    """The least that a loader needs."""

    paths: list[Path]
    labels: np.ndarray | None

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, i: int) -> Path:
        return self.paths[i]


@pytest.fixture
def images(tmp_path) -> Pictures:
    """Forty small pictures of eight classes, every one different."""
    paths = []
    for i in range(40):
        pixels = np.random.default_rng(i).integers(0, 256, (20 + i % 7, 30, 3), dtype=np.uint8)
        paths.append(tmp_path / f"{i:02}.{'jpg' if i % 3 else 'png'}")
        Image.fromarray(pixels).save(paths[-1])
    return Pictures(paths, np.arange(40) % 8)


def loader_of(images: Pictures, transform, *, seed: int = 0, max_pixels: int = MAX_PIXELS, **options) -> BatchLoader:
    return BatchLoader(PictureRows(images, transform, seed=seed, max_pixels=max_pixels), **options)


def spoil(images: Pictures, *indices: int) -> None:
    for i in indices:
        images.paths[i].write_bytes(images.paths[i].read_bytes()[:60])


class Hungry(Resize):
    """Finds no memory for pictures of one height."""

    def __call__(self, pixels, **options):
        if pixels.shape[0] == 23:
            raise MemoryError
        return super().__call__(pixels, **options)


def test_a_picture_that_memory_does_not_suffice_for_is_set_aside_for_this_time(images):
    loader = loader_of(images, Hungry(SIZE), batch_size=10, workers=2)
    assert sum(len(batch) for batch in loader) == 34
    assert {f.cause for f in loader.failures} == {"there is not enough memory to prepare it"}
    assert not any(f.lasting for f in loader.failures)
    with pytest.raises(DecodeError, match="not enough memory"):
        list(loader_of(images, Hungry(SIZE), batch_size=10, workers=2, strict=True))


def same(a: Batch, b: Batch) -> bool:
    labels = a.labels is b.labels is None or torch.equal(a.labels, b.labels)
    return torch.equal(a.images, b.images) and labels and torch.equal(a.indices, b.indices)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_hold_what_decoding_and_transforming_by_hand_gives(images, workers):
    transform = RandomResizedCrop(SIZE)
    loader = loader_of(images, transform, batches=ClassBalanced(images.labels, 3, 3, seed=2), workers=workers, seed=7)
    loader.batches.turn_to(3)
    batches = list(loader)
    assert {len(b) for b in batches} == {9}
    order = ClassBalanced(images.labels, 3, 3, seed=2)
    order.turn_to(3)
    for batch, expected in zip(batches, order, strict=True):
        np.testing.assert_array_equal(batch.indices, expected)
        np.testing.assert_array_equal(batch.labels, images.labels[expected])
        assert batch.images.shape == (len(expected), 3, SIZE, SIZE)
        assert batch.images.dtype == torch.uint8
        assert batch.labels.dtype == batch.indices.dtype == torch.int64
        assert batch.images.is_contiguous(memory_format=torch.channels_last)
        for image, i in zip(batch.images, expected.tolist(), strict=True):
            assert torch.equal(image, transform(decode(images.path(i)), seed=7, epoch=3, index=i))
            assert torch.equal(image, read_image(images.path(i), transform, seed=7, epoch=3, index=i))


def test_the_number_of_workers_and_prefetched_batches_changes_nothing(images):
    spoil(images, 3, 11, 20)

    def run(workers: int, prefetch: int) -> list[Batch]:
        sampler = ClassBalanced(images.labels, 4, 3, seed=1)
        return list(
            loader_of(
                images, RandomResizedCrop(SIZE), batches=sampler, workers=workers, prefetch=prefetch, substitute=True
            )
        )

    expected = run(0, 1)
    for workers, prefetch in [(1, 1), (2, 4), (5, 100)]:
        result = run(workers, prefetch)
        assert len(result) == len(expected)
        assert all(same(a, b) for a, b in zip(result, expected, strict=True))


def test_epochs_differ_and_can_be_had_again(images):
    loader = loader_of(images, RandomResizedCrop(SIZE), batches=Sequential(40, 40), workers=2)
    epochs = []
    for epoch in (0, 1, 0):
        loader.batches.turn_to(epoch)
        epochs.append(next(iter(loader)).images)
    assert not torch.equal(epochs[0], epochs[1])
    assert torch.equal(epochs[0], epochs[2])


def test_images_without_labels(images):
    batch = next(iter(loader_of(Pictures(images.paths, None), Resize(SIZE), batch_size=4)))
    assert batch.labels is None
    assert batch.indices.tolist() == [0, 1, 2, 3]


def test_an_empty_set_has_no_batches():
    loader = loader_of(Pictures([], None), Resize(SIZE), batch_size=4)
    assert len(loader) == 0
    assert list(loader) == []


def test_a_batch_moves_as_one(images):
    batch = next(iter(loader_of(images, Resize(SIZE), batch_size=4)))
    moved = batch.to("meta")
    assert moved.images.device.type == moved.labels.device.type == "meta"
    assert len(moved) == 4


# ---------------------------------------------------------------- files that cannot be read


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_file_is_left_out_counted_and_listed(images, workers, tmp_path):
    spoil(images, 5, 6, 30)
    images.paths[7].unlink()
    loader = loader_of(images, Resize(SIZE), batch_size=10, workers=workers)
    batches = list(loader)
    assert [len(b) for b in batches] == [7, 10, 10, 9]
    kept = torch.cat([b.indices for b in batches]).tolist()
    assert kept == [i for i in range(40) if i not in (5, 6, 7, 30)]
    for batch in batches:
        np.testing.assert_array_equal(batch.labels, images.labels[batch.indices.numpy()])
        assert torch.equal(batch.images[-1], read_image(images.path(int(batch.indices[-1])), Resize(SIZE)))
    assert [f.index for f in loader.failures] == [5, 6, 7, 30]
    list(loader)
    assert len(loader.failures) == 4  # once each, however often they are met
    loader.failures.write(tmp_path / "failures.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "failures.jsonl").read_text().splitlines()]
    assert [line["index"] for line in lines] == [5, 6, 7, 30]
    gone = {"index": 7, "path": str(images.paths[7]), "cause": "No such file or directory", "lasting": False}
    assert lines[2] == gone
    assert "4 files were set aside" in loader.failures.text()
    assert f"{images.paths[7]}: No such file" in loader.failures.text()


@pytest.mark.parametrize("workers", [0, 2])
def test_strict_makes_it_an_error(images, workers):
    spoil(images, 13)
    with pytest.raises(DecodeError, match=r"13\.jpg: cannot be decoded"):
        list(loader_of(images, Resize(SIZE), batch_size=10, workers=workers, strict=True))


def test_a_substitute_is_of_the_same_class_and_not_in_the_batch(images):
    spoil(images, 8, 9)
    sampler = ClassBalanced(images.labels, 4, 2)
    loader = loader_of(images, Resize(SIZE), batches=sampler, substitute=True)
    for batch, wanted in zip(loader, sampler, strict=True):
        assert len(batch) == 8
        np.testing.assert_array_equal(batch.labels, images.labels[wanted])
        changed = batch.indices.numpy() != wanted
        np.testing.assert_array_equal(changed, np.isin(wanted, [8, 9]))
        assert len(set(batch.indices.tolist())) == 8
        for image, i in zip(batch.images, batch.indices.tolist(), strict=True):
            assert torch.equal(image, read_image(images.path(i), Resize(SIZE)))
    assert [f.index for f in loader.failures] == [8, 9]


def test_the_substitute_is_the_next_of_the_class_that_can_be_read_and_is_not_there_yet(images):
    spoil(images, 0, 8)  # class 0 is 0, 8, 16, 24, 32

    class Fixed(Sequential):
        def plan(self, epoch):
            return [np.array([0, 16, 1])]

    (batch,) = loader_of(images, Resize(SIZE), batches=Fixed(40, 3), substitute=True)
    assert batch.indices.tolist() == [24, 16, 1]


def test_when_the_rest_of_a_class_is_in_the_batch_one_of_it_is_repeated_and_when_it_is_unreadable_nothing(images):
    class Fixed(Sequential):
        def plan(self, epoch):
            return [np.array([0, 8, 16, 24, 32, 1])]

    spoil(images, 8)
    loader = loader_of(images, Resize(SIZE), batches=Fixed(40, 6), substitute=True)
    assert next(iter(loader)).indices.tolist() == [0, 16, 16, 24, 32, 1]
    spoil(images, 0, 16, 24, 32)
    assert next(iter(loader)).indices.tolist() == [1]


def test_when_nothing_can_be_read_the_first_batch_says_so(images):
    spoil(images, *range(40))
    with pytest.raises(DataError, match=r"none of the first 10 images could be read; .*00\.png: "):
        list(loader_of(images, Resize(SIZE), batch_size=10))


def test_a_later_batch_may_be_empty(images):
    spoil(images, *range(10, 20))
    assert [len(b) for b in loader_of(images, Resize(SIZE), batch_size=10)] == [10, 0, 10, 10]


def test_the_list_of_failures_is_short_for_people():
    failures = Failures()
    assert failures.text() == ""
    for i in range(30):
        failures.add(i, f"{i}.jpg", "truncated")
    lines = failures.text(most=2).splitlines()
    assert lines == [
        "30 files were set aside:",
        "  0.jpg: truncated",
        "  1.jpg: truncated",
        "  … and 28 more",
    ]


# ---------------------------------------------------------------- errors, ends and interruptions


@dataclass(frozen=True)
class Broken(Resize):
    """A transform with a bug in it."""

    def __call__(self, pixels, *, seed=0, epoch=0, index=0, out=None):
        if index == 17:
            raise ZeroDivisionError("oh")
        return super().__call__(pixels, out=out)


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_an_error_in_a_worker_reaches_the_caller_with_the_files_name(images, workers):
    batches = []
    with pytest.raises(DataError, match=r"17\.jpg: ZeroDivisionError while preparing it: oh"):
        batches.extend(loader_of(images, Broken(SIZE), batch_size=10, workers=workers))
    assert len(batches) <= 1


@dataclass(frozen=True)
class Quits(Resize):
    def __call__(self, pixels, *, seed=0, epoch=0, index=0, out=None):
        raise SystemExit(3)


def test_a_worker_that_dies_does_not_leave_the_caller_waiting(images):
    with pytest.raises(SystemExit):
        list(loader_of(images, Quits(SIZE), batch_size=10, workers=2))


def own_threads() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("secondsight-data")]


def gone(threads: list[threading.Thread]) -> bool:
    for thread in threads:
        thread.join(timeout=300)
    return not any(thread.is_alive() for thread in threads)


def test_leaving_early_ends_the_workers(images):
    loader = loader_of(images, Resize(SIZE), batch_size=2, workers=3)
    for _ in loader:
        during = own_threads()
        assert len(during) == 3
        break
    assert gone(during)
    assert sum(len(b) for b in loader) == 40  # and the next time everything comes


@dataclass(frozen=True)
class Counts(Resize):
    def __call__(self, pixels, *, seed=0, epoch=0, index=0, out=None):
        SEEN.append((threading.current_thread().name, torch.get_num_threads()))
        return super().__call__(pixels, out=out)


SEEN: list[tuple[str, int]] = []


def test_workers_use_one_thread_each_and_the_caller_keeps_its_own(images):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        list(loader_of(images, Counts(SIZE), batch_size=4, workers=2))
        assert {count for _, count in SEEN} == {1}
        assert all(name.startswith("secondsight-data") for name, _ in SEEN)
        assert torch.get_num_threads() == 2
        later = []
        thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
        thread.start()
        thread.join()
        assert later == [2]
    finally:
        torch.set_num_threads(before)


SLOW = """
import sys, time
from dataclasses import dataclass
from pathlib import Path
from secondsight.data.loading.batches import BatchLoader
from secondsight.data.loading.limits import MAX_PIXELS
from secondsight.data.loading.picture_rows import Pictures
from secondsight.data.loading.transforms import Resize

@dataclass(frozen=True)
class Slow(Resize):
    def __call__(self, pixels, *, seed=0, epoch=0, index=0, out=None):
        time.sleep(0.05)
        return super().__call__(pixels, out=out)

class Endless:
    labels = None
    def __len__(self): return 100_000
    def path(self, i): return Path(sys.argv[1])

for batch in BatchLoader(Pictures(Endless(), Slow(16)), batch_size=4, workers=2):
    print("batch", flush=True)
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_come_under_inference_mode_too(images, workers):
    plain = [batch.images for batch in loader_of(images, Resize(SIZE), batch_size=8, workers=workers)]
    with torch.inference_mode():
        inside = [batch.images for batch in loader_of(images, Resize(SIZE), batch_size=8, workers=workers)]
    assert all(torch.equal(a, b) for a, b in zip(plain, inside, strict=True))


def test_ctrl_c_ends_the_program_at_once(images):
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, str(images.paths[0])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        # A shell that starts the tests in the background makes them, and what they start, ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout.readline() == "batch\n"
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert "KeyboardInterrupt" in errors
    assert process.returncode != 0
    assert time.monotonic() - started < 30  # not a measurement: 100,000 images would take hours


@pytest.mark.parametrize("workers", [0, 3])
def test_prefetched_batches_do_not_count_as_done(images, workers):
    def make() -> BatchLoader:
        sampler = ClassBalanced(images.labels, 4, 2, seed=5)
        return loader_of(images, RandomResizedCrop(SIZE), batches=sampler, workers=workers, prefetch=3)

    loader = make()
    loader.batches.turn_to(1)
    everything = list(loader)
    running = iter(loader)
    done = [next(running), next(running)]
    resumed = make()
    resumed.batches.turn_to(1, loader.batches.position)
    result = done + list(resumed)
    assert len(result) == len(everything)
    assert all(same(a, b) for a, b in zip(result, everything, strict=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either batches"),
        ({"batch_size": 4, "batches": Sequential(40, 4)}, "either batches"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"batch_size": 4, "workers": -1}, "workers must be 0 or more"),
        ({"batch_size": 4, "prefetch": 0}, "prefetch 1 or more"),
    ],
)
def test_mistakes_are_named(images, options, message):
    with pytest.raises(ConfigError, match=message):
        loader_of(images, Resize(SIZE), **options)


def test_substitutes_need_labels(images):
    with pytest.raises(ConfigError, match="labels"):
        loader_of(Pictures(images.paths, None), Resize(SIZE), batch_size=4, substitute=True)


def test_a_sampler_made_for_another_set_is_noticed(images):
    with pytest.raises(DataError, match="asks for image 49, but there are 40"):
        list(loader_of(images, Resize(SIZE), batches=Sequential(50, 10)))


def test_a_bomb_is_set_aside_at_the_chosen_limit(images):
    Image.new("RGB", (100, 100)).save(images.paths[3])
    loader = loader_of(images, Resize(SIZE), batch_size=40, max_pixels=5000)
    assert len(next(iter(loader))) == 39
    assert "more than the limit of 5,000" in loader.failures.text()
