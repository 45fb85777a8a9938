"""How many locations an image has, where a mask may say that some are not real."""

from __future__ import annotations

from jaxtyping import Bool, Float
from torch import Tensor


def location_count(
    x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None, *, least: int = 1
) -> Float[Tensor, "b 1"]:
    """Real locations of every image, and never fewer than ``least``: what a mean over them divides by."""
    count = x.new_full((x.shape[0], 1), x.shape[1]) if mask is None else mask.sum(1, keepdim=True).to(x.dtype)
    return count.clamp_min(least)


def location_shares(x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None) -> Float[Tensor, "b l"]:
    """What each location counts in a mean over its image's real ones: 1/L, or 0 where it is not real."""
    shares = 1 / location_count(x, mask).expand(x.shape[:2])
    return shares if mask is None else shares.masked_fill(~mask, 0)
