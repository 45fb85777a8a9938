"""Memory that is freed stays with the process.

A network on a CPU allocates and frees the same large tensors at every step. glibc's malloc takes each of them from the
system and gives it back at once, and the system hands out zeroed pages one fault at a time: a million faults or more
for a step of a small network at batch 64, and two fifths of its time or more. Told to keep what it has, malloc finds
them in its heap.
"""

from __future__ import annotations

import ctypes
import os
import sys

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of <malloc.h>


def keep_freed() -> bool:
    """Let malloc reuse freed memory for the rest of this process; whether it could be told.

    The process then holds what it needed at its peak, plus a quarter to a half that is lost between blocks. Only glibc
    has this; ``MALLOC_MMAP_MAX_`` in the environment, or another allocator before it (``LD_PRELOAD``), says that the
    user has chosen already.
    """
    if not sys.platform.startswith("linux") or "MALLOC_MMAP_MAX_" in os.environ or os.environ.get("LD_PRELOAD"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # musl has none
        return False
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, -1))
