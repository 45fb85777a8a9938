"""Covariance of an image's local features, and symmetric matrices as vectors."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from secondsight.functional.pooling.gram import gram


def covariance(x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None = None) -> Float[Tensor, "b d d"]:
    """Σ = 1/L Σ_l (x_l − μ)(x_l − μ)ᵀ over the real locations; ``x`` is zero where masked out.

    Centred before the product: 1/L XᵀX − μμᵀ would cancel where the mean is large beside the deviations.
    """
    if mask is None:
        count = x.new_tensor(max(1, x.shape[1]))
        centred = x - x.sum(1, keepdim=True) / count
    else:
        count = mask.sum(1).clamp_min(1).to(x.dtype)[:, None, None]
        centred = (x - x.sum(1, keepdim=True) / count).masked_fill(~mask[..., None], 0)
    return gram(centred * count.rsqrt())


def upper_triangle(m: Float[Tensor, "b d d"], *, isometric: bool = False) -> Float[Tensor, "b t"]:
    """The d(d+1)/2 different numbers of a symmetric matrix, row by row.

    ``isometric`` multiplies those off the diagonal by √2, so that inner products are those of the whole matrices.

    >>> upper_triangle(torch.tensor([[[1.0, 2.0], [2.0, 3.0]]]))
    tensor([[1., 2., 3.]])
    """
    d = m.shape[-1]
    row, column = torch.triu_indices(d, d, device=m.device)
    v = m.flatten(1).index_select(1, row * d + column)
    return v * torch.where(row == column, 1.0, 2**0.5).to(m.dtype) if isometric else v
