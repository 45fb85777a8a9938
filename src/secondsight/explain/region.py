"""A part of an image as a query: three ways to make its vector.

sum      Σ_l w_l p_l, with w_l the part of place l that lies in the region: its score is exactly the region's share
masked   the pooling again, on the region's places only: a power then acts on the region's own sums
crop     the pixels of the region through the whole network again: the only way that has not seen the surroundings
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from secondsight.errors import ConfigError, DataError, require_known
from secondsight.explain import algebra
from secondsight.explain.geometry import checked_box

if TYPE_CHECKING:
    from torch import Tensor

    from secondsight.explain.places import Places

DEFAULT = "masked"
"""By a bird's head it finds the species more often than the sum, by an emoji in a collage nearly as often; cropping is
behind both (benchmarks/explain_parts.py; figures in docs/explaining.md).
"""


def query(places: Places, where: Any, *, method: str = DEFAULT) -> np.ndarray:
    """The unit vector (D,) float32 of a region of ``places``: a box in fractions of the original, or a mask over it."""
    z = METHODS[require_known("way to make a region's vector", method, METHODS)](places, where)
    norm = z.norm()
    if norm < algebra.TINY:
        raise DataError(f"{places.name}: nothing in this region has a direction; take a larger one")
    return (algebra.unit_scale(z, places.model.config.normalise) * z).float().numpy()


def weights(places: Places, where: Any) -> np.ndarray:
    """(h, w): the part of each place that lies in a box or a mask; at least something must."""
    if isinstance(where, np.ndarray) and where.ndim == 2:
        cover = places.frame.covered(where)
    else:
        cover = places.frame.coverage(checked_box(where))
    if cover.max(initial=0.0) <= 0:
        left, top, right, bottom = places.frame.seen
        raise ConfigError(
            f"{places.name}: the region holds no place that the model looked at; it saw {left:.2f},{top:.2f},"
            f"{right:.2f},{bottom:.2f} of the image"
        )
    return cover


def _sum(places: Places, where: Any) -> Tensor:
    w = torch.from_numpy(weights(places, where)).flatten()
    return w @ places.required()


def inside(places: Places, where: Any) -> Tensor:
    """(L,) bool: places that lie in the region by half or more; if none does, those that do most."""
    w = torch.from_numpy(weights(places, where)).flatten()
    mask = w >= min(0.5, float(w.max()))
    return mask if places.mask is None else mask & places.mask


def _masked(places: Places, where: Any) -> Tensor:
    views = places.seen(inside(places, where))
    with torch.no_grad():
        return places.model.pool(places.features, views, grid=places.grid).double().mean(0).cpu()


def _crop(places: Places, where: Any) -> Tensor:
    from secondsight.data.loading.transforms import Resize
    from secondsight.explain.places import places as places_of

    if places.pixels is None:
        raise DataError(f"{places.name}: its pixels are not kept, so they cannot be cropped; use method='sum'")
    height, width = places.pixels.shape[:2]
    if isinstance(where, np.ndarray) and where.ndim == 2:
        ys, xs = np.nonzero(where)
        if not len(ys):
            raise ConfigError(f"{places.name}: the region is empty")
        high, wide = where.shape
        box = xs.min() / wide, ys.min() / high, (xs.max() + 1) / wide, (ys.max() + 1) / high
    else:
        box = checked_box(where)
    left, right = int(box[0] * width), max(int(box[0] * width) + 1, round(box[2] * width))
    top, bottom = int(box[1] * height), max(int(box[1] * height) + 1, round(box[3] * height))
    part = np.ascontiguousarray(places.pixels[top:bottom, left:right])
    # All of it: the centre is what a transform for whole images may keep.
    return places_of(places.model, part, transform=Resize(places.model.size), device=places.features.device).z


METHODS: dict[str, Callable[[Places, Any], Tensor]] = {"sum": _sum, "masked": _masked, "crop": _crop}
"""Name → (places, where) → z of the region, before normalisation."""
