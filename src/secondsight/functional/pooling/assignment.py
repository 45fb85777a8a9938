"""How much a local feature belongs to each codeword: h(x) ∈ R^N, by the cosine between the two.

    soft    h_n(x) = softmax_n( s · cos(x, c_n) )
    top-k   the same over the k nearest codewords only, renormalised to sum to one
    hard    one-hot at the nearest codeword

s is the inverse temperature. The paper's literal reading is s = 1, under which h is almost uniform: with 32 codewords
no entry can exceed 0.19, since cosines lie in [−1, 1].
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


def cosine(x: Float[Tensor, "*b d"], codebook: Float[Tensor, "n d"]) -> Float[Tensor, "*b n"]:
    """cos(x, c_n) = ⟨x, c_n⟩ / (‖x‖ ‖c_n‖); a zero feature is as far from every codeword: 0."""
    return F.normalize(x, dim=-1, eps=1e-6) @ F.normalize(codebook, dim=-1, eps=1e-6).T


def soft(
    x: Float[Tensor, "*b d"], codebook: Float[Tensor, "n d"], scale: Float[Tensor, ""] | float
) -> Float[Tensor, "*b n"]:
    """softmax_n( scale · cos(x, c_n) )."""
    return (scale * cosine(x, codebook)).softmax(dim=-1)


def top_k(
    x: Float[Tensor, "*b d"], codebook: Float[Tensor, "n d"], scale: Float[Tensor, ""] | float, k: int
) -> tuple[Float[Tensor, "*b k"], Int[Tensor, "*b k"]]:
    """The k largest entries of ``soft``, renormalised, and the codewords they belong to."""
    near, index = cosine(x, codebook).topk(k, dim=-1)
    return (scale * near).softmax(dim=-1), index


@torch.no_grad()
def nearest(x: Float[Tensor, "*b d"], codebook: Float[Tensor, "n d"]) -> Int[Tensor, "*b 1"]:
    """argmax_n cos(x, c_n), which the length of x does not change: ``top_k`` with k = 1, whose weight is always 1."""
    return (x @ F.normalize(codebook, dim=-1, eps=1e-6).T).argmax(dim=-1, keepdim=True)


def hard_straight_through(
    x: Float[Tensor, "*b d"], codebook: Float[Tensor, "n d"], scale: Float[Tensor, ""] | float
) -> Float[Tensor, "*b n"]:
    """One-hot at the nearest codeword, with the gradient of ``soft`` (straight-through estimator)."""
    h = soft(x, codebook, scale)
    one_hot = torch.zeros_like(h).scatter(-1, h.argmax(dim=-1, keepdim=True), 1.0)
    return one_hot + h - h.detach()
