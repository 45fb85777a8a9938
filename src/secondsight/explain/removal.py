"""The similarity without one place, for every place: exact, and without another pass of the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from secondsight.explain import algebra
from secondsight.model.views import VIEWS, turned_back
from secondsight.pooling import JCF, Average, Bilinear, Pooling
from secondsight.pooling.compact_bilinear import RandomMaclaurin, TensorSketch
from secondsight.pooling.factorized import FactorizedBilinear
from secondsight.pooling.fisher import FisherNet, FisherVector
from secondsight.pooling.lowrank import LowRankBilinear
from secondsight.pooling.mfa import MFAFV, MFAFVNet
from secondsight.pooling.projection import Projected
from secondsight.pooling.vlad import VLAD, NetVLAD

SUMS = (
    Average,
    Bilinear,
    RandomMaclaurin,
    TensorSketch,
    FactorizedBilinear,
    LowRankBilinear,
    VLAD,
    NetVLAD,
    FisherVector,
    FisherNet,
    MFAFV,
    MFAFVNet,
)
"""Poolings whose places do not see each other, but for a count that all are divided by: without place l, where they are
additive, z points along z − p_l.
"""

if TYPE_CHECKING:
    from secondsight.explain.places import Places

AT_ONCE = 32
"""Images (each without one place) that are pooled at a time, where sums do not tell."""


@torch.no_grad()
def left_out(places: Places, other: Float[Tensor, " d"]) -> Float[Tensor, " l"]:
    """What the similarity to the unit vector ``other`` loses without each place: cos − cos_without. Sums to anything.

    The pooling sees one place less, in each view. Where z is a plain sum its rest is z − z_l; a power and a matrix then
    follow again. Poolings whose places depend on each other (attention, neighbours, covariances) are run again on the
    other places, from the features that are there already.
    """
    rest = _rest(places)  # (L, D) without each place
    g = algebra.unit_scale(rest, places.model.config.normalise)
    lost = places.unit @ other - (g * rest) @ other
    return lost if places.mask is None else lost.masked_fill(~places.mask, 0.0)


def _rest(places: Places) -> Float[Tensor, "l d"]:
    pooling = places.model.pooling
    if isinstance(pooling, JCF) and all(VIEWS[view].aligned for view in places.model.views):
        return _without(places, pooling)
    if places.additive and isinstance(_projected(pooling), SUMS):
        return places.z - places.required()  # a mean over one place less has the same direction
    return _pooled_again(places)


def _projected(pooling: Pooling) -> Pooling:
    """What a linear projection follows; principal axes take a mean off, which does not shrink with the places."""
    return pooling.pooling if isinstance(pooling, Projected) and pooling.method == "linear" else pooling


def _without(places: Places, pooling: JCF) -> Float[Tensor, "l d"]:
    """JCF: ending((Σ − z_l)), view by view."""
    x, masks = places.model.reduced(places.features), places.masks
    parts = pooling.summands(x, masks)
    sums = parts.sum(1, keepdim=True) - parts  # (V, L, K)
    if pooling.reduce == "mean":
        count = parts.shape[1] if masks is None else masks.sum(1)[:, None, None]
        sums = sums * count / (torch.as_tensor(count) - 1).clamp_min(1)
    ended = torch.stack([pooling.ending(view) for view in sums])
    if places.model.keep is not None:
        ended = ended @ places.model.keep
    return turned_back(ended.double(), places.grid, places.model.views).mean(0).cpu()


def _pooled_again(places: Places) -> Float[Tensor, "l d"]:
    count = len(places)
    real = torch.ones(count, dtype=torch.bool) if places.mask is None else places.mask
    rest = []
    for start in range(0, count, AT_ONCE):
        which = torch.arange(start, min(count, start + AT_ONCE))
        masks = real.repeat(len(which), 1)
        masks[torch.arange(len(which)), which] = False
        rest.append(places.pooled(masks))
    return torch.cat(rest)
