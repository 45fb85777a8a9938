"""The views of an image that a model embeds it by. An embedding is the mean over the views, before normalisation.

A view is a pure function of pixels (…, 3, H, W), so it can be taken of a batch as it comes, or of every image before
its activations are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda images: images,
    "mirror": lambda images: images.flip(-1),
}


def mean(embeddings: Sequence[Float[Tensor, "b out"]]) -> Float[Tensor, "b out"]:
    """Of the embeddings of the views of an image."""
    return embeddings[0] if len(embeddings) == 1 else torch.stack(list(embeddings)).mean(0)
