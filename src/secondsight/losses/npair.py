"""The multi-class N-pair loss on dot products, with the length of the embedding held by a penalty."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from secondsight.errors import DataError, require_known
from secondsight.functional.losses.pairs import mean_or_zero, pair_masks, unit
from secondsight.losses.contract import Expects, Loss, require_positive


class NPair(Loss):
    """mean over positive pairs (a, p) of log(1 + Σ_n e^{⟨a, n⟩ − ⟨a, p⟩}) + l2 · mean |z|².

    TensorFlow's ``npairs_loss`` weighs the second term by λ/2 (0.002 there): ``l2 = 0.001`` is its default.

    ``pairs="all"``: every ordered positive pair of the batch, n over all images of other classes. ``pairs="one"``: the
    paper's N pairs, the first two images of each class, n over the second images of the other classes; further images
    are not looked at. Dot products, not cosines: cosines lie in [−1, 1], where the loss can hardly fall. ``length``
    gives all embeddings that length; without it they come as the network makes them, and a pooling that sums over many
    locations makes them so long that the loss sees one negative at a time.
    """

    name = "npair"
    paper = "Sohn 2016, section 3.2"
    expects = Expects(2, 2, "2 images of as many classes as fit")

    def __init__(
        self,
        *,
        dim: int,
        classes: int,
        pairs: Literal["all", "one"] = "all",
        l2: float = 0.002,
        length: float | None = None,
    ):
        super().__init__(dim=dim, classes=classes)
        if length is not None:
            require_positive(self.name, length=length)
        require_known("choice of N-pair pairs", pairs, ("all", "one"))
        self.pairs = pairs
        self.l2 = l2
        self.length = length

    def compute(self, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        self._check_length(z)
        if self.length is not None:
            z = self.length * unit(z)
        if self.pairs == "all":
            s, (positive, negative) = z @ z.T, pair_masks(labels)
        else:
            first, second = _first_two(labels)
            s = z[first] @ z[second].T
            positive = torch.eye(len(s), dtype=torch.bool, device=s.device)
            negative = ~positive
        rest = s.masked_fill(~negative, -torch.inf).logsumexp(1)
        a, p = positive.nonzero(as_tuple=True)
        pull = mean_or_zero(torch.nn.functional.softplus(rest[a] - s[a, p]))
        return pull + self.l2 * z.square().sum(1).mean()

    def _check_length(self, z: Tensor) -> None:
        largest = float(z.detach().abs().amax())
        if largest * largest * self.dim > torch.finfo(z.dtype).max:
            raise DataError(
                f"npair: an embedding has an entry of {largest:.1e}, too large for dot products in {z.dtype}: lower "
                "the learning rate, clip the gradients or raise l2"
            )


def _first_two(labels: Tensor) -> tuple[Tensor, Tensor]:
    """The first and the second image of each class that has two."""
    order = labels.argsort(stable=True)
    sizes = labels.unique(return_counts=True)[1]
    first = (sizes.cumsum(0) - sizes)[sizes > 1]
    return order[first], order[first + 1]
