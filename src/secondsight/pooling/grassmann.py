"""Grassmann pooling: the subspace that an image's local features span.

Wei, Zhang, Gong, Zheng, Zhang, "Grassmann Pooling as Compact Homogeneous Bilinear Pooling for Fine-Grained Visual
Classification", ECCV 2018. The feature U_kU_kᵀ keeps the top k singular directions and forgets their strengths, so that
no bursty direction drowns the others. ``grassmann-k`` never forms it; ``grassmann-full-k`` returns it whole.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from secondsight.errors import ConfigError
from secondsight.functional.pooling.full_precision import full_precision
from secondsight.functional.pooling.subspace import bilinear_readout, top_subspace
from secondsight.functional.pooling.triangle import upper_triangle
from secondsight.pooling.compact_bilinear import signs
from secondsight.pooling.contract import Features, Grid, Locals, Mask, Pooling
from secondsight.pooling.principal import main_directions


class Subspace(nn.Module):
    """Local features to U_k: an optional reduction of the channels, then the top k singular directions.

    Args:
        in_dim: d.
        rank: k.
        channels: What d is reduced to first (learned); None for no reduction.
    """

    def __init__(self, in_dim: int, *, rank: int, channels: int | None):
        super().__init__()
        self.dim = channels or in_dim
        if not 1 <= self.dim <= in_dim:
            raise ConfigError(f"grassmann: channels must be between 1 and in_dim = {in_dim}, got {channels}")
        if not 1 <= rank < self.dim:
            raise ConfigError(
                f"grassmann: a subspace of {self.dim} channels has a rank between 1 and {self.dim - 1} (at {self.dim} "
                f"every image would be the same), got {rank}"
            )
        self.rank = rank
        self.reduce = None
        if channels:
            self.reduce = nn.Parameter(nn.init.orthogonal_(torch.empty(channels, in_dim)))

    def forward(self, x: Float[Tensor, "b l d"]) -> Float[Tensor, "b c k"]:
        with full_precision(x) as x:
            return top_subspace(x if self.reduce is None else x @ self.reduce.mT.to(x.dtype), self.rank)

    @torch.no_grad()
    def fit(self, features: Features) -> None:
        """The reduction starts at the directions of most energy."""
        if self.reduce is not None:
            self.reduce.copy_(main_directions(features, len(self.reduce)).mT)

    def flops(self, locations: int) -> int:
        d, small = self.dim, min(self.dim, locations)
        reduce = 0 if self.reduce is None else 2 * locations * self.reduce.numel()
        return reduce + 2 * locations * d * small + 9 * small**3 + 2 * locations * d * small


class Grassmann(Pooling):
    """``grassmann-k``: z_o = a_oᵀ U_kU_kᵀ c_o, compact, without the d×d projector.

    a and c are learned. They start as random signs (a Random Maclaurin sketch of U_kU_kᵀ), so that the inner product of
    two untrained outputs is an unbiased estimate of the similarity ‖U_kᵀV_k‖²_F.

    Args:
        in_dim: d, the size of a local feature.
        out_dim: D.
        rank: k, directions kept; below d.
        channels: Reduce d to so many channels first, as the paper does; None for no reduction.
        seed: Of the random signs.
    """

    family = "grassmann"
    summary = "the subspace that an image's features span"
    paper = "Wei et al., ECCV 2018"
    expects = "more locations than k"
    name_options = ("rank",)

    def __init__(self, in_dim: int, out_dim: int, *, rank: int = 16, channels: int | None = None, seed: int = 0):
        super().__init__(in_dim, out_dim)
        self.subspace = Subspace(in_dim, rank=rank, channels=channels)
        w = signs(2, out_dim, self.subspace.dim, generator=torch.Generator().manual_seed(seed))
        a, c = w * out_dim**-0.25
        self.a, self.c = nn.Parameter(a.clone()), nn.Parameter(c.clone())

    def forward(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b out"]:
        u = self.subspace(self.checked(x, mask))
        return bilinear_readout(u, self.a.to(u.dtype), self.c.to(u.dtype))

    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """Start the reduction of channels, where there is one, at the directions of most energy."""
        self.subspace.fit(features)

    def flops(self, locations: int) -> int:
        return self.subspace.flops(locations) + 4 * self.subspace.dim * self.subspace.rank * self.out_dim


class GrassmannFull(Pooling):
    """``grassmann-full-k``: the projector U_kU_kᵀ itself, d(d+1)/2 numbers whose inner product is ‖U_kᵀV_k‖²_F.

    Args:
        in_dim: d, the size of a local feature.
        rank: k, directions kept; below d.
        channels: Reduce d to so many channels first; None for no reduction.
    """

    family = "grassmann-full"
    summary = "the same, its whole projector UUᵀ"
    paper = "Wei et al., ECCV 2018"
    expects = "more locations than k"
    name_options = ("rank",)
    takes_out_dim = False

    def __init__(self, in_dim: int, *, rank: int = 16, channels: int | None = None):
        dim = channels or in_dim
        super().__init__(in_dim, dim * (dim + 1) // 2)
        self.subspace = Subspace(in_dim, rank=rank, channels=channels)

    def forward(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b out"]:
        u = self.subspace(self.checked(x, mask))
        return upper_triangle(u @ u.mT, isometric=True)

    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """Start the reduction of channels, where there is one, at the directions of most energy."""
        self.subspace.fit(features)

    def flops(self, locations: int) -> int:
        return self.subspace.flops(locations) + 2 * self.subspace.dim**2 * self.subspace.rank
