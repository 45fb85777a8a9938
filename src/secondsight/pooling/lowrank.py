"""Low-rank bilinear pooling: bilinear classifiers whose bilinear feature is never formed.

Kong & Fowlkes, "Low-Rank Bilinear Pooling for Fine-Grained Classification", CVPR 2017, equations 5 and 9. A linear SVM
on X Xᵀ with a symmetric weight matrix of rank r has, for class c, the score

    s_c = ‖U₊ᵀ P X‖²_F − ‖U₋ᵀ P X‖²_F + b ,    P ∈ R^{m×d} shared by the classes,  U₊, U₋ ∈ R^{m×r/2} .
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from secondsight.errors import ConfigError, ShapeError
from secondsight.functional.pooling.locations import location_count
from secondsight.functional.pooling.quadratic import quadratic, quadratic_flops, quadratic_local
from secondsight.pooling.contract import Features, Grid, Pooling
from secondsight.pooling.principal import main_directions


class LowRankBilinear(Pooling):
    """``lrbp-r``: ‖U₊ᵀPX‖²_F − ‖U₋ᵀPX‖²_F of ``out_dim`` classes, as a representation or for ``LowRankHinge``.

    The offset b is the classifier's: without it the scores are a sum over locations.

    Args:
        in_dim: d, the size of a local feature.
        out_dim: D; the number of classes when it is trained with ``LowRankHinge``.
        rank: r, even: half of it positive, half negative. The paper uses 8.
        channels: m, what the features are reduced to. The paper uses 100; never more than d.
        reduce: ``"sum"`` over locations or ``"mean"``; scores that do not grow with the image need ``"mean"``.
    """

    family = "lrbp"
    summary = "scores of low-rank bilinear classifiers"
    paper = "Kong & Fowlkes, CVPR 2017"
    name_options = ("rank",)
    additive = True
    signs: Tensor

    def __init__(self, in_dim: int, out_dim: int, *, rank: int = 8, channels: int = 100, reduce: str = "sum"):
        super().__init__(in_dim, out_dim)
        if rank < 2 or rank % 2:
            raise ConfigError(f"lrbp: rank must be even and at least 2 (half positive, half negative), got {rank}")
        if channels < 1:
            raise ConfigError(f"lrbp: channels must be at least 1, got {channels}")
        if reduce not in ("sum", "mean"):
            raise ConfigError(f"lrbp: reduce must be 'sum' or 'mean', got {reduce!r}")
        self.reduce = reduce
        m = min(channels, in_dim)
        self.project = nn.Parameter(nn.init.orthogonal_(torch.empty(m, in_dim)))
        # The score of one unit-norm location in P's span then has variance 1: each of r squares adds 2σ⁴.
        self.factors = nn.Parameter(torch.randn(out_dim, rank, m) * (2 * rank) ** -0.25)
        self.register_buffer("signs", torch.ones(rank), persistent=False)
        self.signs[rank // 2 :] = -1

    def forward(
        self, x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None = None, *, grid: Grid | None = None
    ) -> Float[Tensor, "b out"]:
        return quadratic(self._reduced(x, mask), self.factors, self.signs)

    def local(
        self, x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None = None, *, grid: Grid | None = None
    ) -> Float[Tensor, "b l out"]:
        return quadratic_local(self._reduced(x, mask), self.factors, self.signs)

    def _reduced(self, x: Tensor, mask: Tensor | None) -> Float[Tensor, "b l m"]:
        """P x, divided by √L for a mean: the scores are quadratic in it."""
        x = self.checked(x, mask)
        px = x @ self.project.mT
        return px if self.reduce == "sum" else px * location_count(x, mask).rsqrt()[..., None]

    @torch.no_grad()
    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """P starts at the directions of most energy (not centred: the mean direction carries information too)."""
        self.project.copy_(main_directions(features, len(self.project)))

    def flops(self, locations: int) -> int:
        out, r, m = self.factors.shape
        return 2 * locations * self.in_dim * m + quadratic_flops(locations, m, out, r)


class LowRankHinge(nn.Module):
    """The paper's classifier on top: the offsets b, and the hinge loss of one-vs-rest SVMs.

    The paper's ½‖U‖² is the optimiser's weight decay.

    >>> pooling, classifier = LowRankBilinear(8, 3, reduce="mean"), LowRankHinge(3)
    >>> x, labels = torch.randn(4, 49, 8), torch.tensor([0, 1, 2, 0])
    >>> classifier(pooling(x), labels).ndim, classifier.predict(pooling(x)).shape
    (0, torch.Size([4]))
    """

    def __init__(self, classes: int, *, margin: float = 1.0):
        super().__init__()
        if classes < 2:
            raise ConfigError(f"LowRankHinge: a classifier needs at least 2 classes, got {classes}")
        self.margin = margin
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, z: Float[Tensor, "b c"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The mean loss of a batch of pooled scores."""
        return one_vs_rest_hinge(self.scores(z), labels, margin=self.margin)

    def scores(self, z: Float[Tensor, "b c"]) -> Float[Tensor, "b c"]:
        """s = z + b."""
        if z.shape[-1] != len(self.bias):
            raise ShapeError(f"LowRankHinge has {len(self.bias)} classes, got {z.shape[-1]} scores; match out_dim")
        return z + self.bias

    def predict(self, z: Float[Tensor, "b c"]) -> Int[Tensor, " b"]:
        """The class of the highest score."""
        return self.scores(z).argmax(1)


def one_vs_rest_hinge(
    scores: Float[Tensor, "b c"], labels: Int[Tensor, " b"], *, margin: float = 1.0
) -> Float[Tensor, ""]:
    """Σ_c max(0, margin − y_c s_c), y_c = 1 for the image's class and −1 for the others, averaged over images."""
    y = nn.functional.one_hot(labels, scores.shape[1]).to(scores.dtype) * 2 - 1
    return (margin - y * scores).clamp_min(0).sum(1).mean()
