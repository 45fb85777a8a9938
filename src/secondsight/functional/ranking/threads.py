"""A few threads that each work on a block of their own.

Torch splits every operation among its threads and waits for the slowest at the end of each: with dozens of small
operations a block, and other programs on the machine, waiting is most of the time. Threads that take whole blocks
wait once a round.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")
Map = Callable[[Callable[[T], R], Iterable[T]], Iterator[R]]

MOST = 8  # beyond it Python's own lock is what they wait for; a thread then uses several cores for its block


@contextlib.contextmanager
def threads(device: torch.device) -> Iterator[Map]:
    """A ``map`` that calls a function from several threads and yields its results in order; torch's threads are shared
    out among them, and given back at the end. Elsewhere than on a CPU it is the plain ``map``.
    """
    cores = torch.get_num_threads()
    if device.type != "cpu" or cores == 1:
        yield map
        return
    workers = min(cores, MOST)
    torch.set_num_threads(cores // workers)
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(cores // workers,))

    def spread(function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        # Whether gradients are wanted, and inference mode, are settings of a thread: these have the caller's tensors.
        return pool.map(torch.inference_mode()(function), items)

    try:
        yield spread
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(cores)
