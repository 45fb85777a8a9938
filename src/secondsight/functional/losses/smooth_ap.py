"""Smooth-AP (Brown et al. 2020): average precision with each comparison of two similarities made a sigmoid."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from secondsight.functional.losses.pairs import positives
from secondsight.functional.losses.row_blocks import RowTerms, row_loss, wide


def smooth_ap(u: Float[Tensor, "b d"], labels: Int[Tensor, " b"], *, temperature: float) -> Float[Tensor, ""]:
    """mean over the queries i that have a positive of 1 − AP_i, with P_i the class of i (i itself included) and

        AP_i = 1/|P_i| Σ_{j∈P_i} R⁺_ij / R_ij,    R_ij = 1 + Σ_{k≠j} σ((s_ik − s_ij)/τ),    R⁺_ij the same over k ∈ P_i.

    One comparison matrix (rows × B) is alive at a time, whatever the number of positives.
    """
    index, real = positives(labels)

    def rows(s: Tensor, here: slice) -> RowTerms:
        # A query is retrieved too, in the first place, as in the authors' code.
        own = torch.arange(here.start, here.stop, device=s.device)[:, None]
        members = torch.cat([own, index[here]], dim=1)
        member = torch.cat([torch.ones_like(own, dtype=torch.bool), real[here]], dim=1) & real[here].any(
            1, keepdim=True
        )
        positive = labels[here, None] == labels[None, :]
        size = member.sum(1, keepdim=True).clamp_min(1)
        grad, ap = torch.zeros_like(s), torch.zeros_like(s[:, :1])
        for j, use in zip(members.T[..., None], member.T[..., None], strict=True):
            precision, d_precision = _precision(s, j, positive, temperature)
            share = use / size
            ap += precision * share
            grad -= d_precision * share
        queries = member.any(1)
        return RowTerms((1 - ap[queries]).sum(dtype=wide(s)), queries.sum(), grad)

    return row_loss(u, rows)


def _precision(s: Tensor, j: Tensor, positive: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """R⁺/R of one positive j (r, 1) of each row, (r, 1), and its derivative by s, (r, b)."""
    above = ((s - s.gather(1, j)) / temperature).sigmoid().scatter(1, j, 0.0)  # k = j is no comparison
    rank = 1 + above.sum(1, keepdim=True)
    rank_positive = 1 + (above * positive).sum(1, keepdim=True)
    slope = above * (1 - above) / temperature
    d = slope * (positive / rank - rank_positive / rank.square())
    return rank_positive / rank, d.scatter_add(1, j, -d.sum(1, keepdim=True))
