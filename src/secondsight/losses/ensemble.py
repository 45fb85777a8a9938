"""Schemes that cut the embedding into parts and teach each what the ones before it got wrong: HDC and BIER."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float, Int
from torch import Tensor

from secondsight.errors import ConfigError, require_known
from secondsight.functional.losses.boosting import (
    boosted_deviance,
    cascaded_contrastive,
    co_activation,
    hard_negative_contrastive,
)
from secondsight.functional.losses.pairs import unit
from secondsight.losses.contract import Expects, Loss, LossPart, cut, require_positive


class HDC(Loss):
    """Hard-aware deeply cascaded embedding: head k learns from the hardest fraction of the pairs that head k − 1 saw.

    Kept from the paper: the cascade, its fractions, the contrastive loss, the joined unit vectors at test time.
    Simplified: the heads are parts of one embedding, where the paper taps the network at rising depth.

    ``form="authors"`` is the value of the authors' layer, which is no cascade: squared distances, all positive pairs,
    head k's own hardest h_k of all negative ones, and one mean over both. (Its gradient there counts every negative
    pair once, not twice, and is divided by the share of triplets in the right order; here it is that of the value.)
    """

    name = "hdc"
    paper = "Yuan et al. 2017, section 3"
    expects = Expects(2, 2, "≥ 2 images of ≥ 2 classes; large, for the last head to have pairs left")

    def __init__(
        self,
        *,
        dim: int,
        classes: int,
        fractions: tuple[float, ...] = (1.0, 0.5, 0.2),
        sizes: tuple[int, ...] | None = None,
        margin: float = 1.0,
        form: Literal["cascade", "authors"] = "cascade",
    ):
        super().__init__(dim=dim, classes=classes)
        require_positive(self.name, margin=margin)
        require_known("form of hdc", form, ("cascade", "authors"))
        if not fractions or not all(0 < fraction <= 1 for fraction in fractions):
            raise ConfigError(f"hdc: fractions must be one or more numbers in (0, 1], got {fractions}")
        if sizes is not None and len(sizes) != len(fractions):
            raise ConfigError(f"hdc: {len(sizes)} sizes for {len(fractions)} fractions; each head needs one of each")
        self.fractions = tuple(fractions)
        self.sizes = cut(self.name, dim, sizes, (1,) * len(fractions))
        self.margin, self.form = margin, form

    @property
    def parts(self) -> tuple[LossPart, ...]:
        return tuple(LossPart(size, 1.0) for size in self.sizes)

    def compute(self, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        heads = [unit(head) for head in z.split(list(self.sizes), dim=1)]
        compute = cascaded_contrastive if self.form == "cascade" else hard_negative_contrastive
        return compute(heads, labels, fractions=self.fractions, margin=self.margin)


class BIER(Loss):
    """Boosting independent embeddings robustly: learner m + 1 weighs pairs by what learners 1…m still get wrong.

    ``boosting="shrinkage"`` adds ``shrinkage`` times what each learner says, as the authors' code; ``"paper"`` averages
    with η_m = 2/(m + 1), as the paper. ``self_pairs=True`` divides the positives as the authors' code, by their number
    and that of the batch's pairs of an image with itself; the default is their mean, n/(n − 1) times as much with n
    images a class.

    Kept from the paper: the learners and their growing sizes, binomial deviance, the boosted weights, the activation
    loss, the scaled parts at test time. Simplified: the activation loss sees the batch's embeddings, not the weights
    behind them, and its gradient also reaches the backbone.
    """

    name = "bier"
    paper = "Opitz et al. 2017, algorithm 1; Opitz et al. 2018"
    expects = Expects(2, 2, "≥ 2 images of ≥ 2 classes")

    def __init__(
        self,
        *,
        dim: int,
        classes: int,
        sizes: tuple[int, ...] | None = None,
        boosting: Literal["shrinkage", "paper"] = "shrinkage",
        shrinkage: float = 0.06,
        diversity: float = 0.1,
        alpha: float = 2.0,
        beta: float = 0.5,
        cost: float = 25.0,
        self_pairs: bool = False,
    ):
        super().__init__(dim=dim, classes=classes)
        require_positive(self.name, alpha=alpha, cost=cost, shrinkage=shrinkage)
        require_known("way of boosting", boosting, ("shrinkage", "paper"))
        self.sizes = cut(self.name, dim, sizes, (96, 160, 256))
        self.shrinkage, self.diversity = (shrinkage if boosting == "shrinkage" else None), diversity
        self.alpha, self.beta, self.cost, self.self_pairs = alpha, beta, cost, self_pairs

    @property
    def parts(self) -> tuple[LossPart, ...]:
        return tuple(LossPart(size, size / self.dim) for size in self.sizes)

    def compute(self, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        learners = z.split(list(self.sizes), dim=1)
        loss = boosted_deviance(
            [unit(learner) for learner in learners],
            labels,
            alpha=self.alpha,
            beta=self.beta,
            cost=self.cost,
            shrinkage=self.shrinkage,
            self_pairs=self.self_pairs,
        )
        return loss + self.diversity * co_activation(learners) if self.diversity else loss
