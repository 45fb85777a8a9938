"""Backbone features made ready for pooling: fewer channels, and a chosen weight for the norm of each location."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from secondsight.errors import ConfigError, ShapeError
from secondsight.functional.pooling.pointwise import pointwise
from secondsight.pooling.contract import Features
from secondsight.pooling.feature_samples import sample
from secondsight.pooling.principal import main_directions


class Reduction(nn.Module):
    """x ← Wᵀx (a bias-free 1×1 convolution), then x ← x / ( ‖x‖^a · m^{1−a} ).

    a is the exponent of the local norm: 1 is the paper's ℓ2 normalisation of every location; 0 keeps the norm, which is
    a location's saliency, and only divides by m, the data's mean norm (from ``fit``), so that norms are about 1 either
    way.

    Args:
        in_dim: Channels of the backbone.
        out_dim: d, the channels that the pooling sees.
        norm_exponent: a.
        learn_exponent: Whether a is trained.
    """

    mean_norm: Tensor

    def __init__(self, in_dim: int, out_dim: int, *, norm_exponent: float = 1.0, learn_exponent: bool = False):
        super().__init__()
        if not 0 <= norm_exponent <= 1:
            raise ConfigError(f"norm_exponent must be between 0 (keep the norm) and 1 (ℓ2), got {norm_exponent}")
        self.in_dim, self.out_dim = in_dim, out_dim
        self.keeps_norm = norm_exponent == 0 and not learn_exponent
        self.weight = nn.Parameter(torch.empty(in_dim, out_dim))
        nn.init.orthogonal_(self.weight)
        self.exponent = nn.Parameter(torch.tensor(float(norm_exponent)), requires_grad=learn_exponent)
        self.register_buffer("mean_norm", torch.tensor(1.0))

    def forward(self, x: Float[Tensor, "b l c"]) -> Float[Tensor, "b l d"]:
        if x.shape[-1] != self.in_dim:
            raise ShapeError(f"the reduction expects {self.in_dim} channels, got local features {tuple(x.shape)}")
        if self.keeps_norm:
            return pointwise(x, self.weight / self.mean_norm)
        x = pointwise(x, self.weight)
        norm = x.norm(dim=-1, keepdim=True).clamp_min(1e-6)
        return x / (norm**self.exponent * self.mean_norm ** (1 - self.exponent))

    @torch.no_grad()
    def fit(self, features: Features, *, seed: int = 0) -> None:
        """W = the directions of most energy, or the channels as they are with nothing to reduce; then m = the mean norm
        after W.
        """
        if self.in_dim == self.out_dim:
            nn.init.eye_(self.weight)
        else:
            axes = main_directions(features, self.out_dim)
            self.weight[:, : axes.shape[1]].copy_(axes)
        points = sample(features, 20_000, seed=seed).to(self.weight)
        self.mean_norm.copy_((points @ self.weight).norm(dim=1).mean().clamp_min(1e-6))

    def extra_repr(self) -> str:
        return f"in_dim={self.in_dim}, out_dim={self.out_dim}, norm_exponent={self.exponent.item():.3g}"
