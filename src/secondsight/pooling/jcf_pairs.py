"""JCF of a network's last layer beside the second moment of the layer before it, under one ending.

The last layer says what a picture shows, the one before how its parts look; what differs between two cars or two
stamps is more in the second. With x the channels of the last layer at a location and y those before it,

    z = Wᵀ [ z₁ ; c z₂ ],   z₁ = r(Σ |x|ˢ jcf(Pᵀx)),   z₂ = r(Σ |x|ˢ (Qᵀy)(Qᵀy)ᵀ, cut to some of its entries)

with P and Q principal axes, r the signed power of ``Ending`` and W its matrix, over both. |x|ˢ lets a location count by
what the last layer finds there: the background is loud before it. Everything is a sum over locations, so explanations
stay exact.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from secondsight.errors import ConfigError
from secondsight.pooling.contract import Features, Grid, Locals, Mask, Pooling
from secondsight.pooling.ending import Ending
from secondsight.pooling.feature_samples import Mapped, image_batches, sample
from secondsight.pooling.jcf import JCF
from secondsight.pooling.principal import main_directions


class JCFPairs(Pooling):
    """z = Wᵀ [ z₁ ; c z₂ ]; features hold both layers, the last one's channels first (``both`` of EfficientNet-Lite).

    Args:
        in_dim: Channels of both layers.
        out_dim: D.
        codewords, projectors, assign: Of JCF on the last layer.
        before: How many of the channels, at the end, are the layer before's; None for a fifth, which is
            EfficientNet-Lite0's 320 of 1600.
        reduce: Principal axes of the last layer that JCF sees, at most.
        axes: Principal axes of the layer before whose products are taken, at most.
        width: Numbers of z₁.
        pairs: Entries of the second moment that stay in z₂, at most: those that differ most from image to image.
        saliency: s; 0 lets the products alone decide.
        weight: Length of c z₂ beside z₁, from ``fit``.
        power, whiten: See ``Ending``.
    """

    family = "jcf-pairs"
    summary = "jcf of the last layer, second moment of the layer before"
    paper = "ours"
    expects = "channels of two layers"
    name_options = ("codewords", "projectors")
    examples = ("jcf-pairs-32-8",)
    additive = True
    skips_reduction = True
    two_layers = True

    balance: Tensor

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        codewords: int | None = None,
        projectors: int | None = None,
        assign: str = "top-1",
        before: int | None = None,
        reduce: int = 256,
        axes: int = 128,
        width: int = 640,
        pairs: int = 1024,
        saliency: float = 0.0,
        weight: float = 0.4,
        power: float = 0.5,
        whiten: float = 0.25,
    ):
        super().__init__(in_dim, out_dim)
        before = max(1, in_dim // 5) if before is None else before
        if not 0 < before < in_dim:
            raise ConfigError(f"before must be between 1 and {in_dim - 1} of the {in_dim} channels, got {before}")
        self.split = in_dim - before
        reduce, axes = min(reduce, self.split), min(axes, before)
        pairs = min(pairs, axes * (axes + 1) // 2)
        self.saliency, self.weight = saliency, weight
        self.last = nn.Parameter(torch.empty(self.split, reduce))
        self.before = nn.Parameter(torch.empty(before, axes))
        nn.init.orthogonal_(self.last)
        nn.init.orthogonal_(self.before)
        codebook = {"codewords": codewords, "projectors": projectors, "assign": assign}
        self.first = JCF(reduce, width, start="square", power=power, **codebook)
        self.second = JCF(axes, pairs, start="pairs", power=power)
        self.register_buffer("balance", torch.tensor(1.0))  # c
        self.ending = Ending(width + pairs, out_dim, whiten=whiten)

    def forward(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b out"]:
        return self.ended(self.kept_sums(x, mask))

    def local(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b l out"]:
        last, before = self._layers(self.checked(x, mask))
        both = [self.first.local(last, mask), self.balance * self.second.local(before, mask)]
        return self.ending.local(torch.cat(both, -1))

    @property
    def keeps_sums(self) -> bool:
        return True

    def kept_sums(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b k"]:
        """[z₁; c z₂]."""
        last, before = self._layers(self.checked(x, mask))
        return torch.cat([self.first(last, mask), self.balance * self.second(before, mask)], -1)

    def ended(self, sums: Float[Tensor, "b k"]) -> Float[Tensor, "b out"]:
        return self.ending(sums)

    def readout_parameters(self) -> Iterator[nn.Parameter]:
        """W."""
        yield from self.ending.parameters()

    @property
    def codebooks(self) -> nn.ModuleList:
        """JCF's, of the last layer."""
        return self.first.codebooks

    def assignments(self, x: Locals) -> tuple[Float[Tensor, "b l n"], Float[Tensor, "b l n"]]:
        """h(x) of both factors, dense, as ``JCF`` has it."""
        return self.first.assignments(self._layers(x)[0])

    def _layers(self, x: Locals) -> tuple[Float[Tensor, "b l p"], Float[Tensor, "b l q"]]:
        last, before = self._channels(x)
        return last @ self.last, before @ self.before

    @torch.no_grad()
    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """P and Q, each part on its own, c, then W from the images' sums."""
        for layer, weight in enumerate((self.last, self.before)):
            own = Mapped(features, lambda x, layer=layer: self._channels(x.float())[layer])
            found = main_directions(own, weight.shape[1]).to(weight)
            weight[:, : found.shape[1]].copy_(found)
            norm = (sample(own, 20_000, seed=seed).to(weight) @ weight).norm(dim=1).mean()
            weight.div_(norm.clamp_min(1e-6))  # about 1: squares stay within half precision
        streams = [Mapped(features, lambda x, i=i: self._layers(x.to(self.last))[i]) for i in (0, 1)]
        self.first.fit(streams[0], seed=seed, channels=self.last.T)
        self.second.fit(streams[1], seed=seed)
        self.balance.fill_(1.0)
        batches = image_batches(features, self.in_dim, of=self.family)
        sums = torch.cat([self.kept_sums(some.to(self.last)) for some in batches])
        width = self.first.out_dim
        lengths = [part.square().sum(1).mean().sqrt() for part in (sums[:, :width], sums[:, width:])]
        self.balance.copy_(self.weight * lengths[0] / lengths[1].clamp_min(1e-12))
        sums[:, width:] *= self.balance
        self.ending.fit(sums)

    def _channels(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x and y; each times |x|^(s/2), for their products are what counts."""
        last, before = x[..., : self.split], x[..., self.split :]
        if not self.saliency:
            return last, before
        counts = last.square().mean(-1, keepdim=True).clamp_min(1e-12) ** (self.saliency / 4)
        return last * counts, before * counts

    def flops(self, locations: int) -> int:
        reductions = 2 * locations * (self.last.numel() + self.before.numel())
        return reductions + self.first.flops(locations) + self.second.flops(locations) + self.ending.flops()

    def extra_repr(self) -> str:
        return f"in_dim={self.in_dim}, out_dim={self.out_dim}, before={len(self.before)}"
