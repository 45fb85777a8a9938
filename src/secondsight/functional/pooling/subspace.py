"""The subspace that local features span, as a point on the Grassmann manifold.

Wei, Zhang, Gong, Zheng, Zhang, "Grassmann Pooling as Compact Homogeneous Bilinear Pooling for Fine-Grained Visual
Classification", ECCV 2018. X ∈ R^{L×d} (rows are locations) has top right singular vectors U_k ∈ R^{d×k}; the feature
is the projector U_kU_kᵀ, which forgets the singular values (bursts) and the basis, and two of them compare as

    ⟨U_kU_kᵀ, V_kV_kᵀ⟩ = ‖U_kᵀV_k‖²_F .
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from secondsight.functional.pooling.eigenvectors import eigh
from secondsight.functional.pooling.normalise import l2


def top_subspace(x: Float[Tensor, "b l d"], k: int) -> Float[Tensor, "b d k"]:
    """Orthonormal U_k of every image: the k right singular vectors of X with the largest singular values.

    Directions in which X has nothing (an eigenvalue of XᵀX below max(L, d)·eps of the largest) are columns of zeros:
    fewer than k locations, constant features and empty images have a smaller subspace, not an arbitrary one.

    The gradient is that of functions of the subspace: it is exact wherever a rotation of the basis U_k changes nothing.
    It sees only the gaps between what is inside and what is outside, damped where the two meet.
    """
    u = _TopSubspace.apply(x, k)
    assert isinstance(u, Tensor)
    return u


def subspace_similarity(u: Float[Tensor, "n d k"], v: Float[Tensor, "m d k"]) -> Float[Tensor, "n m"]:
    """‖U_iᵀV_j‖²_F for all pairs of subspaces, by one matrix product.

    >>> u = top_subspace(torch.eye(3)[None], 2)
    >>> round(subspace_similarity(u, u).item(), 4)
    2.0
    """
    (n, d, k), m = u.shape, len(v)
    products = u.mT.reshape(n * k, d) @ v.mT.reshape(m * k, d).mT
    return products.square().view(n, k, m, k).sum((1, 3))


def bilinear_readout(
    u: Float[Tensor, "b d k"], a: Float[Tensor, "o d"], c: Float[Tensor, "o d"]
) -> Float[Tensor, "b o"]:
    """a_oᵀ U_kU_kᵀ c_o = Σ_k (a_oᵀu_k)(c_oᵀu_k) of every output: the projector is never formed."""
    return ((a @ u) * (c @ u)).sum(-1)


class _TopSubspace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, k: int) -> Tensor:
        values, w = _spectrum(x)
        u = l2(_span(x, w[..., :k]).mT).mT  # orthonormal already, but for rounding
        ctx.save_for_backward(x, values, w, u)
        return torch.nn.functional.pad(u, (0, k - u.shape[-1]))

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients: Tensor) -> tuple[Tensor, None]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """With C = XᵀX: dU_i = Σ_j u_j (u_jᵀ dC u_i) / (λ_i − λ_j), j outside the k; and λ_j = 0 off the span of X."""
        x, values, w, u = ctx.saved_tensors
        k = u.shape[-1]
        g = gradients[0][..., :k]
        inside, outside = values[:, None, :k], values[:, k:, None]
        gap = (inside - outside) * (inside > 0)
        floor = _tolerance(x) * values[:, None, :1]
        damped = gap / (gap.square() + floor.square()).clamp_min(torch.finfo(x.dtype).tiny)
        seen = _seen(x, w, g)  # (b, r, k): the gradient in the basis of X's span
        m = _span(x, w[..., k:] @ (seen[:, k:] * damped))
        off_span = (g - _span(x, w @ seen)) / inside.where(inside > 0, torch.inf)
        left, right = torch.cat([m, u], dim=-1), torch.cat([u, m + off_span], dim=-1)
        return (x @ left) @ right.mT, None


def _spectrum(x: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (b, r) of C = XᵀX, falling, r = min(L, d), and W with eigenvectors U = XᵀW if L < d, else U = W.

    With the smaller Gram matrix, X Xᵀ = V Λ Vᵀ, that is W = V Λ^{-1/2}. Zeros stand for what X has nothing of.
    """
    few = x.shape[1] < x.shape[2]
    values, w = eigh(x @ x.mT if few else x.mT @ x)
    values, w = values.flip(-1), w.flip(-1)
    there = values > _tolerance(x) * values[:, :1].clamp_min(torch.finfo(x.dtype).tiny)
    values = values.where(there, 0)
    scale = values.where(there, torch.inf).rsqrt() if few else there.to(x.dtype)
    return values, w * scale[:, None]


def _span(x: Tensor, coefficients: Tensor) -> Tensor:
    """U S, given W S; the d×r basis U is never formed when X has few locations."""
    return x.mT @ coefficients if x.shape[1] < x.shape[2] else coefficients


def _seen(x: Tensor, w: Tensor, g: Tensor) -> Tensor:
    """Uᵀ G."""
    return w.mT @ (x @ g) if x.shape[1] < x.shape[2] else w.mT @ g


def _tolerance(x: Tensor) -> float:
    return max(x.shape[1:]) * torch.finfo(x.dtype).eps
