"""f: R^N → R^R, by which N codewords share R projectors in ``jcf-N-R``."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from secondsight.errors import ConfigError

Mixer = Callable[[int, int], nn.Module]
"""Makes f: R^N → R^R of the last dimension, given N and R."""


class Linear(nn.Module):
    """f(h) = Aᵀh with A ∈ R^{N×R}: the paper's recombination. Starts by dealing the codewords out to the projectors."""

    def __init__(self, codewords: int, projectors: int):
        super().__init__()
        dealt = torch.arange(codewords) % projectors
        self.weight = nn.Parameter(nn.functional.one_hot(dealt, projectors).float())

    def forward(self, h: Float[Tensor, "*b n"]) -> Float[Tensor, "*b r"]:
        return h @ self.weight


def mixer(mix: str | Mixer, codewords: int, projectors: int) -> nn.Module:
    """f by name, or made by a function of one's own."""
    if mix == "linear":
        return Linear(codewords, projectors)
    if mix == "mlp":
        return nn.Sequential(
            nn.Linear(codewords, codewords), nn.GELU(), nn.Linear(codewords, projectors), nn.Softmax(dim=-1)
        )
    if isinstance(mix, str):
        raise ConfigError(
            f"unknown mix {mix!r}; valid: 'linear', 'mlp', or a function (codewords, projectors) -> module"
        )
    return mix(codewords, projectors)
