"""Symmetric matrices as vectors."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


def upper_triangle(m: Float[Tensor, "*s d d"], *, isometric: bool = False) -> Float[Tensor, "*s t"]:
    """The d(d+1)/2 different numbers of a symmetric matrix, row by row.

    ``isometric`` multiplies those off the diagonal by √2, so that inner products are those of the whole matrices.

    >>> upper_triangle(torch.tensor([[1.0, 2.0], [2.0, 3.0]])), upper_triangle(torch.ones(2, 2), isometric=True)
    (tensor([1., 2., 3.]), tensor([1.0000, 1.4142, 1.0000]))
    """
    d = m.shape[-1]
    row, column = torch.triu_indices(d, d, device=m.device)
    v = m.flatten(-2).index_select(-1, row * d + column)
    if not isometric:
        return v
    return v.mul_(m.new_full(row.shape, 2**0.5).masked_fill(row == column, 1))
