"""A batch walked over a few images at a time."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

NUMBERS = 2**19
"""Numbers worked on together: 2 MB in float32, so that they stay in the cache from one step to the next."""


def image_slices(x: Tensor, numbers: int | None = None) -> Iterator[slice]:
    """Slices of the first dimension of ``x`` that hold about ``numbers`` (NUMBERS) each, and one image at least."""
    images = max(1, (numbers or NUMBERS) // max(1, x.shape[1:].numel()))
    return (slice(start, start + images) for start in range(0, len(x), images))
