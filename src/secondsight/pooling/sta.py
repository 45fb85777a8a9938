"""STA and ISTA: cross-correlations of neighbouring locations, for every pair of codewords.

STA: Picard, "Preserving local spatial information in image similarity using tensor aggregation of local features",
ICIP 2016. ISTA: Jacob, Picard, Histace, Klein, "Leveraging implicit spatial information in global features for image
retrieval", ICIP 2018.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from secondsight.errors import ConfigError, DataError, ShapeError
from secondsight.functional.pooling.blocks import BLOCK_NORMALISATIONS, across_codewords
from secondsight.functional.pooling.codeword_tensors import own_linear, route, routed_linear, unrouted
from secondsight.functional.pooling.normalise import l2
from secondsight.functional.pooling.residuals import nearest_codeword
from secondsight.functional.pooling.shifts import half_plane, local_pair_tensors, own_pair_tensors, spread
from secondsight.pooling.codebook_pooling import FIT_POINTS, CodebookPooling, set_values
from secondsight.pooling.contract import Features, Grid, Locals, Mask, at_least_one
from secondsight.pooling.feature_samples import kmeans
from secondsight.pooling.principal import cluster_axes
from secondsight.pooling.vlat import offsets
from secondsight.progress import track

IMAGES = 16
"""Images whose tensors are formed at a time while ISTA's means are gathered."""


class _SpatialTensors(CodebookPooling):
    """What STA and ISTA share: a codeword and p features for every location, a tensor for every pair of codewords."""

    uses_grid = True
    normalisations = (*BLOCK_NORMALISATIONS, "power-across")
    name_options = ("codewords", "dim")

    def __init__(
        self,
        in_dim: int,
        *,
        codewords: int = 8,
        dim: int = 16,
        radius: int = 1,
        shifts: Sequence[Sequence[int]] | None = None,
        normalise: str = "power-l2",
        power: float = 0.1,
        fit_points: int = FIT_POINTS,
    ):
        at_least_one(self.family, codewords=codewords, dim=dim)
        dim = min(dim, in_dim)
        super().__init__(
            in_dim, (codewords * codewords, dim * dim), normalise=normalise, power=power, fit_points=fit_points
        )
        if radius < 0:
            raise ConfigError(f"{self.family}: radius must be at least 0, got {radius}")
        if shifts is not None and (not shifts or any(len(shift) != 2 for shift in shifts)):
            raise ConfigError(f"{self.family}: shifts must be (rows down, columns right) pairs, got {shifts}")
        self.shifts = half_plane(radius) if shifts is None else tuple((int(row), int(column)) for row, column in shifts)
        self.codewords, self.dim = codewords, dim
        self._make_buffers()

    def _make_buffers(self) -> None:
        raise NotImplementedError

    def described(self, x: Locals, mask: Mask) -> tuple[Tensor, Float[Tensor, "b l p"]]:
        """The codeword (b, l) and the p features of every location."""
        raise NotImplementedError

    def sums(self, x: Locals, mask: Mask, grid: Grid | None) -> Float[Tensor, "b pairs dims"]:
        grid = self._grid(x, grid)
        words, y = self.described(x, mask)
        return own_pair_tensors(y, words, self.codewords, mask, grid, self.shifts).flatten(3).flatten(1, 2)

    def terms(self, x: Locals, mask: Mask, grid: Grid | None) -> Float[Tensor, "b l pairs dims"]:
        grid = self._grid(x, grid)
        words, y = self.described(x, mask)
        z = spread(y, words, self.codewords, mask)
        return local_pair_tensors(z, grid, self.shifts, self.codewords).flatten(4).flatten(2, 3)

    def normalised(self, v: Float[Tensor, "b blocks dims"]) -> Float[Tensor, "b out"]:
        return across_codewords(v, self.power) if self.normalise == "power-across" else super().normalised(v)

    def _grid(self, x: Tensor, grid: Grid | None) -> Grid:
        if grid is None:
            raise ShapeError(
                f"{self.family} looks at neighbouring locations and needs the feature map's shape: "
                f"pass grid=(height, width) with height · width = {x.shape[1]}"
            )
        if grid[0] * grid[1] != x.shape[1]:
            raise ShapeError(f"{self.family}: grid {grid[0]}×{grid[1]} does not fit {x.shape[1]} locations")
        return grid

    def _pair_flops(self) -> int:
        width = self.codewords * self.dim
        return len(self.shifts) * width + 2 * width * width


class STA(_SpatialTensors):
    """T_ij = Σ_n Σ_s y_s y_{s+n}ᵀ over locations s of codeword i with s + n of codeword j, summed over the shifts n.

    As in the author's code: features are projected on p principal axes and ℓ2-normalised, codewords are k-means of
    those, and y is the ℓ2-normalised residual to the codeword; then the signed power 0.1. Not as there, by default: his
    shifts go down the rows alone, which is ``shifts=[[0, 0], [1, 0], …, [n, 0]]``, and he divides each entry by its
    length across codewords before the ℓ2 norm of all, which is ``normalise="power-across"``.

    Args:
        in_dim: d of the local features.
        codewords: Codewords N.
        dim: Principal axes p; the output has N²·p² dimensions.
        radius: Neighbours of at most so many rows and columns, in one half-plane, and the location itself.
        shifts: Instead of ``radius``: pairs (rows down, columns right).
        normalise: ``power-l2``, ``power-across`` (the author's code), ``sqrt-l2``, ``l2``, ``intra-l2``, or ``none``,
            which is additive.
        power: The exponent of ``power-l2`` and ``power-across``.
        fit_points: Local features that ``fit`` looks at.
    """

    family = "sta"
    summary = "correlations of neighbouring locations, by codeword"
    paper = "Picard, ICIP 2016"
    expects = "the grid, and a fit before use"
    examples = ("sta-4",)
    centre: Tensor
    axes: Tensor
    centres: Tensor

    def _make_buffers(self) -> None:
        self.register_buffer("centre", torch.zeros(self.in_dim))
        self.register_buffer("axes", torch.zeros(self.in_dim, self.dim))
        self.register_buffer("centres", torch.zeros(self.codewords, self.dim))

    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """Principal axes and k-means, on a sample of the stream; the grid does not matter here."""
        points = self.points(features, seed)
        centre = points.mean(0)
        axes, _ = cluster_axes(points, centre[None], self.dim)
        set_values(self, centre=centre, axes=axes[0])
        set_values(self, centres=kmeans(l2((points - centre) @ axes[0]), self.codewords, seed=seed))
        self.mark_fitted()

    def described(self, x: Locals, mask: Mask) -> tuple[Tensor, Float[Tensor, "b l p"]]:
        centre, axes, centres = self.values("centre", "axes", "centres")
        y = l2(torch.nn.functional.linear(x, axes.T, -centre @ axes))
        words = nearest_codeword(y, centres)
        return words, l2(y - centres.index_select(0, words.flatten()).view_as(y))

    def flops(self, locations: int) -> int:
        return locations * (2 * self.in_dim * self.dim + 2 * self.codewords * self.dim + self._pair_flops())


class ISTA(_SpatialTensors):
    """T_ij = Σ_n Σ_s (y_s y_{s+n}ᵀ − T̄_ij) with y = V_iᵀ(x − μ_i), in the principal axes of a location's own codeword.

    Only the abstract of the paper could be read, which promises a better projection than STA's. What stands here is our
    reading of it, checked against nothing of the authors': axes fitted to each codeword instead of one set for all, so
    that as few dimensions keep more, and the mean tensor T̄_ij of the training images taken off, as VLAT does. With the
    shift (0, 0) alone it is VLAT. Arguments as for ``STA``; ``fit`` needs the grid, and reads the stream twice.
    """

    family = "ista"
    summary = "STA in each codeword's own axes; our reading of an abstract"
    paper = "Jacob, Picard, Histace, Klein, ICIP 2018 (only the abstract could be read)"
    expects = "the grid, and a fit before use"
    examples = ("ista-4",)
    centres: Tensor
    axes: Tensor
    mean_tensors: Tensor

    def _make_buffers(self) -> None:
        self.register_buffer("centres", torch.zeros(self.codewords, self.in_dim))
        self.register_buffer("axes", torch.zeros(self.codewords, self.in_dim, self.dim))
        self.register_buffer("mean_tensors", torch.zeros(self.codewords, self.codewords, self.dim, self.dim))

    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """k-means and each cluster's principal axes on a sample of the stream, then the mean tensors of its images."""
        if grid is None:
            raise ConfigError("ista: fit needs the feature map's shape: pass grid=(height, width)")
        if isinstance(features, Iterator):
            raise DataError(
                "ista: fit reads the features twice, and a generator can be read once: give a list or a DataLoader"
            )
        points = self.points(features, seed)
        centres = kmeans(points, self.codewords, seed=seed)
        axes, _ = cluster_axes(points, centres, self.dim)
        set_values(self, centres=centres, axes=axes)
        self.mean_tensors.copy_(self._mean_tensors(features, grid))
        self.mark_fitted()

    @torch.no_grad()
    def _mean_tensors(self, features: Features, grid: Grid) -> Tensor:
        (like,) = self.values("axes")
        totals, pairs = torch.zeros_like(self.mean_tensors, dtype=torch.float64), like.new_zeros(1)
        for x in track(_images(features, grid), "mean tensors"):
            words, y = self.described(x.to(like), None)
            totals += own_pair_tensors(y, words, self.codewords, None, grid, self.shifts).sum(0)
            pairs = pairs + self._pairs(words, None, grid, like).sum(0)
        return totals / pairs.clamp_min(1)

    def _pairs(self, words: Tensor, mask: Tensor | None, grid: Grid, like: Tensor) -> Tensor:
        """How many pairs of locations stand behind every T_ij: (b, n, n, 1, 1)."""
        ones = torch.ones(*words.shape, 1, dtype=like.dtype, device=like.device)
        return own_pair_tensors(ones, words, self.codewords, mask, grid, self.shifts)

    def described(self, x: Locals, mask: Mask) -> tuple[Tensor, Float[Tensor, "b l p"]]:
        centres, axes = self.values("centres", "axes")
        words = nearest_codeword(x, centres)
        if torch.compiler.is_exporting():
            return words, own_linear(x, words, axes, offsets(centres, axes))
        routes = route(words, self.codewords)
        y = unrouted(routed_linear(x, routes, axes, offsets(centres, axes)), routes.order)
        return words, y.view(*words.shape, self.dim)

    def sums(self, x: Locals, mask: Mask, grid: Grid | None) -> Float[Tensor, "b pairs dims"]:
        grid = self._grid(x, grid)
        words, y = self.described(x, mask)
        tensors = own_pair_tensors(y, words, self.codewords, mask, grid, self.shifts)
        pairs = self._pairs(words, mask, grid, x)
        return torch.addcmul(tensors, pairs, *self.values("mean_tensors"), value=-1).flatten(3).flatten(1, 2)

    def terms(self, x: Locals, mask: Mask, grid: Grid | None) -> Float[Tensor, "b l pairs dims"]:
        grid = self._grid(x, grid)
        words, y = self.described(x, mask)
        tensors = local_pair_tensors(spread(y, words, self.codewords, mask), grid, self.shifts, self.codewords)
        ones = spread(x.new_ones(*words.shape, 1), words, self.codewords, mask)
        pairs = local_pair_tensors(ones, grid, self.shifts, self.codewords)
        (means,) = self.values("mean_tensors")
        return (tensors - pairs * means).flatten(4).flatten(2, 3)

    def flops(self, locations: int) -> int:
        return locations * (2 * self.in_dim * (self.codewords + self.dim) + self._pair_flops())


def _images(features: Features, grid: Grid) -> Iterable[Float[Tensor, "b l d"]]:
    """The stream as images of h·w locations, a few at a time."""
    length = grid[0] * grid[1]
    for tensor in [features] if isinstance(features, Tensor) else features:
        flat = tensor.detach().reshape(-1, tensor.shape[-1])
        if len(flat) % length:
            raise ShapeError(
                f"ista: {len(flat)} local features are no whole number of {grid[0]}×{grid[1]} feature maps"
            )
        yield from flat.view(-1, length, flat.shape[1]).split(IMAGES)
