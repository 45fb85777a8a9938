"""Images from disk: datasets and their splits, decoding, transforms, samplers and the cache of frozen features.

    images = data.open("photos")                          # or "cub200:PATH", "list.csv" …
    split = data.splits("cub200:PATH", "validation")      # split.train, split.eval

Decoding is ``data.decode.decode``: a function cannot share its name with the module it lives in.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from secondsight.data.batches import Batch
    from secondsight.data.cache import FeatureCache, cached, list_cached
    from secondsight.data.decode import DecodeError
    from secondsight.data.failures import Failures
    from secondsight.data.features import CachedLoader, Features
    from secondsight.data.getting import get
    from secondsight.data.imageset import ImageSet
    from secondsight.data.loader import Loader, read_image
    from secondsight.data.neighbours import Neighbours
    from secondsight.data.opening import open
    from secondsight.data.samplers import BatchSampler, ClassBalanced, Sequential, Shuffled
    from secondsight.data.sources import DATASETS, Dataset
    from secondsight.data.splitting import Split, splits
    from secondsight.data.summary import stats
    from secondsight.data.transforms import TRANSFORMS, RandomResizedCrop, Resize, ResizeCrop, Transform
    from secondsight.data.verifying import verify

__all__ = [
    "DATASETS",
    "TRANSFORMS",
    "Batch",
    "BatchSampler",
    "CachedLoader",
    "ClassBalanced",
    "Dataset",
    "DecodeError",
    "Failures",
    "FeatureCache",
    "Features",
    "ImageSet",
    "Loader",
    "Neighbours",
    "RandomResizedCrop",
    "Resize",
    "ResizeCrop",
    "Sequential",
    "Shuffled",
    "Split",
    "Transform",
    "cached",
    "get",
    "list_cached",
    "open",
    "read_image",
    "splits",
    "stats",
    "verify",
]

# Loaded when first asked for: transforms and samplers need torch, and listing the datasets should not wait for it.
_HOMES = {
    "Batch": "batches",
    "BatchSampler": "samplers",
    "CachedLoader": "features",
    "ClassBalanced": "samplers",
    "DATASETS": "sources",
    "Dataset": "sources",
    "DecodeError": "decode",
    "Failures": "failures",
    "FeatureCache": "cache",
    "Features": "features",
    "ImageSet": "imageset",
    "Loader": "loader",
    "Neighbours": "neighbours",
    "RandomResizedCrop": "transforms",
    "Resize": "transforms",
    "ResizeCrop": "transforms",
    "Sequential": "samplers",
    "Shuffled": "samplers",
    "Split": "splitting",
    "TRANSFORMS": "transforms",
    "Transform": "transforms",
    "cached": "cache",
    "get": "getting",
    "list_cached": "cache",
    "open": "opening",
    "read_image": "loader",
    "splits": "splitting",
    "stats": "summary",
    "verify": "verifying",
}


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(importlib.import_module(f"secondsight.data.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'secondsight.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
