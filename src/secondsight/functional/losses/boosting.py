"""Ensembles inside one embedding: boosted learners (BIER) and cascaded heads (HDC), each taught on pairs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from secondsight.functional.losses.pairs import euclidean, mean_of_active, mean_or_zero, split_pairs

_NEGATIVES_COUNT = 2.0  # what a negative pair weighs beside a positive one when boosting with shrinkage (authors' code)


def activations(
    s: Float[Tensor, "b b"], labels: Int[Tensor, " b"], *, alpha: float, beta: float, cost: float
) -> tuple[Float[Tensor, " p"], Float[Tensor, " n"]]:
    """α(s − β)m of positive pairs, m = 1, and of negative ones, m = −C: above 0 when a pair is on its side of β."""
    positive, negative = split_pairs(s, labels)
    return alpha * (positive - beta), -cost * alpha * (negative - beta)


def binomial_deviance(
    s: Float[Tensor, "b b"], labels: Int[Tensor, " b"], *, alpha: float, beta: float, cost: float
) -> Float[Tensor, ""]:
    """mean over positives + mean over negatives of log(1 + exp(−α(s − β)m)), m = 1 or −C."""
    positive, negative = activations(s, labels, alpha=alpha, beta=beta, cost=cost)
    softplus = torch.nn.functional.softplus
    return mean_or_zero(softplus(-positive)) + mean_or_zero(softplus(-negative))


def boosted_deviance(
    learners: Sequence[Float[Tensor, "b _"]],
    labels: Int[Tensor, " b"],
    *,
    alpha: float,
    beta: float,
    cost: float,
    shrinkage: float | None,
    self_pairs: bool = False,
) -> Float[Tensor, ""]:
    """BIER's loss (Opitz et al. 2017, algorithm 1) of M learners, given as unit vectors.

    1/M Σ_m of the binomial deviance of learner m with each pair weighed by what the learners before it say of it.
    ``self_pairs``: divide the sum over P positive pairs by P + B/2, not P, as the authors' code, which counts the pairs
    of an image with itself there and gives them no weight.
    """
    said = [activations(u @ u.T, labels, alpha=alpha, beta=beta, cost=cost) for u in learners]
    emphasis = 1.0 if shrinkage is None else _NEGATIVES_COUNT
    positive = boosted([a for a, _ in said], shrinkage=shrinkage, emphasis=1.0)
    negative = boosted([a for _, a in said], shrinkage=shrinkage, emphasis=emphasis)
    if self_pairs:
        pairs = said[0][0].numel()
        positive = positive * (pairs / (pairs + len(labels) / 2))
    return (positive + negative) / len(learners)


def boosted(
    activations: Sequence[Float[Tensor, " p"]], *, shrinkage: float | None, emphasis: float
) -> Float[Tensor, ""]:
    """Σ_m mean over pairs of w_m ℓ(a_m), ℓ(a) = log(1 + e^{−a}).

    w_1 = 1, then w_{m+1} = −ℓ'(A_m) · emphasis = σ(−A_m) · emphasis. A_m is what the learners up to m say together:

        shrinkage None    A_0 = 0,  A_m = (1 − η_m) A_{m−1} + η_m a_m,  η_m = 2/(m + 1)    the paper
        shrinkage ν       A_0 = ½,  A_m = A_{m−1} + ν a_m                                  the authors' code
    """
    together = torch.full_like(activations[0], 0.0 if shrinkage is None else 0.5)
    weight = torch.ones_like(together)
    total = together.new_zeros(())
    for m, a in enumerate(activations, start=1):
        total = total + mean_or_zero(weight * torch.nn.functional.softplus(-a))
        keep, add = (1 - 2 / (m + 1), 2 / (m + 1)) if shrinkage is None else (1.0, shrinkage)
        together = keep * together + add * a.detach()
        weight = emphasis * torch.sigmoid(-together)
    return total


def co_activation(learners: Sequence[Float[Tensor, "b _"]]) -> Float[Tensor, ""]:
    """BIER's activation loss: Σ_{i<j} mean over images and dimensions of (f_ik f_jl)², least when learners take turns.

    The authors hold the rows of the embedding's weights at length 1, or f = 0 would be best. Here each dimension is
    divided by its root mean square over the batch instead, which needs no weights. 1 a pair means independence.
    """
    energy = []
    for f in learners:
        square = (f / f.detach().abs().amax().clamp_min(torch.finfo(f.dtype).tiny)).square()
        energy.append((square / (square.mean(0) + torch.finfo(f.dtype).eps)).mean(1))
    pairs = [(first * second).mean() for i, first in enumerate(energy) for second in energy[i + 1 :]]
    return torch.stack(pairs).sum() if pairs else energy[0].sum() * 0


def cascaded_contrastive(
    heads: Sequence[Float[Tensor, "b _"]], labels: Int[Tensor, " b"], *, fractions: Sequence[float], margin: float
) -> Float[Tensor, ""]:
    """HDC's cascade (Yuan et al. 2017) of K heads, given as unit vectors: Σ_k of a contrastive loss on head k's pairs.

    L⁺ = d_ij for positive and L⁻ = max(0, margin − d_ij) for negative pairs; both are cascaded apart.
    """
    pairs = [split_pairs(u @ u.T, labels) for u in heads]
    positive = cascaded([euclidean(s) for s, _ in pairs], fractions)
    negative = cascaded([margin - euclidean(s) for _, s in pairs], fractions)
    return positive + negative


def hard_negative_contrastive(
    heads: Sequence[Float[Tensor, "b _"]], labels: Int[Tensor, " b"], *, fractions: Sequence[float], margin: float
) -> Float[Tensor, ""]:
    """HDC's loss as the authors' layer computes it: Σ_k of the mean over head k's terms above 0, which are

    d² of all positive pairs, and max(0, margin − d²) of the fraction h_k of the negative pairs that head k itself finds
    hardest, every negative pair listed twice (as i, j and as j, i).
    """
    total = labels.new_zeros((), dtype=heads[0].dtype)
    for u, fraction in zip(heads, fractions, strict=True):
        positive, negative = split_pairs(2 - 2 * u @ u.T, labels)
        twice = (margin - negative).relu().repeat_interleave(2)
        hardest = twice.topk(int(fraction * len(twice)), sorted=False).values
        total = total + mean_of_active(torch.cat([positive.relu(), hardest]))
    return total


def cascaded(hardness: Sequence[Float[Tensor, " p"]], fractions: Sequence[float]) -> Float[Tensor, ""]:
    """Σ_k mean of relu(hardness) of head k, where above 0, over its pairs P_k.

    P_k is the fraction h_k of P_{k−1} that is hardest for head k − 1; head 1 chooses from all pairs, by itself. Ranking
    by hardness is ranking by loss, except that pairs without loss are ordered too.
    """
    kept = _hardest(hardness[0].detach(), fractions[0])
    total = mean_of_active(hardness[0][kept].relu())
    for before, now, fraction in zip(hardness, hardness[1:], fractions[1:], strict=False):
        kept = kept[_hardest(before.detach()[kept], fraction)]
        total = total + mean_of_active(now[kept].relu())
    return total


def _hardest(hardness: Tensor, fraction: float) -> Tensor:
    """Indices of the largest ``fraction``; at least one, if there is any."""
    pairs = len(hardness)
    return hardness.topk(min(pairs, max(1, round(fraction * pairs))), sorted=False).indices
