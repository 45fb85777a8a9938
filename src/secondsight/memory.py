"""What becomes of memory that is freed: a training run keeps it, a server gives it back.

A network on a CPU allocates and frees the same large tensors at every step. glibc's malloc takes each of them from the
system and gives it back at once, and the system hands out zeroed pages one fault at a time: a million faults or more
for a step of a small network at batch 64, and two fifths of its time or more. Told to keep what it has, malloc finds
them in its heap.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # of <malloc.h>


def keep_freed() -> bool:
    """Let malloc reuse freed memory for the rest of this process; whether it could be told.

    The process then holds what it needed at its peak, plus a quarter to a half that is lost between blocks. Only glibc
    has this; ``MALLOC_MMAP_MAX_`` in the environment, or another allocator before it (``LD_PRELOAD``), says that the
    user has chosen already.
    """
    return _allowed("MALLOC_MMAP_MAX_", (_MMAP_MAX, 0), (_TRIM_THRESHOLD, -1))


def one_heap() -> bool:
    """Let every thread that is started from now on take its memory from the first one's heap.

    glibc gives other threads heaps of 64 MB, and returns each as soon as it is empty, whatever it was told: a network
    in such a thread faults as if nothing were kept. ``MALLOC_ARENA_MAX`` in the environment is the user's choice.
    """
    return _allowed("MALLOC_ARENA_MAX", (_ARENA_MAX, 1))


def _allowed(variable: str, *options: tuple[int, int]) -> bool:
    if not sys.platform.startswith("linux") or variable in os.environ or os.environ.get("LD_PRELOAD"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # musl has none
        return False
    return all(bool(mallopt(option, value)) for option, value in options)


def give_back() -> None:
    """Return what malloc keeps free to the system, wherever in its heaps it lies.

    Tensors of ever other sizes, and the few that are kept among them, leave holes: a server would grow for hours.
    """
    if sys.platform.startswith("linux"):
        with contextlib.suppress(AttributeError, OSError):  # musl has none
            ctypes.CDLL(None).malloc_trim(0)
