"""Losses on the whole ranking of a query."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from secondsight.functional.losses.pairs import unit
from secondsight.functional.losses.smooth_ap import smooth_ap
from secondsight.losses.contract import Expects, Loss, require_positive


class SmoothAP(Loss):
    """1 − average precision of each image as a query among the batch, with ranks made of sigmoids of steepness 1/τ."""

    name = "smooth-ap"
    paper = "Brown et al. 2020"
    expects = Expects(2, 2, "≥ 2 images of many classes, the batch is the ranking; the authors take 4 images a class")

    def __init__(self, *, dim: int, classes: int, temperature: float = 0.01):
        super().__init__(dim=dim, classes=classes)
        require_positive(self.name, temperature=temperature)
        self.temperature = temperature

    def compute(self, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        return smooth_ap(unit(z), labels, temperature=self.temperature)
