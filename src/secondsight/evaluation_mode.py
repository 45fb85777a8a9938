"""A network in evaluation mode for as long as it takes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@contextlib.contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode inside the block; after it the mode that was before."""
    was_training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(was_training)
