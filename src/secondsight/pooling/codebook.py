"""A codebook and the way features are assigned to it: the h(x) of the paper."""

from __future__ import annotations

import re
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from secondsight.errors import ConfigError
from secondsight.functional.pooling import assignment
from secondsight.pooling.contract import Features
from secondsight.pooling.feature_samples import kmeans, sample


class Assigned(NamedTuple):
    """h(x): weights over all codewords, or (sparse) over the k that ``which`` names."""

    weights: Float[Tensor, "b l k"]
    which: Int[Tensor, "b l k"] | None

    def dense(self, codewords: int) -> Float[Tensor, "b l n"]:
        if self.which is None:
            return self.weights
        zeros = self.weights.new_zeros(*self.weights.shape[:-1], codewords)
        return zeros.scatter(-1, self.which, self.weights)

    def weighed(self, gains: Float[Tensor, " n"] | None) -> Assigned:
        """g_n h_n(x)."""
        if gains is None:
            return self
        return Assigned(self.weights * (gains if self.which is None else gains[self.which]), self.which)

    def thinned(self, kept: Float[Tensor, "b 1 n"]) -> Assigned:
        """What was drawn for each codeword of an image, 0 or 1 / (1 − dropout), times its weight."""
        chosen = kept if self.which is None else kept.expand(-1, self.which.shape[1], -1).gather(2, self.which)
        return Assigned(self.weights * chosen, self.which)

    def masked(self, mask: Tensor | None) -> Assigned:
        """With h(x) = 0 at locations that are not real: they then add nothing, whatever is computed from h."""
        if mask is None:
            return self
        return Assigned(self.weights.masked_fill(~mask[..., None], 0), self.which)


class Codebook(nn.Module):
    """N codewords; ``forward(x)`` assigns every local feature to them.

    Args:
        in_dim: d, the size of a local feature.
        count: N.
        assign: ``"soft"``, ``"hard"`` or ``"top-k"`` with a number for k, e.g. ``"top-4"``.
        scale: Inverse temperature of the softmax; 1.0 is the paper's literal reading (and nearly uniform).
        learn_scale: Whether ``scale`` is trained (through its logarithm, so that it stays positive).
        straight_through: For hard assignment: let the codewords learn through the gradient of the soft assignment.
            Training then needs all N projections; without it, and in evaluation, only the assigned one is computed.
        gains: Learn how much each codeword counts, h_n ← g_n h_n with g = 1 to begin with. It adds nothing that
            projectors could not say (U_n ← g_n U_n); it says it in N numbers, which few classes can teach.
    """

    log_gains: nn.Parameter | None

    def __init__(
        self,
        in_dim: int,
        count: int,
        *,
        assign: str = "soft",
        scale: float = 16.0,
        learn_scale: bool = True,
        straight_through: bool = True,
        gains: bool = False,
    ):
        super().__init__()
        if count < 1:
            raise ConfigError(f"a codebook needs at least 1 codeword, got {count}")
        if not scale > 0:
            raise ConfigError(f"the assignment's scale (inverse temperature) must be positive, got {scale}")
        self.count = count
        self.k = _nearest(assign, count)
        self.straight_through = straight_through and assign == "hard"
        shares = self.k != 1 or self.straight_through  # else a location's only weight is 1, wherever codewords are
        words = nn.functional.normalize(torch.randn(count, in_dim), dim=1)
        self.words = nn.Parameter(words, requires_grad=shares)
        self.log_scale = nn.Parameter(torch.tensor(float(scale)).log(), requires_grad=learn_scale and shares)
        self.log_gains = nn.Parameter(torch.zeros(count)) if gains else None

    @property
    def gains(self) -> Float[Tensor, " n"] | None:
        """How much each codeword counts; None where all count alike."""
        return None if self.log_gains is None else self.log_gains.exp()

    @property
    def scale(self) -> Tensor:
        return self.log_scale.exp()

    @property
    def sparse(self) -> bool:
        """Whether only k of the N codewords are given a weight now (and ``Assigned.which`` names them)."""
        learning = self.straight_through and self.training and torch.is_grad_enabled()
        return self.k is not None and not learning

    def forward(self, x: Float[Tensor, "b l d"], mask: Tensor | None = None) -> Assigned:
        if self.sparse and self.k == 1:
            which = assignment.nearest(x, self.words)
            h = Assigned(torch.ones_like(which, dtype=x.dtype), which)
        elif self.sparse:
            assert self.k is not None
            h = Assigned(*assignment.top_k(x, self.words, self.scale, self.k))
        elif self.k is None:
            h = Assigned(assignment.soft(x, self.words, self.scale), None)
        else:
            h = Assigned(assignment.hard_straight_through(x, self.words, self.scale), None)
        return h.weighed(self.gains).masked(mask)

    def fit(self, features: Features, *, seed: int = 0, limit: int = 100_000) -> None:
        """Codewords by spherical k-means on at most ``limit`` local features; gains of 1."""
        points = sample(features, limit, seed=seed)
        with torch.no_grad():
            self.words.copy_(kmeans(points, self.count, spherical=True, seed=seed))
            if self.log_gains is not None:
                self.log_gains.zero_()  # what was learned of other codewords

    def extra_repr(self) -> str:
        return f"count={self.count}, assign={'soft' if self.k is None else f'top-{self.k}'}"


def _nearest(assign: str, count: int) -> int | None:
    """How many codewords a feature is assigned to; None for all of them."""
    if assign in ("soft", "hard"):
        return None if assign == "soft" else 1
    found = re.fullmatch(r"top-(\d+)", assign)
    if not found:
        raise ConfigError(f"unknown assignment {assign!r}; valid: 'soft', 'hard', 'top-1', 'top-2', …")
    if not 1 <= int(found[1]) <= count:
        raise ConfigError(f"assignment {assign!r}: the codebook has {count} codewords, so take top-1 to top-{count}")
    return int(found[1])
