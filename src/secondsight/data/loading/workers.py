"""Threads that prepare batches ahead of the one who uses them.

Threads, not processes: reading, JPEG decoding and resizing all release the interpreter's lock, pixels need no copying
between processes, and nothing can be left behind: an error in a thread reaches the one who waits, and there is no
worker that the system could kill alone.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias

import torch

Submit: TypeAlias = "Callable[..., Future[Any]]"


def default_workers() -> int:
    """One for each core that this process may use, up to eight."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(8, cores)


@contextlib.contextmanager
def threads(count: int) -> Iterator[Submit]:
    """``submit(function, *arguments)`` to ``count`` threads; with none, the function runs at once, where it is called.

    On leaving, what has not begun is dropped. Each thread lets torch use itself only: otherwise every small operation
    would wake a team of its own, and two workers on two cores would fight.
    """
    if count == 0:
        yield _at_once
        return
    outside = torch.get_num_threads()
    ready = threading.Barrier(count + 1)

    def begin() -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # a thread takes over the setting when it first asks for it, not when it sets it
        ready.wait()

    pool = ThreadPoolExecutor(count, thread_name_prefix="secondsight-data", initializer=begin)
    try:
        try:
            for _ in range(count):
                pool.submit(int)  # the pool starts a thread for each task while none is idle
            ready.wait()
        except BaseException:
            ready.abort()
            raise
        finally:
            # The call above also became the default for threads that meet torch later; say again what was there before.
            torch.set_num_threads(outside)
        yield pool.submit
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _at_once(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    future: Future[Any] = Future()
    try:
        future.set_result(function(*arguments))
    except Exception as error:
        future.set_exception(error)
    return future
