"""Poolings that are not a sum over places: integrated gradients of the dot product, an approximation.

Sundararajan, Taly, Yan, "Axiomatic attribution for deep networks", ICML 2017. With the length of z_a and the other
image's unit vector held fixed, along the straight line from no features to the image's (after the reduction),

    share_l = Σ_c x_lc ∫₀¹ ∂⟨g_a ∘ f(αx), u_b⟩ / ∂x_lc dα .

They sum to the similarity less what f gives for no features, up to the error of the integral; for an additive pooling
that is linear in x they are its shares. The cosine itself would not do: along that line it hardly changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from secondsight.evaluation_mode import evaluating
from secondsight.explain import algebra
from secondsight.extras import require
from secondsight.model.views import turned_back

if TYPE_CHECKING:
    from secondsight.explain.explanation import Explanation
    from secondsight.explain.places import Places

STEPS = 32
"""Points on the line, by Gauss and Legendre."""


def pair(a: Places, b: Places, *, steps: int = STEPS) -> Explanation:
    """Maps of two images whose pooling is no sum over places; there are no links."""
    from secondsight.explain.explanation import Explanation

    parts = a.model.config.normalise
    similarity = float(a.unit @ b.unit)
    maps = [integrated(here, other.unit, steps=steps) for here, other in ((a, b), (b, a))]
    effects = [
        integrated(here, algebra.slope(here.unit, other.unit, parts), steps=steps) for here, other in ((a, b), (b, a))
    ]
    errors = [similarity - float(values.sum()) for values in maps]
    return Explanation(
        similarity=similarity,
        links=None,
        a=maps[0],
        b=maps[1],
        effect_a=effects[0],
        effect_b=effects[1],
        places_a=a,
        places_b=b,
        method="integrated gradients",
        error=max(errors, key=abs),
    )


def integrated(places: Places, direction: Float[Tensor, " d"], *, steps: int = STEPS) -> np.ndarray:
    """(h, w): what each place adds to ⟨u, direction⟩, by integrated gradients over its reduced features."""
    captum = require("captum.attr", extra="explain", purpose="explaining a pooling that is not a sum over places")
    model, grid = places.model, places.grid
    with torch.no_grad():
        x = model.reduced(places.features)  # (V, L, d)
    masks = places.masks
    towards = (places.scale * direction).to(x)

    def score(values: Tensor) -> Tensor:
        """(n, V, L, d) → (n,)."""
        rows = values.flatten(0, 1)
        z = model.pooling(rows, None if masks is None else masks.repeat(len(values), 1), grid=grid)
        z = z if model.keep is None else z @ model.keep
        return z.unflatten(0, values.shape[:2]).mean(1) @ towards

    with evaluating(model.pooling):
        found = captum.IntegratedGradients(score).attribute(
            x[None], baselines=torch.zeros_like(x[None]), n_steps=steps, internal_batch_size=8
        )
    shares = torch.nan_to_num(found[0].detach().double().sum(-1))  # (V, L)
    return turned_back(shares, grid, model.views).sum(0).view(grid).cpu().numpy()
