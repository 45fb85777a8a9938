"""What vectors are made from: pictures that are decoded on the way, or activations that were stored before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

from secondsight.data import ImageSet
from secondsight.data.loading.batches import RowSource
from secondsight.data.loading.picture_rows import Pictures
from secondsight.data.loading.transforms import Transform
from secondsight.errors import ConfigError
from secondsight.model import Embedder, mean

Forward = Callable[[Tensor], Tensor]
"""A batch of rows to embeddings: (B, …) → (B, D)."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """Rows of the same images, one source for each view that is stored apart, and what makes embeddings of a batch."""

    sources: tuple[RowSource, ...]
    forward: Forward
    finish: Forward | None = None  # normalisation, after the mean over the sources

    def __len__(self) -> int:
        return len(self.sources[0])

    def embedded(self, batches: tuple[Tensor, ...]) -> Tensor:
        """Embeddings (B, D) from one batch of each source."""
        z = mean([self.forward(rows) for rows in batches])
        return z if self.finish is None else self.finish(z)


def pictures(
    model: nn.Module, images: ImageSet, transform: Transform | None = None, *, run: Forward | None = None
) -> Inputs:
    """Images from their files; the model takes its own views of them.

    Args:
        model: Maps uint8 RGB (B, 3, S, S) to (B, D); an ``Embedder``, usually.
        transform: From a picture to (3, S, S), without chance; None for the embedder's own.
        run: What runs in the model's place: a runtime of ``secondsight.inference``.
    """
    transform = own_transform(model) if transform is None else transform
    if not transform.deterministic:
        raise ConfigError(f"embedding needs a deterministic transform, not {transform.key}: 'resize' or 'resize-crop'")
    return Inputs((Pictures(images, transform),), run or model)


def activations(model: Embedder, sources: tuple[RowSource, ...], forward: Forward, *, unit: bool = True) -> Inputs:
    """Stored activations, a source for each of the model's views; ``forward`` is the rest of the network.

    ``unit``: normalise; losses take embeddings as they are before.
    """
    return Inputs(sources, forward, model.normalise if unit else None)


def own_transform(model: nn.Module) -> Transform:
    """The transform and the size that an embedder was trained and judged with."""
    if not isinstance(model, Embedder):
        raise ConfigError(f"a {type(model).__name__} has no transform of its own: give a transform")
    return model.transform
