"""From rows to batches: prefetched by threads, in the sampler's order, without what cannot be read."""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from secondsight.data.loading.decode import DecodeError, ReadError
from secondsight.data.loading.failures import Failures
from secondsight.data.loading.samplers import BatchSampler, Sequential
from secondsight.data.loading.workers import Submit, default_workers, threads
from secondsight.errors import ConfigError, DataError, SecondsightError


@dataclass(frozen=True, eq=False)
class Batch:
    """Images (or what was cached of them), their labels where there are any, and their numbers in the set."""

    images: Tensor  # (b, 3, S, S) uint8, or activations (b, …) float32
    labels: Tensor | None  # (b,) int64
    indices: Tensor  # (b,) int64

    def __len__(self) -> int:
        return len(self.indices)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """The same on another device; ``indices`` stay where they are."""
        images = self.images.to(device, non_blocking=non_blocking)
        labels = None if self.labels is None else self.labels.to(device, non_blocking=non_blocking)
        return replace(self, images=images, labels=labels)

    def pin_memory(self) -> Batch:
        """The same in page-locked memory, from where a GPU fetches without waiting."""
        labels = None if self.labels is None else self.labels.pin_memory()
        return replace(self, images=self.images.pin_memory(), labels=labels)


class RowSource(Protocol):
    """What batches are made of: one row per image."""

    @property
    def labels(self) -> np.ndarray | None: ...

    def __len__(self) -> int: ...

    def name(self, index: int) -> str:
        """For messages: the file."""
        ...

    def empty(self, count: int) -> Tensor:
        """Memory for ``count`` rows."""
        ...

    def read_into(self, row: Tensor, index: int, epoch: int) -> None:
        """Fill a row; ``DecodeError`` where that cannot be done. Called from several threads."""
        ...


class BatchLoader:
    """Iterate over the batches of an epoch. Order and content do not depend on the number of workers.

    Args:
        rows: what batches are made of.
        batches: a batch sampler; or give ``batch_size`` for all rows in order.
        workers: threads that prepare batches; 0 prepares each when it is asked for. Default: one a core, up to eight.
        prefetch: batches prepared ahead.
        strict: a row that cannot be read is an error. Otherwise it is listed in ``failures``, and the batch comes
            without it, or with ``substitute``
        substitute: with another image of its class in its place: the next one in the set that is not in the batch, or
            that is, when all are. Only when the whole class is unreadable the batch comes without.
        pin_memory: put batches into page-locked memory.
        patient: go on when nothing at all could be read so far. Otherwise that is an error: most likely it is the wrong
            folder.

    There is one ``Batch`` for every batch of the sampler, so processes that share a run stay in step; it may be empty.
    """

    def __init__(
        self,
        rows: RowSource,
        *,
        batches: BatchSampler | None = None,
        batch_size: int | None = None,
        workers: int | None = None,
        prefetch: int = 4,
        strict: bool = False,
        substitute: bool = False,
        pin_memory: bool = False,
        patient: bool = False,
    ):
        if (batches is None) == (batch_size is None):
            raise ConfigError("a loader takes either batches (a sampler) or batch_size, not both and not neither")
        if (workers or 0) < 0 or prefetch < 1:
            raise ConfigError(f"workers must be 0 or more and prefetch 1 or more, got {workers} and {prefetch}")
        if substitute and rows.labels is None:
            raise ConfigError("substitute needs labels to find an image of the same class, and these images have none")
        self.rows = rows
        self.batches = batches if batches is not None else Sequential(len(rows), batch_size or 0)
        self.workers = default_workers() if workers is None else workers
        self.prefetch = prefetch
        self.strict = strict
        self.substitute = substitute
        self.pin_memory = pin_memory
        self.failures = Failures()
        self._any_read = patient

    def __len__(self) -> int:
        return len(self.batches)

    def _memory(self, count: int) -> Tensor:
        """Rows to write into. Ordinary ones also under ``torch.inference_mode``, which the threads that write know
        nothing of.
        """
        with torch.inference_mode(False):
            return self.rows.empty(count)

    def __iter__(self) -> Iterator[Batch]:
        first, epoch = self.batches.begin(), self.batches.epoch
        depth = self.prefetch if self.workers else 0
        ahead: deque[_Pending] = deque()
        stop = threading.Event()
        try:
            with threads(self.workers) as submit:
                for number in range(first, len(self.batches)):
                    ahead.append(self._start(submit, number, epoch, stop))
                    if len(ahead) > depth:
                        yield self._deliver(ahead.popleft())
                while ahead:
                    yield self._deliver(ahead.popleft())
        finally:
            stop.set()

    def _start(self, submit: Submit, number: int, epoch: int, stop: threading.Event) -> _Pending:
        indices = np.asarray(self.batches[number], np.int64)
        if len(indices) and not 0 <= indices.min() <= indices.max() < len(self.rows):
            raise DataError(
                f"the sampler asks for image {indices.max()}, but there are {len(self.rows):,}; "
                "was it made for another set?"
            )
        images = self._memory(len(indices))
        piece = max(1, min(16, -(-len(indices) // max(1, self.workers))))
        slots = [range(i, min(i + piece, len(indices))) for i in range(0, len(indices), piece)]
        return _Pending(number, images, [submit(self._fill, images, indices, s, epoch, stop) for s in slots])

    def _deliver(self, pending: _Pending) -> Batch:
        used = np.array([index for part in pending.parts for index in part.result()], np.int64)
        images, read = pending.images, used >= 0
        self._any_read |= bool(read.any())
        if not read.all():
            if not self._any_read:
                worst = next(iter(self.failures))
                raise DataError(f"none of the first {len(used)} images could be read; {worst.path}: {worst.cause}")
            used, images = used[read], self._memory(int(read.sum())).copy_(images[torch.from_numpy(read)])
        labels = None if self.rows.labels is None else torch.from_numpy(np.asarray(self.rows.labels, np.int64)[used])
        batch = Batch(images, labels, torch.from_numpy(used))
        self.batches.position = pending.number + 1
        return batch.pin_memory() if self.pin_memory else batch

    def _fill(self, images: Tensor, indices: np.ndarray, slots: range, epoch: int, stop: threading.Event) -> list[int]:
        """Read the rows of some slots; the image that each now holds, −1 where there is none."""
        used = []
        for slot in slots:
            if stop.is_set():
                break
            wanted = int(indices[slot])
            held = self._read(images[slot], wanted, epoch)
            if not held and self.substitute:
                others = self._others(wanted, indices)
                wanted = next((other for other in others if self._read(images[slot], other, epoch)), -1)
                held = wanted >= 0
            used.append(wanted if held else -1)
        return used

    def _read(self, row: Tensor, index: int, epoch: int) -> bool:
        try:
            try:
                self.rows.read_into(row, index, epoch)
            except MemoryError as error:
                raise ReadError(self.rows.name(index), "there is not enough memory to prepare it") from error
        except DecodeError as error:
            self.failures.add(index, error.source, error.cause, lasting=error.lasting)
            if self.strict:
                raise
            return False
        except SecondsightError:
            raise
        except Exception as error:
            raise DataError(f"{self.rows.name(index)}: {type(error).__name__} while preparing it: {error}") from error
        return True

    def _others(self, index: int, batch: np.ndarray) -> list[int]:
        """The images of the same class from ``index`` on, round and round; those in the batch already come last."""
        labels, order, start = self._by_class
        label = labels[index]
        same = order[start[label] : start[label + 1]]
        after = np.roll(same, -(int(np.searchsorted(same, index)) + 1))[:-1]
        present = np.isin(after, batch)
        return np.concatenate([after[~present], after[present]]).tolist()

    @functools.cached_property
    def _by_class(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        _, labels, counts = np.unique(np.asarray(self.rows.labels), return_inverse=True, return_counts=True)
        return labels, np.argsort(labels, kind="stable"), np.concatenate([[0], np.cumsum(counts)])


@dataclass
class _Pending:
    """A batch under way."""

    number: int
    images: Tensor
    parts: list[Future[list[int]]]
