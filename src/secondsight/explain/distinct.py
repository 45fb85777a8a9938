"""What sets a match apart: the part of each share that other pictures would not get.

Any two pictures share something: a ground, edges, what all features have in common. That is in the cosine, so an exact
explanation must hold it; it is not why *these* two match. Place l gives ⟨p_l, u_b⟩ to b, and ⟨p_l, u_o⟩ to any other
picture o of a collection. With t_l the q-quantile of the latter,

    share_l = usual_l + distinct_l,      usual_l = min(share_l, t_l),      distinct_l = max(0, share_l − t_l) ,

both of which add up, place by place, to the similarity. Of the other pictures only vectors are needed.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from secondsight.errors import ConfigError, ShapeError

QUANTILE = 0.99
"""What 99 of 100 pictures get is usual; the others may show the same thing (benchmarks/explain_truth.py)."""


def distinct(
    p: Float[Tensor, "l d"], to: Float[Tensor, " d"], others: np.ndarray, *, quantile: float = QUANTILE
) -> Float[Tensor, " l"]:
    """What each place gives to one picture beyond what it gives to nearly all others; none is negative.

    Args:
        p: Scaled contributions of an image's places.
        to: The unit vector of the picture that is explained.
        others: (n, d) unit vectors of other pictures; some dozens will do.
        quantile: Of what ``others`` get; up to there it is usual.
    """
    given = p @ torch.from_numpy(np.ascontiguousarray(others)).to(p).mT
    return (p @ to - torch.quantile(given, quantile, dim=1)).clamp_min(0)


def checked(others: np.ndarray, dim: int) -> np.ndarray:
    """Vectors of other pictures, or an error that says what they should be."""
    if others.ndim != 2 or others.shape[1] != dim:
        raise ShapeError(f"other pictures are vectors (n, {dim}) of the same model, got {others.shape}")
    if not len(others):
        raise ConfigError("there are no other pictures: only they show what is usual")
    return others
