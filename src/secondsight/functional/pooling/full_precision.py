"""Full precision where half would not do: decompositions, transforms, sums of products that cancel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor


def widened(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """``x`` as float32 or wider."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


@contextmanager
def full_precision(x: Float[Tensor, "*shape"]) -> Iterator[Float[Tensor, "*shape"]]:
    """``x`` as float32 or wider, with autocast off inside the block.

    >>> with full_precision(torch.ones(2, dtype=torch.bfloat16)) as x:
    ...     x.dtype
    torch.float32
    """
    with torch.autocast(x.device.type, enabled=False):
        yield widened(x)
