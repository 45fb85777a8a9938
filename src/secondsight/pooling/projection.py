"""One named projection to ``out_dim`` for the poolings that are too wide to compare: learned, PCA, or PCA-whitening.

PCA and whitening of pooled vectors: Jégou & Chum, "Negative evidences and co-occurences in image retrieval: the benefit
of PCA and whitening", ECCV 2012.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from secondsight.errors import ConfigError, DataError, RunError, require_known
from secondsight.evaluation_mode import evaluating
from secondsight.functional.pooling.locations import location_shares
from secondsight.functional.pooling.normalise import normalisation
from secondsight.pooling.contract import Features, Grid, Locals, Mask, Pooling
from secondsight.pooling.feature_samples import image_batches
from secondsight.pooling.principal import PCA
from secondsight.progress import track

PROJECTIONS = ("linear", "pca", "pca-whiten")
"""linear: learned · pca: the directions of most variance · pca-whiten: the same, each with variance 1."""

BLOCK = 512  # pooled vectors that a fit takes in at a time


class Projected(Pooling):
    """A pooling and a projection of its output: z = W n(pooling(x)), or W (n(pooling(x)) − μ) for PCA.

    Args:
        pooling: What is projected.
        out_dim: D.
        method: One of ``PROJECTIONS``. ``pca`` and ``pca-whiten`` are fitted by ``fit`` from images, and not trained.
        normalise: n: ``none``, ``l2`` or ``sqrt-l2``. Methods whose papers prescribe one do it themselves.
    """

    takes_out_dim = False
    additive = True
    uses_grid = True
    weight: Tensor
    offset: Tensor
    fitted: Tensor

    def __init__(self, pooling: Pooling, *, out_dim: int, method: str = "linear", normalise: str = "none"):
        super().__init__(pooling.in_dim, out_dim)
        require_known("projection", method, PROJECTIONS)
        if method != "linear" and out_dim > pooling.out_dim:
            raise ConfigError(
                f"{method} cannot make {out_dim} dimensions of {type(pooling).__name__}'s {pooling.out_dim}; "
                f"ask for out_dim ≤ {pooling.out_dim}, or projection='linear'"
            )
        self.pooling, self.method, self.normalise = pooling, method, normalise
        self.normalised = normalisation(normalise)
        self.additive = pooling.additive and normalise == "none"
        self.uses_grid = pooling.uses_grid
        self._ready = method == "linear"
        if self._ready:
            # A random projection keeps inner products (Johnson & Lindenstrauss): a fair start for any pooling.
            self.weight = nn.Parameter(torch.randn(out_dim, pooling.out_dim) * out_dim**-0.5)
        else:
            self.register_buffer("weight", torch.zeros(out_dim, pooling.out_dim))
            self.register_buffer("offset", torch.zeros(out_dim))  # −W μ
            self.register_buffer("fitted", torch.tensor(False))
            self.register_load_state_dict_post_hook(_restore)

    @property
    def native_dim(self) -> int:
        return self.pooling.out_dim

    def forward(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b out"]:
        self._check_ready()
        p = self._pooled(x, mask, grid)
        z = p @ self.weight.mT.to(p.dtype)
        return z if self.method == "linear" else z + self._share(x, mask).sum(1)

    def local(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b l out"]:
        """The pooling's own contributions, projected; PCA's −W μ is shared equally by an image's locations."""
        self._check_ready()
        if self.normalised is not None:
            raise ConfigError(
                f"a projection after normalise={self.normalise!r} is not a sum over locations, so it has no local "
                "contributions; build it with normalise='none'"
            )
        p = self.pooling.local(x, mask, grid=grid)
        z = p @ self.weight.mT.to(p.dtype)
        return z if self.method == "linear" else z + self._share(x, mask)

    def _pooled(self, x: Tensor, mask: Tensor | None, grid: Grid | None) -> Tensor:
        z = self.pooling(x, mask, grid=grid)
        return z if self.normalised is None else self.normalised(z)

    def _share(self, x: Tensor, mask: Tensor | None) -> Float[Tensor, "b l out"]:
        """−W μ / L at every real location: an image without any then gives zeros, as the contract wants."""
        return location_shares(x, mask)[..., None] * self.offset

    def _check_ready(self) -> None:
        if not self._ready:
            raise RunError(
                f"the {self.method} projection is not fitted: call fit(features) with training images first, "
                "or load a fitted state_dict"
            )

    @torch.no_grad()
    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """Fit the pooling from local features, then PCA from the images' pooled vectors, in one more pass."""
        self.pooling.fit(features, grid=grid, seed=seed)
        if self.method == "linear":
            return
        pca = PCA(rank=min(self.pooling.out_dim, self.out_dim + self.out_dim // 2))
        with evaluating(self):
            for block in self._blocks(features, grid):
                pca.add(block)
        if pca.count <= self.out_dim:
            raise DataError(
                f"{self.method} to {self.out_dim} dimensions needs more than {self.out_dim} images to fit from, got "
                f"{pca.count}; give more, or ask for a smaller out_dim"
            )
        self._set(pca)

    def _blocks(self, features: Features, grid: Grid | None):
        """Pooled vectors of the stream's images, about BLOCK at a time."""
        waiting: list[Tensor] = []
        for some in track(image_batches(features, self.in_dim, of=self.method), f"fitting {self.method}"):
            waiting.append(self._pooled(some.to(self.weight), None, grid))
            if sum(map(len, waiting)) >= BLOCK:
                block, waiting = torch.cat(waiting), []
                yield block
        if waiting:
            yield torch.cat(waiting)

    def _set(self, pca: PCA) -> None:
        axes, variances = pca.axes[: self.out_dim], pca.variances[: self.out_dim]
        if self.method == "pca-whiten":
            # Directions with almost no variance would be blown up to noise of variance 1.
            axes = axes / (variances + 1e-6 * variances[0]).clamp_min(1e-30).sqrt()[:, None]
        axes = nn.functional.pad(axes, (0, 0, 0, self.out_dim - len(axes)))
        self.weight.copy_(axes)
        self.offset.copy_(-axes @ pca.mean)
        self.fitted.fill_(True)
        self._ready = True

    def flops(self, locations: int) -> int:
        return self.pooling.flops(locations) + 2 * self.pooling.out_dim * self.out_dim


def _restore(module: nn.Module, _keys) -> None:
    module._ready = bool(module.fitted)  # type: ignore[assignment]
