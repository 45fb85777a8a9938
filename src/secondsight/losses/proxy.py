"""Losses that compare images with one learnt vector a class instead of with each other."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from secondsight.errors import ConfigError
from secondsight.functional.losses.pairs import unit
from secondsight.losses.contract import Expects, Loss, require_positive


class ProxyNCA(Loss):
    """mean of −log(e^{−d(x, p_y)} / Σ_{k≠y} e^{−d(x, p_k)}), d the squared distance of vectors of length ``scale``.

    The sum leaves out the image's own class, so the loss can be negative and goes on pulling when the image is right.
    """

    name = "proxy-nca"
    paper = "Movshovitz-Attias et al. 2017"
    expects = Expects(1, 1, "anything (images meet proxies, not each other)")

    def __init__(self, *, dim: int, classes: int, scale: float = 3.0):
        super().__init__(dim=dim, classes=classes)
        _check_classes(self.name, classes)
        require_positive(self.name, scale=scale)
        self.scale = scale
        self.weight = nn.Parameter(torch.randn(classes, dim))

    def compute(self, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        self.check_range(labels)
        s = unit(z) @ unit(self.weight.to(z.dtype)).T
        d = self.scale**2 * (2 - 2 * s)
        own = torch.nn.functional.one_hot(labels, self.classes).bool()
        return (d[own] + (-d).masked_fill(own, -torch.inf).logsumexp(1)).mean()


class ProxyAnchor(Loss):
    """1/|P⁺| Σ_{p∈P⁺} log(1 + Σ_{x∈p} e^{−α(s − margin)}) + 1/|P| Σ_p log(1 + Σ_{x∉p} e^{α(s + margin)}).

    P are the proxies, P⁺ the ones with an image in the batch, s the cosine similarity.
    """

    name = "proxy-anchor"
    paper = "Kim et al. 2020, eq. 4"
    expects = Expects(1, 1, "anything (images meet proxies, not each other); large helps")

    def __init__(self, *, dim: int, classes: int, margin: float = 0.1, alpha: float = 32.0):
        super().__init__(dim=dim, classes=classes)
        _check_classes(self.name, classes)
        require_positive(self.name, alpha=alpha)
        self.margin, self.alpha = margin, alpha
        self.weight = nn.Parameter(torch.empty(classes, dim))
        # Only directions count, but a step of the optimiser turns a short vector further: the authors' learning rates
        # go with the authors' lengths.
        nn.init.kaiming_normal_(self.weight, mode="fan_out")

    def compute(self, z: Float[Tensor, "b d"], labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        self.check_range(labels)
        s = unit(z) @ unit(self.weight.to(z.dtype)).T
        own = torch.nn.functional.one_hot(labels, self.classes).bool()
        pull = _log_one_plus_sum(-self.alpha * (s - self.margin), own)
        push = _log_one_plus_sum(self.alpha * (s + self.margin), ~own)
        return pull.sum() / own.any(0).sum().clamp_min(1) + push.mean()


def _log_one_plus_sum(x: Tensor, where: Tensor) -> Tensor:
    """log(1 + Σ e^x) down the columns of x, over the entries ``where``."""
    one = x.new_zeros(1, x.shape[1])
    return torch.cat([one, x.masked_fill(~where, -torch.inf)]).logsumexp(0)


def _check_classes(name: str, classes: int) -> None:
    if classes < 2:
        raise ConfigError(
            f"{name}: a single class has nothing to be told apart from; training needs at least 2 classes"
        )
