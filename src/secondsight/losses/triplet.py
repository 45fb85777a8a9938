"""Triplet losses on cosine similarity, over all triplets or the semi-hard ones."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor

from secondsight.errors import require_known
from secondsight.functional.losses.pairs import unit
from secondsight.functional.losses.triplets import all_triplets, hardest_semihard_triplets, semihard_triplets
from secondsight.losses.contract import Expects, Loss, require_positive


class Triplet(Loss):
    """mean of relu(s_an − s_ap + margin) over the triplets where it is above 0, s the cosine similarity."""

    name = "triplet"
    paper = "Jacob et al. 2019; Weinberger & Saul 2009"
    expects = Expects(2, 2, "≥ 2 images of ≥ 2 classes")

    def __init__(self, *, dim: int, classes: int, margin: float = 0.1):
        super().__init__(dim=dim, classes=classes)
        require_positive(self.name, margin=margin)
        self.margin = margin

    def compute(self, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        return all_triplets(unit(z), labels, margin=self.margin)

    @property
    def collapsed(self) -> float:
        return self.margin  # every hinge is relu(s − s + margin)


class SemiHard(Loss):
    """The triplet loss over semi-hard triplets: negatives less similar than the positive, but by less than the margin.

    ``negatives="hardest"`` takes one negative for each positive pair, the most similar of them (FaceNet); a pair
    whose negatives are all at least as similar as its positive falls back to its least similar negative, or with
    ``fallback=False`` to none. ``negatives="all"`` averages over all semi-hard triplets.
    """

    name = "semihard"
    paper = "Schroff et al. 2015, section 3.2"
    expects = Expects(2, 2, "≥ 2 images of ≥ 2 classes; many classes, to find semi-hard ones")

    def __init__(
        self,
        *,
        dim: int,
        classes: int,
        margin: float = 0.1,
        negatives: Literal["hardest", "all"] = "hardest",
        fallback: bool = True,
    ):
        super().__init__(dim=dim, classes=classes)
        require_positive(self.name, margin=margin)
        require_known("choice of semi-hard negatives", negatives, ("hardest", "all"))
        self.margin = margin
        self.negatives = negatives
        self.fallback = fallback

    def compute(self, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        if self.negatives == "all":
            return semihard_triplets(unit(z), labels, margin=self.margin)
        return hardest_semihard_triplets(unit(z), labels, margin=self.margin, fallback=self.fallback)

    @property
    def collapsed(self) -> float | None:
        return self.margin if self.negatives == "hardest" and self.fallback else None  # nothing is semi-hard there
