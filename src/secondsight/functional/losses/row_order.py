"""Order inside rows. On a CPU numpy sorts and finds maxima with vector instructions, much faster than torch does."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

_FEW = 16  # up to so many values a row, looking at each in turn beats sorting and binary search


def ascending(x: Float[Tensor, "r b"]) -> Float[Tensor, "r b"]:
    """Each row of x from small to large, without gradient."""
    x = x.detach()
    if x.device.type == "cpu":
        return torch.from_numpy(np.sort(x.numpy(), axis=1))
    return x.sort(dim=1).values


def how_many_below(t: Float[Tensor, "r k"], x: Float[Tensor, "r b"], *, strictly: bool) -> Int[Tensor, "r b"]:
    """For each entry of x the number of entries of t in its row with t < x (or t ≤ x)."""
    if t.shape[1] > _FEW:
        return torch.searchsorted(ascending(t), x.contiguous(), right=not strictly, out_int32=True)
    count = torch.zeros_like(x, dtype=torch.int32)
    for one in t.unbind(1):
        count += one[:, None] < x if strictly else one[:, None] <= x
    return count


def largest_below(x: Float[Tensor, "r b"], t: Float[Tensor, "r k"]) -> tuple[Int[Tensor, "r k"], Bool[Tensor, "r k"]]:
    """For each entry of t where in its row of x the largest value below it is, and whether there is one."""
    x, t = x.detach(), t.detach()
    if x.device.type == "cpu" and 0 < t.shape[1] <= _FEW:
        values = x.numpy()
        places = [np.where(values < one, values, -np.inf).argmax(1) for one in t.numpy().T[..., None]]
        index = torch.from_numpy(np.stack(places, axis=1))
        return index, x.gather(1, index) < t
    in_order, order = x.sort(dim=1)
    below = torch.searchsorted(in_order, t.contiguous())
    return order.gather(1, (below - 1).clamp_min(0)), below > 0
