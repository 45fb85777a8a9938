"""Maximum and generalised mean: what every retrieval system offers, channel by channel.

MAC: Tolias, Sicre, Jégou, "Particular object retrieval with integral max-pooling of CNN activations", ICLR 2016.
GeM: Radenović, Tolias, Chum, "Fine-tuning CNN image retrieval with no human annotation", TPAMI 2018, equation 3.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from secondsight.errors import ConfigError
from secondsight.functional.pooling.full_precision import full_precision
from secondsight.functional.pooling.generalised_mean import generalised_mean
from secondsight.pooling.contract import Grid, Locals, Mask, Pooling, positive


class Max(Pooling):
    """z = max_l x_l."""

    family = "max"
    summary = "maximum of each channel (MAC)"
    paper = "Tolias, Sicre, Jégou, ICLR 2016"
    takes_out_dim = False
    skips_reduction = True

    def __init__(self, in_dim: int):
        super().__init__(in_dim, in_dim)

    def forward(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b out"]:
        x = self.checked(x, mask)
        if x.shape[1] == 0:
            return x.sum(1)
        if mask is not None:
            x = x.masked_fill(~mask[..., None], float("-inf"))
        # The backward pass of `amax` searches all of x again, that of `max` knows where; without one, `amax` is faster.
        highest = x.max(1).values if torch.is_grad_enabled() and x.requires_grad else x.amax(1)
        return highest if mask is None else highest.masked_fill(~mask.any(1, keepdim=True), 0)

    def flops(self, locations: int) -> int:
        return locations * self.in_dim


class GeM(Pooling):
    """z = (1/L Σ_l max(x_l, eps)^p)^{1/p}, p learned.

    Args:
        in_dim: d, the size of a local feature.
        p: Where p starts. 1 is the average of what is positive, ∞ the maximum; the paper starts at 3.
        learn_p: Whether p is trained.
        per_channel: One p for each channel instead of one for all.
        eps: What smaller values, negative ones too, are raised to.
    """

    family = "gem"
    summary = "generalised mean of each channel, its power learned"
    paper = "Radenović, Tolias, Chum, TPAMI 2018"
    expects = "features after a ReLU: negative values are raised to eps"
    name_options = ("p",)
    takes_out_dim = False
    skips_reduction = True
    p: Tensor

    def __init__(
        self, in_dim: int, *, p: float | int = 3.0, learn_p: bool = True, per_channel: bool = False, eps: float = 1e-6
    ):
        super().__init__(in_dim, in_dim)
        if p < SMALLEST_P:
            raise ConfigError(f"gem: p must be at least {SMALLEST_P} (1 is the average), got {p}")
        positive("gem", eps=eps)
        self.eps = eps
        start = torch.full((in_dim if per_channel else 1,), float(p))
        if learn_p:
            self.p = nn.Parameter(start)
        else:
            self.register_buffer("p", start)

    def forward(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b out"]:
        with full_precision(self.checked(x, mask)) as x:
            return generalised_mean(x, self.p.to(x.dtype).clamp_min(SMALLEST_P), mask, eps=self.eps)

    def flops(self, locations: int) -> int:
        return 6 * locations * self.in_dim


SMALLEST_P = 0.01
"""Training cannot take p below it: at 0 the generalised mean is not defined."""
