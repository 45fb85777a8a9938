"""What JCF's projectors U and V begin as.

    random     U and V random                                                    as the paper has it
    average    one U for all, V near 0 beside an offset of 1: z ≈ Σ_x Uᵀx
    saliency   one U for all, V = s, the mean feature: a location counts by how much it stands out
    square     one U for all, V = U: z ≈ Σ_x (Uᵀx)²
    pairs      U and V are principal axes, paired: z is the second moment Σ_x x xᵀ, cut to K of its entries

All but ``random`` make of z something known, so that the rest is learned on top; noise in V tells projectors apart.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from secondsight.errors import ConfigError
from secondsight.pooling.contract import Features
from secondsight.pooling.feature_samples import image_batches
from secondsight.pooling.principal import main_directions

STARTS = ("random", "average", "saliency", "square", "pairs")

IN_CHANNELS = ("saliency", "square")
"""Starts that square or weigh, and do so best in the backbone's own channels: U begins with the strongest of these."""

COMMON = 0.01
"""Share of the features' energy in their mean below which it says nothing about a location."""


def random_scale(p: Float[Tensor, "*b n"], q: Float[Tensor, "*b n"]) -> float:
    """The σ of random projectors under which z of one unit-norm location has variance 1, whatever N, R, d and D are.

    A factor is Σ_j p_j ⟨u_j, x⟩; with independent entries of variance σ² its variance is σ² ‖p‖² ‖x‖², and z's is
    σ⁴ ‖p‖² ‖q‖² ‖x‖⁴. How large ‖p‖ is depends on how sharp the assignment is, so p and q are given as a sample.
    """
    return (p.square().sum(-1) * q.square().sum(-1)).mean().item() ** -0.25


def shared_projector(d: int, k: int) -> Float[Tensor, "d k"]:
    """A U with orthonormal rows or columns: Σ_x Uᵀx is then average pooling, its angles untouched if k ≥ d.

    With k = d it is the identity: squares and powers then act on the features' own channels.
    """
    u = torch.empty(d, k)
    return nn.init.eye_(u) if d == k else nn.init.orthogonal_(u)


def strongest(channels: Float[Tensor, "d c"], points: Float[Tensor, "n d"], k: int) -> Float[Tensor, "d k"]:
    """The k channels of most energy, in their order."""
    energy = (channels * (points.T @ points @ channels)).sum(0)
    return channels[:, energy.topk(k).indices.sort().values]


def second_factor(
    start: str, u: Float[Tensor, "d k"], points: Float[Tensor, "n d"] | None
) -> Float[Tensor, "d _"] | None:
    """The V that all projectors begin with beside ``u``; None where an offset of 1 takes its place."""
    if start == "square":
        return u
    return saliency(points)[:, None] if start == "saliency" and points is not None else None


def saliency(points: Float[Tensor, "n d"]) -> Float[Tensor, " d"]:
    """s = E[x] / ‖E[x]‖², for which E⟨s, x⟩ = 1."""
    mean = points.mean(0)
    energy, all_of_it = mean.square().sum(), points.square().sum(1).mean()
    if not energy > COMMON * all_of_it:
        share = (energy / all_of_it).item()
        raise ConfigError(
            f"start = 'saliency' needs features with a mean direction, but their mean holds {share:.2%} of their "
            f"energy (at least {COMMON:.0%} is needed); start as 'average' or 'square'"
        )
    return mean / energy


def root_mean_square(
    projectors: Float[Tensor, "n d k"], p: Float[Tensor, "m n"], x: Float[Tensor, "m d"]
) -> Float[Tensor, ""]:
    """Of the factor Σ_j p_j U_jᵀx over features x with coefficients p; never 0, so that it can divide."""
    factor = sum((p[:, j, None] * x) @ projectors[j] for j in range(len(projectors)))
    assert isinstance(factor, Tensor)
    return factor.square().mean().sqrt().clamp_min(1e-12)


def pairs(features: Features, d: int, k: int) -> tuple[Float[Tensor, "d k"], Float[Tensor, "d k"]]:
    """U and V for the k products of two principal axes that differ most from image to image.

    With P the principal axes of the locations (of E[x xᵀ], not centred) the second moment of an image is
    C = Σ_x (Pᵀx)(Pᵀx)ᵀ. Of its entries C_ab, a ≤ b, counted twice where a ≠ b because C is symmetric, the k of largest
    variance over the images stay: u_i = √(1 + [a ≠ b]) P_a, v_i = P_b. Inner products of all of them are those of the
    whole matrices C.
    """
    a, b = torch.triu_indices(d, d)
    if k > len(a):
        raise ConfigError(
            f"{d} channels have {len(a)} pairs, and start = 'pairs' is asked for {k}: lower width, or dim"
        )
    axes, count = main_directions(features, d).float(), 0
    total, square = torch.zeros(2, d, d, dtype=torch.float64)
    for some in image_batches(features, d, of="start = 'pairs'"):
        x = some.to(axes) @ axes
        c = (x.mT @ x).to(total)
        total, square, count = total + c.sum(0), square + c.square().sum(0), count + len(some)
    twice = torch.where(a == b, 1.0, 2.0)
    variance = (square / count - (total / count).square())[a, b] * twice
    chosen = variance.topk(k).indices.sort().values
    return axes[:, a[chosen]] * twice[chosen].sqrt(), axes[:, b[chosen]]
