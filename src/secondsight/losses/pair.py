"""Losses on pairs: contrastive, lifted structure, binomial deviance, multi-similarity, histogram."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from secondsight.functional.losses.boosting import binomial_deviance
from secondsight.functional.losses.histogram import histogram_loss
from secondsight.functional.losses.pairs import euclidean, mean_or_zero, pair_masks, unit
from secondsight.losses.contract import Expects, Loss, require_positive


class Contrastive(Loss):
    """mean of d over positives + of relu(margin − d) over negatives, where above 0; d Euclidean on unit vectors."""

    name = "contrastive"
    paper = "Hadsell et al. 2006"
    provider = "pytorch-metric-learning"
    expects = Expects(2, 2, "≥ 2 images of ≥ 2 classes")

    def __init__(self, *, dim: int, classes: int, margin: float = 1.0, positive_margin: float = 0.0):
        from pytorch_metric_learning.distances import LpDistance
        from pytorch_metric_learning.losses import ContrastiveLoss

        super().__init__(dim=dim, classes=classes)
        require_positive(self.name, margin=margin)
        self.criterion = ContrastiveLoss(
            pos_margin=positive_margin,  # pyright: ignore[reportArgumentType] (its defaults are written as ints)
            neg_margin=margin,  # pyright: ignore[reportArgumentType]
            distance=LpDistance(normalize_embeddings=False),
        )

    def compute(self, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        return self.criterion(unit(z), labels)


class Lifted(Loss):
    """½ mean over positive pairs of relu(d_ij + log(Σ_k e^{margin − d_ik} + Σ_l e^{margin − d_jl}))².

    k and l run over the negatives of i and of j; d is Euclidean on vectors of length ``radius``. The paper leaves the
    length to the network; on the unit sphere the sum over negatives never gets small, every pair is pulled for good,
    and classes that were not trained suffer.
    """

    name = "lifted"
    paper = "Oh Song et al. 2016, eq. 4"
    expects = Expects(2, 2, "≥ 2 images of ≥ 2 classes")

    def __init__(self, *, dim: int, classes: int, margin: float = 1.0, radius: float = 8.0):
        super().__init__(dim=dim, classes=classes)
        require_positive(self.name, margin=margin, radius=radius)
        self.margin, self.radius = margin, radius

    def compute(self, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        u = unit(z)
        d = self.radius * euclidean(u @ u.T)
        positive, negative = pair_masks(labels)
        pull = (self.margin - d).masked_fill(~negative, -torch.inf).logsumexp(1)
        i, j = positive.triu().nonzero(as_tuple=True)
        return mean_or_zero((d[i, j] + torch.logaddexp(pull[i], pull[j])).relu().square()) / 2


class Binomial(Loss):
    """mean over positives + mean over negatives of log(1 + exp(−α(s − β)m)), m = 1 or −C, s the cosine similarity."""

    name = "binomial"
    paper = "Yi et al. 2014; Ustinova & Lempitsky 2016"
    expects = Expects(2, 2, "≥ 2 images of ≥ 2 classes")

    def __init__(self, *, dim: int, classes: int, alpha: float = 2.0, beta: float = 0.5, cost: float = 25.0):
        super().__init__(dim=dim, classes=classes)
        require_positive(self.name, alpha=alpha, cost=cost)
        self.alpha, self.beta, self.cost = alpha, beta, cost

    def compute(self, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        u = unit(z)
        return binomial_deviance(u @ u.T, labels, alpha=self.alpha, beta=self.beta, cost=self.cost)


class MultiSimilarity(Loss):
    """mean over anchors of 1/α log(1 + Σ_p e^{−α(s_ap − λ)}) + 1/β log(1 + Σ_n e^{β(s_an − λ)}) over the mined pairs.

    Mined are the negatives above the least similar positive − ε, and the positives below the most similar negative + ε.
    """

    name = "multi-similarity"
    paper = "Wang et al. 2019, eq. 15"
    provider = "pytorch-metric-learning"
    expects = Expects(2, 2, "≥ 2 images of ≥ 2 classes; the authors take 5 images a class")

    def __init__(
        self,
        *,
        dim: int,
        classes: int,
        alpha: float = 2.0,
        beta: float = 50.0,
        base: float = 0.5,
        epsilon: float = 0.1,
    ):
        from pytorch_metric_learning.distances import DotProductSimilarity
        from pytorch_metric_learning.losses import MultiSimilarityLoss
        from pytorch_metric_learning.miners import MultiSimilarityMiner

        super().__init__(dim=dim, classes=classes)
        require_positive(self.name, alpha=alpha, beta=beta)
        cosine = DotProductSimilarity(normalize_embeddings=False)  # they are unit vectors already
        self.criterion = MultiSimilarityLoss(
            alpha=alpha,  # pyright: ignore[reportArgumentType]
            beta=beta,  # pyright: ignore[reportArgumentType]
            base=base,
            distance=cosine,
        )
        self.miner = MultiSimilarityMiner(epsilon=epsilon, distance=cosine)

    def compute(self, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        u = unit(z)
        return self.criterion(u, labels, self.miner(u.detach(), labels))


class Histogram(Loss):
    """The probability that a random negative pair is more similar than a random positive one, from two histograms."""

    name = "histogram"
    paper = "Ustinova & Lempitsky 2016, eq. 5"
    expects = Expects(2, 2, "≥ 2 images of ≥ 2 classes; large, for smooth histograms")

    def __init__(self, *, dim: int, classes: int, bins: int = 100):
        super().__init__(dim=dim, classes=classes)
        require_positive(self.name, bins=bins)
        self.bins = bins

    def compute(self, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        u = unit(z)
        return histogram_loss(u @ u.T, labels, bins=self.bins)
