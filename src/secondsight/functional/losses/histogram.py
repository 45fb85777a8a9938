"""The histogram loss (Ustinova & Lempitsky 2016): how far the similarities of negative and positive pairs overlap."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from secondsight.functional.losses.pairs import split_pairs


def soft_histogram(s: Float[Tensor, " n"], *, bins: int) -> Float[Tensor, " nodes"]:
    """The share of s at each of bins + 1 nodes on [−1, 1]; a value is split between its two neighbours (equation 2)."""
    place = (s.clamp(-1, 1) + 1) * (bins / 2)
    # A similarity of exactly 1 (two equal images) belongs to the last bin, not to one after it.
    lower = place.detach().floor().long().clamp_max(bins - 1)
    upper_share = place - lower
    nodes = s.new_zeros(bins + 1).scatter_add(0, lower, 1 - upper_share).scatter_add(0, lower + 1, upper_share)
    return nodes / max(len(s), 1)


def histogram_loss(s: Float[Tensor, "b b"], labels: Int[Tensor, " b"], *, bins: int) -> Float[Tensor, ""]:
    """Σ_r h⁻_r Σ_{q≤r} h⁺_q (equation 5); 0 where there is no positive or no negative pair."""
    h_positive, h_negative = (soft_histogram(pairs, bins=bins) for pairs in split_pairs(s, labels))
    return (h_negative * h_positive.cumsum(0)).sum()
