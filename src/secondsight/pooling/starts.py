"""What JCF can start as, and what the features themselves say about it."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from secondsight.errors import ConfigError

STARTS = ("random", "average", "saliency", "square")

COMMON = 0.01
"""Share of the features' energy in their mean below which it says nothing about a location."""


def strongest(channels: Float[Tensor, "d c"], points: Float[Tensor, "n d"], k: int) -> Float[Tensor, "d k"]:
    """The k channels of most energy, in their order."""
    energy = (channels * (points.T @ points @ channels)).sum(0)
    return channels[:, energy.topk(k).indices.sort().values]


def saliency(points: Float[Tensor, "n d"]) -> Float[Tensor, " d"]:
    """s = E[x] / ‖E[x]‖², for which E⟨s, x⟩ = 1."""
    mean = points.mean(0)
    energy, all_of_it = mean.square().sum(), points.square().sum(1).mean()
    if not energy > COMMON * all_of_it:
        share = (energy / all_of_it).item()
        raise ConfigError(
            f"start = 'saliency' needs features with a mean direction, but their mean holds {share:.2%} of their "
            f"energy (at least {COMMON:.0%} is needed); start as 'average' or 'square'"
        )
    return mean / energy
