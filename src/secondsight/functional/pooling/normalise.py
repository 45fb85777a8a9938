"""What papers do to a pooled vector before they compare or project it: signed powers and ℓ2, safe at zero.

Perronnin et al. 2010 (Fisher vectors) and Lin et al. 2015 (bilinear CNNs): z ← sign(z)·|z|^½, then z ← z / ‖z‖₂.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from secondsight.errors import require_known


def signed_power(z: Float[Tensor, "*shape"], power: float = 0.5, *, eps: float = 1e-10) -> Float[Tensor, "*shape"]:
    """z·(|z| + eps)^(power − 1), which is sign(z)·|z|^power away from zero.

    The plain power has an infinite slope at zero (and NaN gradients); this one is smooth there, odd, and keeps zero.

    >>> signed_power(torch.tensor([-4.0, 0.0, 9.0]))
    tensor([-2.,  0.,  3.])
    """
    return z * (z.abs() + eps).pow(power - 1)


def l2(z: Float[Tensor, "... d"], *, eps: float = 1e-12) -> Float[Tensor, "... d"]:
    """z / max(‖z‖₂, eps) along the last dimension; zero stays zero.

    >>> l2(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    return torch.nn.functional.normalize(z, dim=-1, eps=eps)


def sqrt_l2(z: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    """Signed square root, then ℓ2: what bilinear CNNs and Fisher vectors end in."""
    return l2(signed_power(z))


NORMALISATIONS: Mapping[str, Callable[[Tensor], Tensor] | None] = {"none": None, "l2": l2, "sqrt-l2": sqrt_l2}
"""Named steps; ``none`` leaves the vector a sum over locations."""


def normalisation(name: str) -> Callable[[Tensor], Tensor] | None:
    """The function behind a name in ``NORMALISATIONS``."""
    return NORMALISATIONS[require_known("normalisation", name, NORMALISATIONS)]
