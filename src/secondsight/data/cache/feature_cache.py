"""The frozen-feature cache: where a prefix of the backbone does not learn, its activations are computed once.

    features = FeatureCache(folder).features(images, prefix, transform=Resize(224), key={"prefix": fingerprint})
    for batch in BatchLoader(features, batches=ClassBalanced(images.labels, 32, 2)):
        …                            # batch.images are the activations, float32

Activations are found by (key, transform, contents of the file): other splits, and files that were added, moved or
copied, reuse what is there. They are kept in half precision, each row with a scale where it needs one (``to_half``).
What is finished is on disk for good, block by block, so an interrupted computation goes on where it stopped. Every row
that is handed out was compared with its checksum once in this process; a damaged one is computed again, and counted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from secondsight.data.cache.cached_features import CachedFeatures, to_half
from secondsight.data.cache.contents import Contents
from secondsight.data.cache.store import FORMAT, DiskFull, RowStore, row_bytes
from secondsight.data.loading.batches import Batch, BatchLoader
from secondsight.data.loading.decode import DecodeError
from secondsight.data.loading.picture_rows import Images, Pictures
from secondsight.data.loading.transforms import Transform
from secondsight.errors import ConfigError, DataError, RunError
from secondsight.files import check_writable
from secondsight.progress import bar
from secondsight.terminal import console

RESERVE = 64 << 20  # bytes of the disk that are never used


def default_directory() -> Path:
    """``$SECONDSIGHT_CACHE/features``, or a folder in the user's cache."""
    home = os.environ.get("SECONDSIGHT_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "secondsight"
    return (Path(home) if home else base) / "features"


@dataclass(frozen=True)
class Entry:
    """One key of the cache: what it is, how large, and when it was last used (seconds since 1970)."""

    path: Path
    key: dict[str, str]
    shape: tuple[int, ...]
    rows: int
    bytes: int
    used: float


def _to_stderr(line: str) -> None:
    console(stderr=True).print(line, markup=False, highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class FeatureCache:
    """A directory of activations. ``say`` takes lines for people: sizes before anything is written, and waiting."""

    directory: Path
    say: Callable[[str], None] = _to_stderr

    def features(
        self,
        images: Images,
        compute: Callable[[Tensor], Tensor],
        *,
        transform: Transform,
        key: Mapping[str, str],
        batch_size: int = 32,
        workers: int | None = None,
        strict: bool = False,
    ) -> CachedFeatures:
        """The activations of every image: those in the cache as they are, the others computed and stored.

        Args:
            images: what to compute on.
            compute: uint8 images (b, 3, S, S) to activations (b, …); each row may depend on its own image only.
            transform: a deterministic one.
            key: names everything else that the activations depend on, first of all the weights of the frozen prefix.
            batch_size: images computed, and stored, at a time. The last block is filled up with black ones, so that a
                row has the same bits whenever, and with whatever others, it is computed.
            workers: threads that decode.
            strict: an image that cannot be decoded is an error; otherwise it is listed in ``failures``.
        """
        if not transform.deterministic:
            raise ConfigError(
                f"{transform.key} is random: its activations cannot be cached; use a deterministic transform"
            )
        if len(images) == 0:
            raise DataError("there are no images to compute activations of")
        if not self.directory.is_dir():
            check_writable(self.directory, cure="choose another place with data.cache_dir or $SECONDSIGHT_CACHE")
        named = {**key, "transform": transform.key}
        store = RowStore(self.directory / _digest(named))
        contents = Contents.of(images, self.directory / "contents.sqlite", strict=strict)
        records, damaged = store.records(), 0
        stored = store.rows(len(records))
        rotten = store.damaged(records, contents.rows(records), stored)
        if len(rotten) or contents.missing(records, store.failed()):
            with store.locked(lambda: self.say(f"waiting for another run that fills {store.path}")):
                # Look again: that run may have done it all.
                records, damaged = self._forget_damaged(store, contents)
                if todo := contents.missing(records, store.failed()):
                    pictures = Pictures(_Some(images, todo), transform)
                    loader = BatchLoader(pictures, batch_size=batch_size, workers=workers, strict=strict, patient=True)
                    self._fill(store, named, loader, compute, [contents.digests[i] for i in todo], batch_size)
                    contents.add_unread(loader.failures, todo)
            records = store.records()
            stored = store.rows(len(records))
            if len(store.damaged(records, contents.rows(records), stored)):
                raise DataError(
                    f"{store.path}: the disk does not return what was just written to it; choose another directory "
                    "for the cache, and check the disk"
                )
        contents.add_failures(store.failed())
        if strict and contents.failures:
            worst = next(iter(contents.failures))
            raise DecodeError(worst.path, worst.cause)
        if warning := contents.failures.warning(len(images)):
            self.say(warning)
        with contextlib.suppress(OSError):  # a cache that others filled and we may only read
            os.utime(store.path / "store.json")  # last used: now
        rows = contents.rows(records)
        return CachedFeatures(images, stored, records["scale"], rows, contents.failures, store.path, damaged)

    def _forget_damaged(self, store: RowStore, contents: Contents) -> tuple[np.ndarray, int]:
        """The records of rows that are as they were written, and how many are not; the lock must be held."""
        records = store.records()
        rotten = store.damaged(records, contents.rows(records), store.rows(len(records)))
        if not len(rotten):
            return records, 0
        self.say(
            f"{store.path}: {len(rotten):,} of {len(records):,} stored rows are damaged (a disk fault?); they are "
            "computed again"
        )
        return store.forget(records, rotten), len(rotten)

    def _fill(
        self,
        store: RowStore,
        key: dict[str, str],
        loader: BatchLoader,
        compute: Callable[[Tensor], Tensor],
        digests: list[bytes],
        together: int,
    ) -> None:
        shape = tuple(_computed(compute, loader.rows.empty(1).zero_()).shape[1:])
        self._check_room(store, shape, len(digests))
        store.create(key, shape)
        there, done, started = len(store.records()), 0, time.monotonic()
        with bar(unit="images") as progress:
            task = progress.add_task("computing activations", total=len(digests), note="")
            for batch in filter(len, loader):  # a batch of unreadable files is empty
                rows, scales = _half(
                    _computed(compute, _full(batch.images, loader.rows.empty(together)))[: len(batch)], batch, loader
                )
                try:
                    store.append(there + done, [digests[i] for i in batch.indices.tolist()], rows, scales)
                except DiskFull as error:
                    raise DiskFull(
                        f"{error}; {done:,} of {len(digests):,} images are stored and kept: make room, or choose "
                        "another directory for the cache, and start again"
                    ) from error
                done += len(batch)
                rate = done / (time.monotonic() - started)
                progress.update(task, completed=done, note=f"{rate:.0f} images/s")
        # What the disk or a permission said is no property of the content: such a file is tried again next time.
        if failed := {digests[failure.index]: failure.cause for failure in loader.failures if failure.lasting}:
            store.add_failed(failed)

    def _check_room(self, store: RowStore, shape: tuple[int, ...], count: int) -> None:
        needed, free = count * row_bytes(shape), shutil.disk_usage(store.path).free - RESERVE
        what = f"{count:,} × {'×'.join(map(str, shape))} activations in half precision"
        if needed > free:
            raise DiskFull(
                f"{store.path}: {what} need {size(needed)}, and {size(max(0, free))} are free; make room (the cache "
                f"holds {size(sum(entry.bytes for entry in self.entries()))} in all) or choose another directory for it"
            )
        kept = f"what the frozen stages make of {count:,} images is kept for the next time"
        self.say(f"{kept}: {size(needed)} in {store.path} ({size(free)} free)")

    def entries(self) -> list[Entry]:
        """What the cache holds, the last used first."""
        found = [_entry(path.parent) for path in self.directory.glob("*/store.json")]
        return sorted((entry for entry in found if entry is not None), key=lambda entry: -entry.used)

    def remove(self, entry: Entry) -> None:
        """Free the space of one key; a run that is filling it is in the way, one that only reads is not disturbed."""
        store = RowStore(entry.path)
        try:
            with store.locked():
                shutil.rmtree(entry.path)
        except BlockingIOError as error:
            raise RunError(f"{entry.path}: another run is filling it; remove it when that run is done") from error

    def prune(self, keep_bytes: int) -> list[Entry]:
        """Remove what was used longest ago until no more than ``keep_bytes`` are left; what was removed."""
        entries, removed = self.entries(), []
        total = sum(entry.bytes for entry in entries)
        for entry in reversed(entries):
            if total > keep_bytes:
                self.remove(entry)
                removed.append(entry)
                total -= entry.bytes
        return removed


@dataclass(frozen=True)
class _Some:
    """Some images of a set; their labels are not needed."""

    images: Images
    numbers: list[int]
    labels: None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def path(self, i: int) -> Path:
        return self.images.path(self.numbers[i])


def size(count: int) -> str:
    """Bytes for people.

    >>> size(4_700_000_000)
    '4.7 GB'
    """
    for unit, power in (("GB", 9), ("MB", 6), ("kB", 3)):
        if count >= 10**power:
            return f"{count / 10**power:.1f} {unit}"
    return f"{count} bytes"


def _computed(compute: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    with torch.inference_mode():
        activations = compute(images)
    if not isinstance(activations, Tensor) or activations.ndim < 1 or len(activations) != len(images):
        got = tuple(activations.shape) if isinstance(activations, Tensor) else type(activations).__name__
        raise ConfigError(f"compute must give one row of activations per image: {len(images)} images gave {got}")
    return activations


def _full(images: Tensor, memory: Tensor) -> Tensor:
    """The images, and black ones after them until ``memory`` is full.

    For fewer of them a library may take other kernels, which round differently, and after a row was mended the model
    that is trained would not be the same one.
    """
    if len(images) == len(memory):
        return images
    memory[: len(images)] = images
    memory[len(images) :] = 0
    return memory


def _half(activations: Tensor, batch: Batch, loader: BatchLoader) -> tuple[np.ndarray, np.ndarray]:
    rows, scales = to_half(activations)
    bad = np.flatnonzero(~np.isfinite(rows.reshape(len(rows), -1)).all(axis=1))
    if len(bad):
        name = loader.rows.name(int(batch.indices[bad[0]]))
        raise DataError(f"{name}: its activations hold NaN or infinity, which would poison training; check the weights")
    return rows, scales


def _digest(key: dict[str, str]) -> str:
    content = json.dumps({"format": FORMAT, **key}, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:32]


def _entry(path: Path) -> Entry | None:
    store = RowStore(path)
    try:
        described = store.describe()
        if described is None:
            return None
        occupied = sum(file.stat().st_size for file in path.iterdir())
        used = (path / "store.json").stat().st_mtime
        return Entry(path, described["key"], tuple(described["shape"]), len(store.records()), occupied, used)
    except FileNotFoundError:  # removed meanwhile
        return None
    except DataError:  # damaged, and to be seen all the same: it takes room
        occupied = sum(file.stat().st_size for file in path.iterdir())
        return Entry(path, {"network": "damaged"}, (), 0, occupied, (path / "store.json").stat().st_mtime)
