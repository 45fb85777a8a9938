"""Multimodal low-rank bilinear attention (MLB; "HPBP" in the JCF paper), for an image alone.

Kim, On, Lim, Kim, Ha, Zhang, "Hadamard Product for Low-rank Bilinear Pooling", ICLR 2017, equations 7 and 10, as in the
authors' code. There x are an image's local features and q a question:

    α_g  = softmax over locations of  p_gᵀ (tanh(U_aᵀx_l + b) ∘ tanh(V_aᵀq + c)) + s_g       G glimpses
    x̂_g  = Σ_l α_gl x_l                                                                      of the features themselves
    z    = Pᵀ [ tanh(U_gᵀx̂_g + b_g) ∘ tanh(V_gᵀq + c_g) ]_g + t

An image alone has no question, so that it answers itself: q is x_l for the attention, and x̂_g for the product.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from secondsight.functional.pooling.glimpses import attention, embedded, glimpses, maps
from secondsight.functional.pooling.locations import location_count
from secondsight.pooling.contract import Features, Grid, Locals, Mask, Pooling, at_least_one
from secondsight.pooling.feature_samples import image_batches, sample


class MLB(Pooling):
    """``mlb-G``. The tanh after the attention keeps it from being a sum over locations; ``hadamard`` is one.

    Not as in the authors' code: no dropout before the linear maps.

    Args:
        in_dim: d, the size of a local feature.
        out_dim: D.
        glimpses: G, how many attention maps. The paper uses 2.
        rank: Size of the joint embeddings. The paper uses 1200 for questions and answers.
    """

    family = "mlb"
    summary = "attention glimpses of the features, then a Hadamard low-rank product"
    paper = "Kim, On, Lim, Kim, Ha, Zhang, ICLR 2017"
    expects = "features of length about 1, or a fit"
    name_options = ("glimpses",)

    def __init__(self, in_dim: int, out_dim: int, *, glimpses: int = 2, rank: int = 512):
        super().__init__(in_dim, out_dim)
        at_least_one("mlb", glimpses=glimpses, rank=rank)
        # Unit variance before the tanh for inputs of length 1, and unit variance after P.
        self.attention_weight = nn.Parameter(torch.randn(in_dim, 2 * rank))  # [U_a V_a]
        self.attention_bias = nn.Parameter(torch.zeros(2 * rank))
        self.map_weight = nn.Parameter(torch.randn(rank, glimpses) * rank**-0.5)  # p
        self.map_bias = nn.Parameter(torch.zeros(glimpses))
        self.glimpse_weight = nn.Parameter(torch.randn(glimpses, in_dim, 2 * rank))  # [U_g V_g]
        self.glimpse_bias = nn.Parameter(torch.zeros(glimpses, 2 * rank))
        self.out_weight = nn.Parameter(torch.randn(glimpses * rank, out_dim) * (glimpses * rank) ** -0.5)  # P
        self.out_bias = nn.Parameter(torch.zeros(out_dim))

    def forward(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b out"]:
        seen = self._glimpses(x, mask)  # (b, g, d)
        first, second = self._embedded(seen).tanh().chunk(2, dim=-1)
        z = (first * second).flatten(1) @ self.out_weight + self.out_bias
        return z.masked_fill(location_count(x, mask, least=0) == 0, 0)

    def attend(self, x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None = None) -> Float[Tensor, "b l g"]:
        """Where each glimpse looks: weights that add up to 1 over the real locations."""
        first, second = embedded(self.checked(x, mask), self.attention_weight, self.attention_bias).chunk(2, dim=-1)
        return attention(maps(first * second, self.map_weight, self.map_bias), mask)

    def _glimpses(self, x: Tensor, mask: Tensor | None) -> Float[Tensor, "b g d"]:
        return glimpses(self.checked(x, mask), self.attend(x, mask))

    def _embedded(self, seen: Float[Tensor, "b g d"]) -> Float[Tensor, "b g two_r"]:
        """What enters the tanh of each glimpse."""
        return torch.einsum("bgd,gdr->bgr", seen, self.glimpse_weight) + self.glimpse_bias

    @torch.no_grad()
    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """Scale the projections so that what enters each tanh has mean square 1: in its bend, and not saturated."""
        x = sample(features, 4096, seed=seed).to(self.attention_weight)
        self.attention_weight /= (x @ self.attention_weight).square().mean().sqrt().clamp_min(1e-12)
        images = next(image_batches(features, self.in_dim, of="mlb")).to(self.attention_weight)
        inside = self._embedded(self._glimpses(images, None)) - self.glimpse_bias
        self.glimpse_weight /= inside.square().mean((0, 2)).sqrt().clamp_min(1e-12)[:, None, None]

    def flops(self, locations: int) -> int:
        d, (g, _, two_r) = self.in_dim, self.glimpse_weight.shape
        attend = 2 * locations * (d * two_r + two_r // 2 * g + g * d)
        return attend + 2 * g * d * two_r + g * two_r * self.out_dim
