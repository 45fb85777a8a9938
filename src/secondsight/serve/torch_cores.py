"""How many cores torch uses in one thread."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch

_ONE = threading.Lock()


@contextlib.contextmanager
def limited(cores: int) -> Iterator[None]:
    """Torch on so many cores in this thread; other threads, those that begin later too, have what they had."""
    with _ONE:
        before = torch.get_num_threads()
        torch.set_num_threads(cores)
        torch.get_num_threads()  # a thread takes over the setting when it first asks for it, not when it sets it
        # The setting also became that of threads which meet torch later: another one says again what it was before.
        again = threading.Thread(target=torch.set_num_threads, args=(before,))
        again.start()
        again.join()
    try:
        yield
    finally:
        torch.set_num_threads(before)
