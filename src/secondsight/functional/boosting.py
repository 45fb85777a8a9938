"""Ensembles inside one embedding: boosted learners (BIER), cascaded heads (HDC), and the binomial deviance they weigh."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from secondsight.functional.pairs import euclidean, mean_of_active, mean_or_zero, split_pairs, unit

_NEGATIVES_COUNT = 2.0  # a negative pair's weight beside a positive one's when boosting with shrinkage (authors' code)


def activations(
    s_positive: Float[Tensor, " p"], s_negative: Float[Tensor, " n"], *, alpha: float, beta: float, cost: float
) -> tuple[Float[Tensor, " p"], Float[Tensor, " n"]]:
    """α(s − β)m with m = 1 for positive and −C for negative pairs: above 0 when the pair is on its side of β."""
    return alpha * (s_positive - beta), -cost * alpha * (s_negative - beta)


def binomial_deviance(
    s: Float[Tensor, "b b"], labels: Int[Tensor, " b"], *, alpha: float, beta: float, cost: float
) -> Float[Tensor, ""]:
    """mean over positives + mean over negatives of log(1 + exp(−α(s − β)m)), m = 1 or −C."""
    parts = activations(*split_pairs(s, labels), alpha=alpha, beta=beta, cost=cost)
    return torch.stack([mean_or_zero(torch.nn.functional.softplus(-part)) for part in parts]).sum()


def boosted_deviance(
    parts: Sequence[Float[Tensor, "b _"]],
    labels: Int[Tensor, " b"],
    *,
    alpha: float,
    beta: float,
    cost: float,
    shrinkage: float | None,
) -> Float[Tensor, ""]:
    """BIER (Opitz et al. 2017, algorithm 1): 1/M Σ_m Σ_pairs w_m ℓ(a_m), a_m = α(s_m − β)m_ij and ℓ(a) = log(1 + e^{−a}).

    A pair's weight for learner m + 1 is −ℓ'(A_m) = σ(−A_m), where A_m is what the learners up to m say together:

        shrinkage None      A_0 = 0,   A_m = (1 − η_m) A_{m−1} + η_m a_m,  η_m = 2/(m + 1)      the paper
        shrinkage ν         A_0 = ½,   A_m = A_{m−1} + ν a_m,  weights of negatives doubled     the authors' code
    """
    total = parts[0].new_zeros(())
    start = 0.0 if shrinkage is None else 0.5
    together, weights = [start, start], [1.0, 1.0]
    for m, part in enumerate(parts, start=1):
        said = activations(*split_pairs(part @ part.T, labels), alpha=alpha, beta=beta, cost=cost)
        eta = 2 / (m + 1)
        for sign in (0, 1):
            a = said[sign]
            total = total + mean_or_zero(torch.nn.functional.softplus(-a) * weights[sign])
            if shrinkage is None:
                together[sign] = (1 - eta) * together[sign] + eta * a.detach()
            else:
                together[sign] = together[sign] + shrinkage * a.detach()
            weights[sign] = torch.sigmoid(-together[sign]) * (
                _NEGATIVES_COUNT if sign and shrinkage is not None else 1.0
            )
    return total / len(parts)


def co_activation(parts: Sequence[Float[Tensor, "b _"]]) -> Float[Tensor, ""]:
    """Σ_{i<j} mean over images and dimensions k, l of (f_ik f_jl)²: BIER's activation loss, least when learners take turns.

    The authors hold the rows of the embedding's weights at length 1, or f = 0 would be best. Here each dimension is divided
    by its root mean square over the batch instead, which needs no access to the weights; f alike for all images gives 1.
    """
    energy = []
    for part in parts:
        part = part / part.detach().abs().amax().clamp_min(torch.finfo(part.dtype).tiny)
        square = part.square()
        energy.append((square / (square.mean(0) + torch.finfo(part.dtype).eps)).mean(1))
    total = energy[0].new_zeros(())
    for i, first in enumerate(energy):
        for second in energy[i + 1 :]:
            total = total + (first * second).mean()
    return total


def cascade(
    parts: Sequence[Float[Tensor, "b _"]], labels: Int[Tensor, " b"], *, fractions: Sequence[float], margin: float
) -> Float[Tensor, ""]:
    """HDC (Yuan et al. 2017): Σ_k L_k, the contrastive loss of head k on the hardest fraction h_k of the pairs of head k − 1.

    L⁺ = d_ij, L⁻ = max(0, margin − d_ij), d the distance of the unit vectors of head k. Head k keeps the pairs with the
    largest loss under head k − 1, positives and negatives apart; head 1 ranks all pairs by itself.
    """
    total = parts[0].new_zeros(())
    kept: list[Tensor | None] = [None, None]
    before: list[Tensor | None] = [None, None]
    for part, fraction in zip(parts, fractions, strict=True):
        s_positive, s_negative = split_pairs(unit(part) @ unit(part).T, labels)
        for sign, loss in enumerate((euclidean(s_positive), (margin - euclidean(s_negative)).relu())):
            of_kept = loss if kept[sign] is None else loss[kept[sign]]
            ranked_by = of_kept if before[sign] is None else before[sign]
            hard = _hardest(ranked_by, fraction)
            kept[sign] = hard if kept[sign] is None else kept[sign][hard]
            before[sign] = of_kept.detach()[hard]
            total = total + mean_of_active(of_kept[hard])
    return total


def _hardest(loss: Tensor, fraction: float) -> Tensor:
    """Indices of the largest ``fraction`` of the losses; at least one, if there is any."""
    keep = min(len(loss), max(1, round(fraction * len(loss)))) if len(loss) else 0
    return loss.topk(keep, sorted=False).indices
