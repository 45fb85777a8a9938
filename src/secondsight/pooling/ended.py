"""JCF's ending on a simpler sum: averaging and its like with a power and a partly whitened map, JCF's fair rivals."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from secondsight.errors import DataError
from secondsight.pooling.contract import Features, Grid, Locals, Mask, Pooling
from secondsight.pooling.ending import Ending
from secondsight.pooling.feature_samples import image_batches


class Ended(Pooling):
    """z = Wᵀ (p ∘ r(p)), p = pooling(x); r and W are those of ``Ending``, W fitted from images and learned from there.

    Args:
        pooling: What makes p, one number a channel.
        out_dim: D ≤ the number of channels.
        power, whiten: See ``Ending``.
    """

    skips_reduction = True

    def __init__(self, pooling: Pooling, *, out_dim: int, power: float = 1.0, whiten: float | None = 0.25):
        super().__init__(pooling.in_dim, out_dim)
        self.pooling = pooling
        self.ending = Ending(pooling.out_dim, out_dim, power=power, whiten=whiten)
        self.additive = pooling.additive  # pyright: ignore[reportAttributeAccessIssue]

    def forward(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b out"]:
        return self.ended(self.kept_sums(x, mask, grid=grid))

    def local(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b l out"]:
        return self.ending.local(self.pooling.local(x, mask, grid=grid))

    @torch.no_grad()
    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """The pooling, then m and W from the images' p."""
        self.pooling.fit(features, grid=grid, seed=seed)
        batches = image_batches(features, self.in_dim, of="a power or whitening")
        pooled = [self.pooling(some.float(), grid=grid) for some in batches]
        if not pooled:
            raise DataError("no local features to fit from: the stream is empty")
        self.ending.fit(torch.cat(pooled))

    def readout_parameters(self) -> Iterator[nn.Parameter]:
        """The matrix of ``whiten``."""
        yield from self.ending.parameters()

    @property
    def keeps_sums(self) -> bool:
        return True

    def kept_sums(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b c"]:
        return self.pooling(x, mask, grid=grid)

    def ended(self, sums: Float[Tensor, "b c"]) -> Float[Tensor, "b out"]:
        return self.ending(sums)

    def flops(self, locations: int) -> int:
        return self.pooling.flops(locations) + self.ending.flops()
