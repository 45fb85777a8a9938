"""A model for images that nobody has labelled: a published network with a pooling fitted to these very images.

Nothing is trained. The reduction is the principal axes of the images' own local features, the codebook their k-means,
and the matrix after the pooling whitens what comes out, so that what all of the images share counts less.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from secondsight.data.imageset import ImageSet
from secondsight.data.loading.batches import BatchLoader
from secondsight.data.loading.loader import Pictures
from secondsight.embed import look
from secondsight.errors import DataError
from secondsight.model import Embedder
from secondsight.progress import track

IMAGES = 1024
"""Pictures that are enough to fit to; see docs/searching.md for what fewer and more give."""


@dataclass(frozen=True)
class Fit:
    """What a model is built from, and how many images it is fitted to."""

    pooling: str
    words: str  # what it is, for people
    build: dict[str, Any] = field(default_factory=dict)


JCF = Fit(
    "jcf-32-8",
    "JCF (jcf-32-8) fitted to these images",
    {
        "dim": 512,
        "reduce": 256,
        "norm_exponent": 0.0,
        "pooling_options": {"start": "square", "power": 0.5, "whiten": 0.25, "width": 640},
    },
)
AVERAGE = Fit("average", "local features averaged, nothing fitted", {"dim": 1280})

FITS = {"jcf-32-8": JCF, "average": AVERAGE}


def fit_to(
    images: ImageSet,
    name: str = "jcf-32-8",
    *,
    backbone: str = "efficientnet-lite0",
    weights: str | Path = "default",
    count: int = IMAGES,
    size: int | None = None,
    mirror: bool = False,
    device: str = "cpu",
    seed: int = 0,
) -> Embedder:
    """An embedder for ``images``, without labels and without training.

    Args:
        images: Pictures of the kind that will be searched; a sample of ``count``, spread over them, is looked at.
        name: ``"jcf-32-8"`` or another pooling, fitted; ``"average"`` for the network's features averaged.
        backbone, weights: The published network.
        count: Images to fit to.
        size: Pixels a side; None for the network's own.
        mirror: Embed each image together with its mirror image, in twice the time.
        device: Where the network runs.
        seed: Of the k-means and of what else is random.
    """
    torch.manual_seed(seed)
    options = FITS.get(
        name, Fit(name, name, JCF.build if name.startswith("jcf") else {"dim": 512, "reduce": 256})
    ).build
    model = Embedder.build(
        backbone=backbone,
        weights=None if weights == "random" else weights,
        pooling=name,
        size=size,
        mirror=mirror,
        transform="resize-crop",
        **options,
    )
    model = model.to(device).eval()
    if name == "average":
        with torch.no_grad():  # no random rotation: the average as it is
            weight = model.pooling.get_parameter("weight")
            weight.copy_(torch.eye(*weight.shape))
        return model
    features = _features(model, images, count, device)
    model.fit_features(features, grid=model.backbone.grid(model.size, model.size), seed=seed)
    return model.eval()


@torch.no_grad()
def _features(model: Embedder, images: ImageSet, count: int, device: str) -> list[torch.Tensor]:
    chosen = np.unique(np.linspace(0, len(images) - 1, min(count, len(images))).round().astype(np.int64))
    loader = BatchLoader(Pictures(images.subset(chosen), look(model)), batch_size=32, patient=True)
    found = [model.backbone(batch.images.to(device)).cpu() for batch in track(loader, "fitting") if len(batch)]
    if not found:
        raise DataError(f"{images.root}: none of {len(chosen):,} images tried can be read; there is nothing to fit to")
    return found
