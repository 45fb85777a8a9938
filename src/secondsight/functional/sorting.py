"""Sorting rows. On a CPU numpy sorts floats with vector instructions, several times faster than torch does."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


def ascending(x: Float[Tensor, "r b"]) -> Float[Tensor, "r b"]:
    """Each row of x from small to large, without gradient."""
    x = x.detach()
    if x.device.type == "cpu":
        return torch.from_numpy(np.sort(x.numpy(), axis=1))
    return x.sort(dim=1).values


def ascending_with_order(x: Float[Tensor, "r b"]) -> tuple[Float[Tensor, "r b"], Int[Tensor, "r b"]]:
    """Each row of x from small to large, and where in x each entry was."""
    x = x.detach()
    if x.device.type != "cpu" or x.dtype != torch.float32:
        return x.sort(dim=1)
    # A float and its place in one 64-bit integer: sorting those is sorting values, for which numpy is at its fastest.
    packed = (_as_integers(x.numpy()).astype(np.int64) << 32) | np.arange(x.shape[1])
    packed.sort(axis=1)
    values = _as_floats((packed >> 32).astype(np.int32))
    return torch.from_numpy(values), torch.from_numpy(packed & 0xFFFFFFFF)


def _as_integers(x: np.ndarray) -> np.ndarray:
    """float32 as int32 in the same order: the bits of negative floats run backwards, so they are turned round."""
    bits = x.view(np.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


def _as_floats(integers: np.ndarray) -> np.ndarray:
    """The inverse of ``_as_integers``."""
    return (integers ^ ((integers >> 31) & 0x7FFFFFFF)).view(np.float32)


def how_many_below(t: Float[Tensor, "r k"], x: Float[Tensor, "r b"], *, strictly: bool) -> Int[Tensor, "r b"]:
    """For each entry of x the number of entries of t in its row with t < x (or t ≤ x)."""
    if t.shape[1] > _FEW:
        return torch.searchsorted(ascending(t), x.contiguous(), right=not strictly)
    count = torch.zeros_like(x, dtype=torch.long)
    for one in t.unbind(1):
        count += one[:, None] < x if strictly else one[:, None] <= x
    return count


_FEW = 16  # up to here comparing one by one beats a binary search for each entry
