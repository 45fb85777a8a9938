"""The margin loss with distance-weighted sampling of negatives."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from secondsight.functional.losses.pairs import euclidean, unit
from secondsight.functional.losses.sampling import distance_weighted_triplets
from secondsight.losses.contract import Expects, Loss, nothing, require_positive


class Margin(Loss):
    """mean of relu(d_ap − β + margin) and relu(β − d_an + margin) over the ones above 0; β a class, learnt.

    Each positive pair draws one negative with weight 1 / q(d), q the density of distances on the sphere, so that near
    and far negatives come up alike. The draw depends on ``seed`` and on the number of steps taken, which is saved.
    """

    name = "margin"
    paper = "Wu et al. 2017"
    provider = "pytorch-metric-learning"
    expects = Expects(2, 2, "≥ 2 images of ≥ 2 classes; the authors take 5 images a class")
    step: Tensor

    def __init__(
        self,
        *,
        dim: int,
        classes: int,
        margin: float = 0.2,
        beta: float = 1.2,
        learn_beta: bool = True,
        cutoff: float = 0.5,
        far: float = 1.4,
        seed: int = 0,
    ):
        from pytorch_metric_learning.distances import LpDistance
        from pytorch_metric_learning.losses import MarginLoss

        super().__init__(dim=dim, classes=classes)
        require_positive(self.name, margin=margin, beta=beta, cutoff=cutoff, far=far)
        self.criterion = MarginLoss(
            margin=margin,
            beta=beta,
            learn_beta=learn_beta,
            num_classes=classes,
            distance=LpDistance(normalize_embeddings=False),
        )
        self.cutoff, self.far, self.seed = cutoff, far, seed
        self.register_buffer("step", torch.zeros((), dtype=torch.long))

    def compute(self, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        self.check_range(labels)
        u = unit(z)
        triplets = self._draw(u.detach(), labels)
        if self.training:
            self.step += 1
        return self.criterion(u, labels, triplets) if len(triplets[0]) else nothing(z)

    def _draw(self, u: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # Every process holds the same batch and draws the same negatives: the generator is made anew from the step.
        generator = torch.Generator(u.device).manual_seed(self.seed * 1_000_003 + int(self.step))
        return distance_weighted_triplets(
            euclidean(u @ u.T), labels, dim=self.dim, cutoff=self.cutoff, far=self.far, generator=generator
        )
