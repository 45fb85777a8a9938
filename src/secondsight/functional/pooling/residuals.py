"""Residuals to a codebook, the first-order statistics of VLAD and NetVLAD.

    v_k = Σ_l h_k(x_l) (x_l − c_k) = Σ_l h_k(x_l) x_l − (Σ_l h_k(x_l)) c_k

The right-hand side is what is computed: one product hᵀX and a rank-one correction, never a (B, L, N, d) tensor.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def nearest_codeword(x: Float[Tensor, "*m d"], c: Float[Tensor, "n d"]) -> Int[Tensor, "*m"]:
    """argmin_k ‖x − c_k‖², as argmax_k xᵀc_k − ½‖c_k‖².

    >>> nearest_codeword(torch.tensor([[1.0], [5.0]]), torch.tensor([[0.0], [4.0]]))
    tensor([0, 1])
    """
    # max is faster than argmax
    return torch.nn.functional.linear(x, c, -0.5 * c.square().sum(1)).max(-1).indices


def hard_residuals(
    x: Float[Tensor, "b l d"],
    words: Int[Tensor, "b l"],
    c: Float[Tensor, "n d"],
    mask: Bool[Tensor, "b l"] | None = None,
) -> Float[Tensor, "b n d"]:
    """Σ over the locations of codeword k of (x − c_k): VLAD's sums, for ``x`` that is zero where masked out.

    Each location is added to one row, so the cost does not grow with the codebook.
    """
    b, (n, d) = words.shape[0], c.shape
    row = (words + n * torch.arange(b, device=words.device)[:, None]).flatten()
    ones = x.new_ones(words.numel()) if mask is None else mask.flatten().to(x.dtype)
    sums = x.new_zeros(b * n, d).index_add(0, row, x.reshape(-1, d)).view(b, n, d)
    counts = x.new_zeros(b * n).index_add(0, row, ones).view(b, n, 1)
    return sums - counts * c


def local_residuals(
    x: Float[Tensor, "b l d"], h: Float[Tensor, "b l n"], c: Float[Tensor, "n d"]
) -> Float[Tensor, "b l n d"]:
    """h_k(x_l)(x_l − c_k) of every location: what sums to the two above."""
    return h[..., None] * (x[:, :, None] - c)


def one_hot(
    words: Int[Tensor, "b l"], n: int, mask: Bool[Tensor, "b l"] | None, like: Tensor
) -> Float[Tensor, "b l n"]:
    """Hard assignments as an h of ``like``'s type, with zeros where masked out."""
    h = torch.zeros(*words.shape, n, dtype=like.dtype, device=like.device).scatter_(2, words[..., None], 1)
    return masked(h, mask)


def masked(h: Float[Tensor, "b l n"], mask: Bool[Tensor, "b l"] | None) -> Float[Tensor, "b l n"]:
    """The assignment with masked-out locations assigned to nothing."""
    return h if mask is None else h.masked_fill(~mask[..., None], 0)


def sharpness(x: Float[Tensor, "m d"], c: Float[Tensor, "n d"], *, ratio: float = 0.01) -> float:
    """NetVLAD's α in e^(−α‖x − c_k‖²): the second-nearest codeword gets ``ratio`` of the nearest one's weight.

    Arandjelović et al. 2016, as in their code: α = −ln(ratio) / mean(‖x − c_2nd‖² − ‖x − c_1st‖²).
    """
    if len(c) < 2:
        return 1.0
    distances = torch.cdist(x, c).square().topk(2, dim=1, largest=False).values
    gap = (distances[:, 1] - distances[:, 0]).mean().item()
    scale = x.square().sum(1).mean().item()
    return -torch.log(torch.tensor(ratio)).item() / max(gap, 1e-6 * scale, 1e-12)
