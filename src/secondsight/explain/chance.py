"""Evidence beyond chance: links that are stronger than what the same places have with pictures that do not match.

Any two pictures share something: a ground, edges, what all features have in common. These links are part of the cosine,
so an exact explanation holds them; they are not why *these* two match. With t_l the q-quantile of place l's links to
the places of other pictures,

    R_lm = max(0, P_lm − max(t_l, t_m)),

what is left is rare for both places. It does not sum to the similarity: it is a reading of the links, not another sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from secondsight.errors import ConfigError
from secondsight.explain import algebra

if TYPE_CHECKING:
    from torch import Tensor

    from secondsight.explain.explanation import Explanation
    from secondsight.explain.places import Places

QUANTILE = 0.99
"""Of a place's links to others: on collages, 99 of 100 leave 83 to 97 % of what is left on the shared object
(benchmarks/explain_truth.py).
"""


class Rare(NamedTuple):
    """What is left of an explanation's links, and their sums by place."""

    links: np.ndarray  # (L_a, L_b), none negative
    a: np.ndarray  # (h, w)
    b: np.ndarray


def beyond_chance(why: Explanation, others: Sequence[Places], *, quantile: float = QUANTILE) -> Rare:
    """The evidence of a match that pictures which do not match lack.

    Args:
        why: An exact explanation.
        others: Places of pictures by the same model that show something else; a dozen from the collection will do.
        quantile: Of the links that a place has with ``others``; what is below counts for nothing.
    """
    if why.links is None:
        raise ConfigError("an approximated explanation has no links that could be compared with those of others")
    if not others:
        raise ConfigError("give places of some pictures that do not match: only other pictures show what is rare")
    if not 0 < quantile < 1:
        raise ConfigError(f"a quantile lies between 0 and 1, got {quantile}")
    model = why.places_a.model
    if any(o.model is not model and o.model.fingerprint() != model.fingerprint() for o in others):
        raise ConfigError("the other pictures' places were made by another model; only vectors of one can be compared")
    common = torch.cat([other.scaled for other in others])
    links = algebra.links(why.places_a.scaled, why.places_b.scaled)
    usual_a, usual_b = (_usual(here.scaled, common, quantile) for here in (why.places_a, why.places_b))
    rare = (links - torch.maximum(usual_a[:, None], usual_b[None])).clamp_min(0)
    return Rare(rare.numpy(), rare.sum(1).view(why.places_a.grid).numpy(), rare.sum(0).view(why.places_b.grid).numpy())


def _usual(p: Tensor, common: Tensor, quantile: float) -> Tensor:
    """(L,) the quantile of each place's links to ``common`` (m, d)."""
    links = algebra.links(p, common)
    rank = min(links.shape[1], 1 + int(quantile * links.shape[1]))
    return links.kthvalue(rank, dim=1).values
