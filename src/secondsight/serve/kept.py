"""A picture with its features, so that boxes, parts and explanations need no second pass of the network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from secondsight.errors import ConfigError
from secondsight.explain import Places, from_features
from secondsight.explain.geometry import Box
from secondsight.model import Embedder, mean
from secondsight.model.views import view_masks
from secondsight.serve.shelf import Seen


@dataclass(eq=False, kw_only=True)
class Kept(Seen):
    """One picture after the network: features, embedding, and where the places lie."""

    model: Embedder
    given: Tensor | Callable[[], Tensor]  # features (v, l, c), or what makes them
    _regions: dict[Box, Places] = field(default_factory=dict)

    @cached_property
    def features(self) -> Float[Tensor, "v l c"]:
        return self.given if isinstance(self.given, Tensor) else self.given()

    @cached_property
    def places(self) -> Places:  # pyright: ignore[reportIncompatibleMethodOverride] computed once
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
        masks = view_masks(self._inside(box)[None], self.frame.grid, self.model.views)
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
