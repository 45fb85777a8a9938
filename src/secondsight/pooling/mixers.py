"""f: R^N → R^R, by which N codewords share R projectors in ``jcf-N-R``."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from secondsight.errors import require_known

MIXERS = ("linear", "mlp")
"""linear: the paper's A and B · mlp: one hidden layer of N units, as the paper's f_p and f_q allow."""


class Linear(nn.Module):
    """f(h) = Aᵀh with A ∈ R^{N×R}: the paper's recombination. Starts by dealing the codewords out to the projectors."""

    def __init__(self, codewords: int, projectors: int):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(codewords, projectors))
        with torch.no_grad():
            for r in range(min(codewords, projectors)):
                self.weight[r::projectors, r].fill_(1.0)

    def forward(self, h: Float[Tensor, "*b n"]) -> Float[Tensor, "*b r"]:
        return h @ self.weight

    def combined(self, w: Float[Tensor, " r *rest"]) -> Float[Tensor, " n *rest"]:
        """c_n = Σ_r A_nr c̃_r: what R shared offsets stand for."""
        return torch.tensordot(self.weight, w, 1)


def mixer(name: str, codewords: int, projectors: int) -> nn.Module:
    """f by its name in ``MIXERS``."""
    require_known("mix of jcf", name, MIXERS)
    if name == "linear":
        return Linear(codewords, projectors)
    return nn.Sequential(
        nn.Linear(codewords, codewords), nn.GELU(), nn.Linear(codewords, projectors), nn.Softmax(dim=-1)
    )
