"""Covariance of an image's local features."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor

from secondsight.functional.pooling.gram import gram


def covariance(x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None = None) -> Float[Tensor, "b d d"]:
    """Σ = 1/L Σ_l (x_l − μ)(x_l − μ)ᵀ over the real locations; ``x`` is zero where masked out.

    Centred before the product: 1/L XᵀX − μμᵀ would cancel where the mean is large beside the deviations.
    """
    if mask is None:
        count = x.new_full((), max(1, x.shape[1]))  # not new_tensor: an exporter would write the number down
        centred = x - x.sum(1, keepdim=True) / count
    else:
        count = mask.sum(1).clamp_min(1).to(x.dtype)[:, None, None]
        centred = (x - x.sum(1, keepdim=True) / count).masked_fill(~mask[..., None], 0)
    return gram(centred * count.rsqrt())
