"""A model for images that nobody has labelled: a published network with a pooling fitted to these very images.

Nothing is trained. The reduction is the principal axes of the images' own local features, the codebook their k-means,
and the matrix after the pooling whitens what comes out, so that what all of the images share counts less.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from secondsight.data.imageset import ImageSet
from secondsight.data.loading.sizes import usual_side
from secondsight.embed import features, pictures
from secondsight.errors import DataError
from secondsight.model import Embedder, published
from secondsight.pooling import family
from secondsight.pooling.feature_samples import Mapped

IMAGES = 1024
"""Pictures that are enough to fit to; ``benchmarks/fit.py --counts`` says what fewer and more give."""


JCF: dict[str, Any] = {
    "dim": 512,
    "reduce": 256,
    "norm_exponent": 0.0,  # keep the norm of a location: its saliency
    "pooling_options": {"start": "square", "power": 0.5, "whiten": 0.25, "width": 640, "assign": "top-1"},
}
"""How JCF is built when it is fitted and not trained; recipes/photos.toml starts from the same."""

SETTINGS: dict[str, dict[str, Any]] = {
    "jcf": JCF,
    "jcf-pairs": {"dim": 512, "backbone_options": {"both": True}, "pooling_options": {"saliency": 1.0}},
}
"""Family → how it is built here. ``docs/results.md`` says how it was chosen."""


def default_pooling(backbone: str) -> str:
    """What is fitted unless asked otherwise: two layers of a network that gives them, else the last one's JCF."""
    return "jcf-pairs-32-8" if backbone.startswith("efficientnet-lite") else "jcf-32-8"


LARGER = {"efficientnet-lite0": 288}
"""Backbone → pixels a side for pictures that are not small: nine places by nine instead of seven by seven, in 1.65
times the time. On birds and on cars that is better (``docs/results.md``).
"""

SMALL = 230
"""Pixels of the shorter side below which pictures are small. Of small ones, drawings most of them, everything is shown
to the network; of photographs the centre is.
"""


class Framing(NamedTuple):
    """How pictures are shown to a network: pixels a side (None: its own), which part, and why, in words."""

    size: int | None
    transform: str
    why: str


def framing(images: ImageSet, backbone: str) -> Framing:
    """What suits these pictures."""
    side = usual_side(images)
    if 0 < side < SMALL:
        return Framing(None, "resize", f"all of each picture, for the shorter side of these has {side:,} pixels")
    larger = LARGER.get(backbone) if side else None
    why = f"{larger} pixels a side, for the shorter side of these pictures has {side:,}" if larger else ""
    return Framing(larger, "resize-crop", why)


def fit_to(
    images: ImageSet,
    name: str | None = None,
    *,
    backbone: str = "efficientnet-lite0",
    weights: str | Path = "default",
    count: int = IMAGES,
    size: int | None = None,
    mirror: bool = False,
    device: str = "cpu",
    seed: int = 0,
    tell: Callable[[int], None] = lambda pictures: None,
) -> Embedder:
    """An embedder for ``images``, without labels and without training.

    Args:
        images: Pictures of the kind that will be searched; a sample of ``count``, spread over them, is looked at.
        name: A pooling, fitted; ``"average"`` for the network's features averaged; None for ``default_pooling``.
        backbone, weights: The published network.
        count: Images to fit to.
        size: Pixels a side; None for what ``framing`` says, or the network's own for "average".
        mirror: Embed each image together with its mirror image, in twice the time.
        device: Where the network runs.
        seed: Of the k-means and of what else is random.
        tell: Called with the number of pictures that were read and fitted to; not for "average".
    """
    torch.manual_seed(seed)
    name = name or default_pooling(backbone)
    if name == "average":
        return published(backbone, weights=str(weights), size=size, mirror=mirror).to(device)
    framed = framing(images, backbone)
    options = SETTINGS.get(family(name), {"dim": 512, "reduce": 256})
    model = Embedder.build(
        backbone=backbone,
        weights=weights,
        pooling=name,
        size=framed.size if size is None else size,
        mirror=mirror,
        transform=framed.transform,
        **options,
    )
    model.to(device).eval()
    halved = pictures(model, images, run=lambda x: model.backbone(x).half())  # thousands of images stay in memory
    found = features(model, halved, count=min(count, len(images)), device=device)
    if not found:
        raise DataError(f"{images.root}: none of the images tried can be read; there is nothing to fit to")
    tell(sum(map(len, found)))
    model.fit(Mapped(found, Tensor.float), grid=model.backbone.grid(model.size, model.size), seed=seed)
    return model.eval()
