"""Every choice that makes a model: the keywords of ``Embedder.build``, the keys of a recipe's ``[model]``, and what a
model directory keeps in ``config.toml``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from secondsight.strict_toml import Strict

FORMAT = 2

MOST = 1 << 20  # of any size: above it a number is a mistake, or an attempt to take the machine

Size = Annotated[int, Field(ge=1, le=MOST)]


def _weights(value: Any) -> Any:
    return "random" if value is None else str(value) if isinstance(value, Path) else value


def _parts(value: Any) -> Any:
    """TOML has lists only, and writes 1.0 as it was given."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(p, (list, tuple)) and len(p) == 2 for p in value):
        return value  # pydantic says what is wrong with it
    return tuple((size, float(length) if isinstance(length, int) else length) for size, length in value)


class ModelConfig(Strict):
    """A model in words; ``Embedder.from_config`` builds it."""

    backbone: str = "efficientnet-lite0"  # `secondsight backbones` lists them
    weights: Annotated[str, BeforeValidator(_weights)] = "default"  # or "random", a file, hub:owner/name/file
    freeze: str | None = None  # last stage that stays as it is; freezing more is faster and overfits less on small data
    freeze_norm: bool = True  # BatchNorm keeps its ImageNet statistics: batches of few classes would spoil them
    pooling: str = "jcf-32-8"  # `secondsight poolings` lists them
    dim: Size = 512  # numbers per image; fewer are cheaper to store, 512 is the paper's
    reduce: Annotated[int, Field(ge=0, le=MOST)] = 256  # channels that the pooling sees; 0 = all of the backbone's
    norm_exponent: Annotated[float, Field(ge=0, le=1)] = 1.0  # 1 = ℓ2 at every location (the paper), 0 = keep its norm
    learn_exponent: bool = False  # let training move norm_exponent
    size: Annotated[int, Field(ge=1, le=1 << 14)] | None = None  # pixels a side, None = the backbone's own
    transform: str | None = None  # how images are made square; None = "resize", or in training what suits its transform
    mirror: bool = False  # embed an image together with its mirror image; takes twice the time
    keep: Size | None = None  # numbers left of an image by a linear map after the pooling (`secondsight compress`)
    normalise: Annotated[
        tuple[tuple[Size, float], ...], BeforeValidator(_parts)
    ] = ()  # parts normalised apart: (size, length)
    backbone_options: dict[str, Any] = Field(default_factory=dict)  # the backbone's own keywords
    pooling_options: dict[str, Any] = Field(default_factory=dict)  # the pooling's own keywords


TRAINING_ONLY = frozenset({"weights", "freeze", "freeze_norm"})
"""Keys that say how a model was made and learns, not what it computes: models that differ in them alone are equal."""
