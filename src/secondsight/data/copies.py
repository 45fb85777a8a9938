"""The same file under two names."""

from __future__ import annotations

import contextlib
import hashlib
from collections import defaultdict
from collections.abc import Sequence

from secondsight.data.imageset import ImageSet
from secondsight.data.loading.decode import DecodeError, read
from secondsight.progress import track


def same_content(images: ImageSet, among: Sequence[int]) -> list[list[int]]:
    """Groups of images with the same bytes. Only files of equal size are read."""
    by_size: dict[int, list[int]] = defaultdict(list)
    for i in among:
        with contextlib.suppress(OSError):  # what cannot be read is no copy of anything
            by_size[images.path(i).stat().st_size].append(i)
    by_content: dict[tuple[int, bytes], list[int]] = defaultdict(list)
    for i, size in track([(i, s) for s, same in by_size.items() if len(same) > 1 for i in same], "comparing"):
        with contextlib.suppress(DecodeError):
            by_content[size, hashlib.blake2b(read(images.path(i)), digest_size=16).digest()].append(i)
    return sorted(group for group in by_content.values() if len(group) > 1)
