"""Squares of a network's last channels beside JCF of the layer before them: what is there, and what is there together.

    s = E_l[h_l²]                                      how strong each channel is (GeM with p = 2 is its root)
    c = JCF of Pᵀ(b_l − μ)                             which of the features before it occur together (second order)
    z = Wᵀ [n(√s); n(√c)],   n(y) = y' / ‖y'‖,   y' = y without the mean direction

h and b are the first ``split`` channels and the others. √ is signed. Each part has length 1, so neither drowns the
other; W starts as part of a whitening of both together. s by itself is averaging's kin, and JCF by itself
hears the background: together they are level with JCF of the last layer, better on some
kinds of images and worse on others (docs/results.md).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor, nn

from secondsight.errors import ConfigError
from secondsight.functional.pooling.full_precision import full_precision
from secondsight.functional.pooling.locations import location_shares
from secondsight.pooling.contract import Features, Grid, Locals, Mask, Pooling
from secondsight.pooling.ending import SMOOTH
from secondsight.pooling.feature_samples import Mapped, chunks, image_batches
from secondsight.pooling.jcf import JCF
from secondsight.pooling.principal import main_directions, shrunk_whitening


class Mixed(Pooling):
    """``mixed`` (JCF without a codebook), ``mixed-N`` and ``mixed-N-R``.

    Args:
        in_dim: Channels of a local feature, h and b together.
        out_dim: D.
        codewords, projectors: N and R of JCF.
        split: Channels that are squared, the first ones; JCF sees the others. None: both see all of them.
        axes: Principal axes of b that JCF sees.
        width: Products that JCF makes of them; fewer where there are not so many pairs.
        whiten: W starts as the −``whiten``-th power of E[z zᵀ], regularised: 0 cuts to D numbers, ½ whitens.
    """

    family = "mixed"
    summary = "squares of the last channels beside JCF of those before"
    paper = "ours, with JCF of Jacob, Picard, Histace, Klein 2019"
    expects = "a fit before use"
    name_options = ("codewords", "projectors")
    examples = ("mixed", "mixed-32-8")
    skips_reduction = True
    additive = True
    mean: Tensor
    levels: Tensor
    common: Tensor

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        codewords: int | None = None,
        projectors: int | None = None,
        split: int | None = None,
        axes: int = 64,
        width: int = 1024,
        whiten: float = 0.2,
    ):
        super().__init__(in_dim, out_dim)
        if split is not None and not 0 < split < in_dim:
            raise ConfigError(f"mixed: split must leave channels on both sides of {in_dim}, got {split}")
        if not 0 <= whiten <= 0.5:
            raise ConfigError(f"mixed: whiten must be between 0 (cut to the size asked for) and 0.5, got {whiten}")
        self.split, self.whiten = split, whiten
        before = in_dim - (split or 0)
        axes = min(axes, before)
        self.width = min(width, axes * (axes + 1) // 2)
        self.squares = split or in_dim
        if out_dim > self.squares + self.width:
            raise ConfigError(
                f"mixed: {self.squares} squares and {self.width} products cannot end as {out_dim} numbers"
            )
        self.axes = nn.Parameter(torch.eye(before, axes))
        self.jcf = JCF(axes, self.width, codewords=codewords, projectors=projectors, start="pairs", reduce="mean")
        total = self.squares + self.width
        self.register_buffer("mean", torch.zeros(before))  # μ
        self.register_buffer("levels", torch.ones(2))  # mean |s| and |c|: below a hundredth the root bends
        self.register_buffer("common", torch.zeros(total))  # the mean directions, of length 1 each
        # W · √K, as that of ``Ending``: a step of an optimiser then changes it as little as it changes projectors.
        self.weight = nn.Parameter(torch.eye(total, out_dim) * total**0.5)

    def forward(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b out"]:
        with full_precision(self.checked(x, mask)) as x:
            return self._ended(*self._sums(x, mask))

    def local(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b l out"]:
        """Root, direction and length of a part are those of its sum: one factor for all that its locations add."""
        with full_precision(self.checked(x, mask)) as x:
            shares = location_shares(x, mask)[..., None]
            s = self._first(x).square() * shares
            c = self.jcf.local(self._second(x).to(self.axes.dtype), mask).to(s.dtype)
            return self._ended(s, c, sums=(s.sum(1), c.sum(1)))

    def _first(self, x: Tensor) -> Tensor:
        return x[..., : self.squares]

    def _second(self, x: Tensor) -> Tensor:
        """What JCF sees of a location."""
        b = x if self.split is None else x[..., self.split :]
        return (b - self.mean.to(x.dtype)) @ self.axes.to(x.dtype)

    def _sums(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """s and c."""
        s = (self._first(x).square() * location_shares(x, mask)[..., None]).sum(1)
        return s, self.jcf(self._second(x).to(self.axes.dtype), mask).to(s.dtype)

    def _parts(self, *parts: Tensor, sums: tuple[Tensor, Tensor]) -> Float[Tensor, "... k"]:
        """[n(√s); n(√c)] of ``parts``: of the sums themselves, or of what they are sums of."""
        found = []
        commons = self.common.to(sums[0].dtype).split([self.squares, self.width])
        for part, z, level, common in zip(parts, sums, self.levels.to(sums[0].dtype), commons, strict=True):
            ratio = (z.abs() / level + SMOOTH).rsqrt()
            whole = _apart(z * ratio, common)
            scale = whole.square().sum(-1, keepdim=True).clamp_min(1e-12).rsqrt()
            if part.ndim > z.ndim:
                ratio, scale = ratio[:, None], scale[:, None]
            found.append(_apart(part * ratio, common) * scale)
        return torch.cat(found, -1)

    def _ended(self, s: Tensor, c: Tensor, *, sums: tuple[Tensor, Tensor] | None = None) -> Tensor:
        return self._parts(s, c, sums=sums or (s, c)) @ self.weight.to(s.dtype) / len(self.weight) ** 0.5

    @torch.no_grad()
    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """Mean, axes and JCF from the locations; then the rest from the images' sums."""
        total, count = torch.zeros(self.in_dim, dtype=torch.float64), 0
        for x in chunks(features):
            total, count = total + x.double().sum(0).cpu(), count + len(x)
        self.mean.copy_((total / max(count, 1))[self.split or 0 :])
        centred = Mapped(features, lambda x: (x if self.split is None else x[..., self.split :]) - self.mean.to(x))
        self.axes.copy_(main_directions(centred, self.axes.shape[1]))
        self.jcf.fit(Mapped(features, lambda x: self._second(x.to(self.axes))), seed=seed)
        images = image_batches(features, self.in_dim, of="mixed")
        found = [self._sums(some.to(self.axes), None) for some in images]
        s, c = (torch.cat(sums) for sums in zip(*found, strict=True))
        self.levels.copy_(torch.stack([s.abs().mean(), c.abs().mean()]).clamp_min(1e-12))
        self.common.zero_()
        rooted = [z * (z.abs() / level + SMOOTH).rsqrt() for z, level in zip((s, c), self.levels, strict=True)]
        self.common.copy_(torch.cat([nn.functional.normalize(y.mean(0), dim=0) for y in rooted]))
        w = shrunk_whitening(self._parts(s, c, sums=(s, c)), self.whiten, keep=self.out_dim, seed=seed)
        self.weight.copy_(w * len(w) ** 0.5)

    @property
    def codebooks(self) -> nn.ModuleList:
        """JCF's; empty without one."""
        return self.jcf.codebooks

    def assignments(self, x: Locals) -> tuple[Float[Tensor, "b l n"], Float[Tensor, "b l n"]]:
        """JCF's: which codewords a location belongs to."""
        return self.jcf.assignments(self._second(x))

    def readout_parameters(self) -> Iterator[nn.Parameter]:
        """W."""
        yield self.weight

    def flops(self, locations: int) -> int:
        reduce = 2 * self.axes.numel() + 3 * self.in_dim
        return locations * reduce + self.jcf.flops(locations) + 2 * self.weight.numel()


def _apart(y: Tensor, common: Tensor) -> Tensor:
    """y without its part along ``common``."""
    return y - (y * common).sum(-1, keepdim=True) * common
