"""The views of an image that a model embeds it by. An embedding is the mean over the views, before normalisation.

A view says all there is to know about it: what it makes of pixels, and which of its places show which of the image's.
Training, embedding, the cache, explanations and exported files ask nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from secondsight.pooling.contract import Grid


@dataclass(frozen=True)
class View:
    """A pure function of pixels (…, 3, H, W): of a batch as it comes, or of an image before activations are stored."""

    pixels: Callable[[Tensor], Tensor]
    back: Callable[[Tensor, Grid], Tensor]  # (n, L, …) of the view's places to the image's places; sums stay
    mask: Callable[[Tensor, Grid], Tensor]  # (n, L): of the image's places to those of the view that show them
    aligned: bool = True  # each of its places is one of the image's

    def __call__(self, images: Tensor) -> Tensor:
        return self.pixels(images)


def _right_to_left(values: Shaped[Tensor, "n l *rest"], grid: Grid) -> Shaped[Tensor, "n l *rest"]:
    """Each row of places turned round."""
    return values.unflatten(1, grid).flip(2).flatten(1, 2)


VIEWS = {
    "plain": View(lambda images: images, lambda values, grid: values, lambda mask, grid: mask),
    "mirror": View(lambda images: images.flip(-1), _right_to_left, _right_to_left),
}


def mean(embeddings: Sequence[Float[Tensor, "b out"]]) -> Float[Tensor, "b out"]:
    """Of the embeddings of the views of an image."""
    return embeddings[0] if len(embeddings) == 1 else torch.stack(list(embeddings)).mean(0)


def turned_back(values: Shaped[Tensor, "v l *rest"], grid: Grid, views: Sequence[str]) -> Shaped[Tensor, "v l *rest"]:
    """What each view says, by the places of the image: place l is the same one in all."""
    return torch.cat([VIEWS[view].back(rows[None], grid) for view, rows in zip(views, values, strict=True)])


def view_masks(mask: Bool[Tensor, "n l"], grid: Grid, views: Sequence[str]) -> list[Bool[Tensor, "n l"]]:
    """The mask over the image's places as each view has it."""
    return [VIEWS[view].mask(mask, grid) for view in views]
