"""A running average of the weights, which often generalises better than the last ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn


class EMA:
    """θ̄ ← decay · θ̄ + (1 − decay) · θ after every step, over the trainable parameters.

    For the first steps the decay is (1 + t) / (10 + t) where that is smaller, so that θ̄ does not cling to the start.
    """

    def __init__(self, model: nn.Module, decay: float):
        self.decay, self.steps = decay, 0
        self.live = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.average = {name: p.detach().clone() for name, p in self.live.items()}

    @torch.no_grad()
    def update(self) -> None:
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        for name, parameter in self.live.items():
            self.average[name].lerp_(parameter, 1 - decay)

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """The model has the averaged weights inside the block."""
        kept = {name: parameter.detach().clone() for name, parameter in self.live.items()}
        self._write(self.average)
        try:
            yield
        finally:
            self._write(kept)

    @torch.no_grad()
    def _write(self, weights: dict[str, Tensor]) -> None:
        for name, parameter in self.live.items():
            parameter.copy_(weights[name])
