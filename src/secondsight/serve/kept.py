"""What is kept of recent pictures, so that boxes, parts and explanations need no second pass of the network."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import simplejpeg
import torch
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from secondsight.errors import ConfigError
from secondsight.explain import Places, from_features
from secondsight.explain.geometry import Box, Frame
from secondsight.explain.places import view_masks
from secondsight.model import Embedder, mean

PREVIEW = 960  # pixels of the longer side


@dataclass(eq=False)
class Kept:
    """One picture after the network: features, embedding, and where the places lie."""

    model: Embedder
    features: Float[Tensor, "v l c"]
    vector: np.ndarray  # (D,) of unit length
    frame: Frame
    name: str
    preview: bytes = b""  # a JPEG to show, of an upload
    _regions: dict[Box, Places] = field(default_factory=dict)

    @cached_property
    def places(self) -> Places:
        made = from_features(self.model, self.features, frame=self.frame)
        made.name = self.name
        return made

    def part(self, box: Box | None) -> Places:
        """The picture, or what lies in a box by half or more: pooled by itself, from the features that are here."""
        if box is None:
            return self.places
        if box not in self._regions:
            made = from_features(self.model, self.features, frame=self.frame, mask=self._inside(box))
            made.name = self.name
            self._regions.clear()  # the last box is the one that is asked about
            self._regions[box] = made
        return self._regions[box]

    @torch.no_grad()
    def vector_of(self, box: Box) -> np.ndarray:
        """(D,) of what lies in the box: ``part(box).vector`` without the contributions of single places."""
        masks = view_masks(self._inside(box)[None], self.frame.grid, len(self.features))
        pooled = [
            self.model.pool(features[None], mask, grid=self.frame.grid)
            for features, mask in zip(self.features, masks, strict=True)
        ]
        return self.model.normalise(mean(pooled))[0].float().cpu().numpy()

    def _inside(self, box: Box) -> Bool[Tensor, " l"]:
        """Places that lie in the box by half or more; if none does, those that do most."""
        w = torch.from_numpy(self.frame.coverage(box)).flatten()
        if float(w.max()) <= 0:
            left, top, right, bottom = self.frame.seen
            raise ConfigError(
                f"the box holds no place that the model looked at; it saw {left:.2f}, {top:.2f} to {right:.2f}, "
                f"{bottom:.2f} of the picture"
            )
        return w >= min(0.5, float(w.max()))


class Shelf:
    """At most ``most`` pictures, those used last. Threads may share it."""

    def __init__(self, most: int):
        self.most = most
        self._kept: OrderedDict[Hashable, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Kept | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: Hashable, kept: Kept) -> None:
        with self._lock:
            self._kept[key] = kept
            self._kept.move_to_end(key)
            while len(self._kept) > self.most:
                self._kept.popitem(last=False)

    def add(self, kept: Kept) -> str:
        """Keep an upload under a name that nobody can guess."""
        name = secrets.token_urlsafe(12)
        self.put(name, kept)
        return name

    def __len__(self) -> int:
        return len(self._kept)


def preview(pixels: np.ndarray) -> bytes:
    """A JPEG of decoded pixels, upright and no larger than a screen needs."""
    if max(pixels.shape) > PREVIEW:
        image = Image.fromarray(pixels)
        image.thumbnail((PREVIEW, PREVIEW))
        pixels = np.asarray(image)
    return simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), quality=85, colorsubsampling="420")
