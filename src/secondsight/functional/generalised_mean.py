"""The generalised mean over locations: average at p = 1, maximum as p → ∞."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def generalised_mean(
    x: Float[Tensor, "b l d"],
    p: Float[Tensor, " p"],
    mask: Bool[Tensor, "b l"] | None = None,
    *,
    eps: float = 1e-6,
) -> Float[Tensor, "b d"]:
    """(1/L Σ_l max(x_l, eps)^p)^{1/p} of every channel; ``p`` is one number or one for each channel.

    Worked in logarithms, exp((logsumexp_l(p·log x_l) − log L) / p), which no p over- or underflows, and which is faster
    than powers. An image without locations gives zeros.
    """
    if x.shape[1] == 0:
        return x.sum(1)
    scaled = p * x.clamp_min(eps).log()
    count = torch.tensor(x.shape[1], device=x.device, dtype=x.dtype)
    if mask is not None:
        # Very low instead of −∞: an image with no location then gives e^very low = 0, and no gradient is NaN.
        scaled = scaled.masked_fill(~mask[..., None], torch.finfo(x.dtype).min / 2)
        count = mask.sum(1, keepdim=True).clamp_min(1).to(x.dtype)
    return ((scaled.logsumexp(1) - count.log()) / p).exp()
