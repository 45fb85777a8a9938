"""Sums over pieces whose insides are formed again for the backward pass instead of being kept.

A second-order layer passes through intermediates much wider than its input and its output: L·D numbers an image for a
sketch, d² for a Gram matrix. Working on a piece at a time bounds them, recomputing them keeps the bound in training.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

BUDGET = 4 << 20
"""Numbers an intermediate may hold at a time (16 MB in float32): near the cache, and never a change of the result."""


def pieces(x: Float[Tensor, " n *rest"], width: int, *, budget: int = BUDGET) -> tuple[Tensor, ...]:
    """``x`` split along its first dimension so that ``width`` numbers for each item stay within ``budget``.

    >>> [len(p) for p in pieces(torch.zeros(10, 3), 100, budget=400)]
    [4, 4, 2]
    """
    if torch.compiler.is_exporting():  # a loop over pieces would be unrolled, and bind the program to their number
        return (x,)
    return x.split(max(1, budget // max(1, width)))


def symbolic(*sizes: int) -> bool:
    """Whether a size is an exporter's symbol: to choose the cheaper of two forms by it would bind the program to it."""
    return any(isinstance(size, torch.SymInt) for size in sizes)


def recomputed(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """``function(x)``; while training, only ``x`` is kept and the rest is computed again in the backward pass."""
    if torch.is_grad_enabled() and not torch.compiler.is_exporting():
        out = checkpoint(function, x, use_reentrant=False, preserve_rng_state=False)
        assert isinstance(out, Tensor)
        return out
    return function(x)


def by_pieces(
    function: Callable[[Tensor], Tensor], x: Float[Tensor, " n *rest"], width: int
) -> Float[Tensor, " n *out"]:
    """``function(x)`` for a function of each item alone, ``width`` numbers an item being formed on the way."""
    if torch.compiler.is_exporting() or len(x) == 0:
        return function(x)
    return torch.cat([recomputed(function, piece) for piece in pieces(x, width)])
