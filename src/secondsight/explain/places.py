"""An image as the sum of its places: computed once, then explained, cut into regions and compared at no cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from secondsight.data.loading.transforms import Transform
from secondsight.embed.queries import Picture
from secondsight.embed.queries import pixels as pixels_of
from secondsight.errors import DataError, ShapeError
from secondsight.evaluation_mode import evaluating
from secondsight.explain import algebra, geometry, parts, region
from secondsight.explain.geometry import Box, Frame
from secondsight.model import VIEWS, Embedder, mean
from secondsight.model.views import turned_back, view_masks


@dataclass(eq=False)
class Places:
    """What every place of one image adds to its embedding.

    ``contributions.sum(0)`` is z, the embedding before normalisation. A pooling that is no sum has none.
    """

    model: Embedder
    features: Float[Tensor, "v l c"]  # of the backbone, a view each; a mirrored view in its own order
    contributions: Float[Tensor, "l d"] | None  # float64, mirrored views turned back
    z: Float[Tensor, " d"]  # float64
    frame: Frame
    mask: Bool[Tensor, " l"] | None = None  # True where a place is real
    pixels: np.ndarray | None = None  # (H, W, 3) uint8: the whole original, as it was decoded
    name: str = "image"

    @property
    def grid(self) -> tuple[int, int]:
        return self.frame.grid

    @property
    def additive(self) -> bool:
        """Whether the embedding is exactly a sum over places."""
        return self.contributions is not None

    def __len__(self) -> int:
        return self.grid[0] * self.grid[1]

    @cached_property
    def scale(self) -> Float[Tensor, " d"]:
        """g, with g ∘ z the unit vector."""
        return algebra.unit_scale(self.z, self.model.config.normalise)

    @cached_property
    def unit(self) -> Float[Tensor, " d"]:
        """The unit vector, in double precision."""
        return self.scale * self.z

    @cached_property
    def scaled(self) -> Float[Tensor, "l d"]:
        """Contributions to the unit vector: they sum to it."""
        return self.scale * self.required()

    @property
    def vector(self) -> np.ndarray:
        """The embedding (D,), float32, of unit length."""
        return self.unit.float().numpy()

    @cached_property
    def assignment(self) -> Float[Tensor, "l n"] | None:
        """How much of each place belongs to each codeword, rows summing to one; None without a codebook."""
        if not getattr(self.model.pooling, "codebooks", None):
            return None
        with torch.no_grad():
            views = [self.model.pooling.assignments(self.model.reduced(f[None]))[0][0] for f in self.features]  # type: ignore[operator]
        h = turned_back(torch.stack(views).double(), self.grid, self.model.views).mean(0).cpu()
        return h / h.sum(-1, keepdim=True).clamp_min(algebra.TINY)

    @cached_property
    def codeword(self) -> np.ndarray | None:
        """(L,) the strongest codeword of each place; None without a codebook."""
        return None if self.assignment is None else self.assignment.argmax(-1).numpy()

    @property
    def masks(self) -> Bool[Tensor, "v l"] | None:
        """``mask`` as each view has it; None where all places are real."""
        return None if self.mask is None else self.seen(self.mask)

    def seen(self, mask: Bool[Tensor, " l"]) -> Bool[Tensor, "v l"]:
        """Some of the image's places as each view has them."""
        return torch.cat(view_masks(mask[None], self.grid, self.model.views)).to(self.features.device)

    @torch.no_grad()
    def pooled(self, masks: Bool[Tensor, "n l"]) -> Float[Tensor, "n d"]:
        """z of n sets of places, each pooled by itself, in double precision."""
        views = view_masks(masks.to(self.features.device), self.grid, self.model.views)
        pooled = [
            self.model.pool(features.expand(len(masks), -1, -1), mask, grid=self.grid).double()
            for features, mask in zip(self.features, views, strict=True)
        ]
        return torch.stack(pooled).mean(0).cpu()

    def required(self) -> Float[Tensor, "l d"]:
        """Contributions, or the pooling's own explanation why there are none."""
        if self.contributions is None:
            self.model.pooling.local(self.model.reduced(self.features[:1]), grid=self.grid)
            raise AssertionError("a pooling that is not additive has no local contributions")
        return self.contributions

    def region(self, where: Box | Sequence[float] | np.ndarray, *, method: str = region.DEFAULT) -> np.ndarray:
        """The unit vector (D,) of a part of the image, to search with.

        Args:
            where: A box (left, top, right, bottom) in fractions of the whole original, or a mask (H, W) over it.
            method: One of ``region.METHODS``.
        """
        return region.query(self, where, method=method)

    def only(self, mask: np.ndarray) -> Places:
        """The same image with some of its places alone, (h, w) bool: to explain a part as what it is."""
        chosen = torch.from_numpy(np.ascontiguousarray(mask)).flatten()
        made = from_features(self.model, self.features, frame=self.frame, mask=chosen)
        made.pixels, made.name = self.pixels, self.name
        return made

    def within(self, where: Box | Sequence[float] | np.ndarray) -> Places:
        """As ``only``, of the places in a box or a mask as ``region`` takes them; ``vector`` is that of the region."""
        return self.only(region.inside(self, where).view(self.grid).numpy())

    def parts(self, count: int = 8) -> list[parts.Part]:
        """The image in at most ``count`` parts that lie together and say the same, strongest first: each has a vector,
        a mask and a box. Good suggestions of what to search for, without a detector.
        """
        return parts.parts(self, count)

    def vectors(self, count: int = 8) -> np.ndarray:
        """(count, D): the embedding of the whole, then those of ``count − 1`` parts, for an index of parts."""
        return parts.vectors(self, count)


@torch.no_grad()
def places(
    model: Embedder,
    picture: Picture,
    *,
    transform: Transform | None = None,
    device: str | torch.device = "cpu",
    name: str | None = None,
) -> Places:
    """The places of one picture, by one pass of the network (two with mirror images).

    Args:
        model: Any embedder. One whose pooling is no sum gives places without contributions.
        picture: A file, its content, an (H, W, 3) uint8 array or a PIL image.
        transform: Instead of the model's own.
        device: Where the network runs.
        name: What to call the picture; a file's name unless given.
    """
    transform = model.transform if transform is None else transform
    pixels = read(picture, target=transform.target)
    image = transform(pixels)[None].to(device)
    grid = model.backbone.grid(*image.shape[-2:])
    with evaluating(model.to(device)):
        features = torch.cat([model.backbone(VIEWS[view](image)) for view in model.views])
    made = from_features(model, features, frame=geometry.frame(transform, grid, *pixels.shape[:2]))
    made.pixels = pixels
    made.name = name or (Path(picture).name if isinstance(picture, (str, Path)) else "image")
    return made


@torch.no_grad()
def from_features(
    model: Embedder, features: Float[Tensor, "v l c"], *, frame: Frame, mask: Bool[Tensor, " l"] | None = None
) -> Places:
    """The places of an image whose local features are known.

    Args:
        model: As for ``places``.
        features: Of the backbone, one row a view: the image, then its mirror image if the model embeds it.
        frame: Where the places lie.
        mask: True where a place of the image is real; a mirrored view's is derived from it.
    """
    if features.shape[1] != frame.grid[0] * frame.grid[1]:
        raise ShapeError(f"{features.shape[1]} local features are no grid of {frame.grid[0]}×{frame.grid[1]} places")
    if len(features) != len(model.views):
        raise ShapeError(f"the model embeds {len(model.views)} views of an image, got features of {len(features)}")
    x = model.reduced(features)
    masks = None if mask is None else torch.cat(view_masks(mask[None], frame.grid, model.views)).to(features.device)
    with evaluating(model.pooling):
        if model.pooling.additive:
            parts = model.pooling.local(x, masks, grid=frame.grid)
            kept = parts.double() if model.keep is None else parts.double() @ model.keep.double()
            contributions = turned_back(kept, frame.grid, model.views).mean(0).cpu()
            z = contributions.sum(0)
        else:
            contributions = None
            pooled = model.pool(features, masks, grid=frame.grid)
            z = mean(list(pooled.double()[:, None]))[0].cpu()
    return Places(model, features, contributions, z, frame, mask)


def read(picture: Any, *, target: int | None = None) -> np.ndarray:
    """(H, W, 3) uint8 of whatever a picture may be, by the road that queries of a search take."""
    if not isinstance(picture, (str, Path, bytes, np.ndarray, Image.Image)):
        raise DataError(f"a picture is a file, its content, an array or a PIL image, not a {type(picture).__name__}")
    return pixels_of(picture, target=target)
