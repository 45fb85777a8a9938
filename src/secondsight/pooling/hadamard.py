"""Hadamard low-rank products pooled under attention: a sum over locations made of the parts of MLB.

    f_l = tanh(Uᵀx_l) ∘ tanh(Vᵀx_l),    α_g = softmax over locations of p_gᵀ (tanh(U_aᵀx_l) ∘ tanh(V_aᵀx_l)),
    z = Pᵀ [ Σ_l α_1l f_l ; … ; Σ_l α_Gl f_l ] .

Not the equations of Kim et al. (ICLR 2017), which ``mlb`` has: they attend to the features themselves and multiply
afterwards, glimpse by glimpse, with biases. Multiplying first makes f a second-order feature of a location and z a sum,
given the attention.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from secondsight.functional.pooling.glimpses import attention, embedded, glimpses, maps
from secondsight.pooling.contract import Features, Grid, Locals, Mask, Pooling, at_least_one
from secondsight.pooling.feature_samples import sample


class Hadamard(Pooling):
    """``hadamard-G``. Models saved as ``mlb`` before it had its authors' equations are this one.

    Given the attention, which looks at the whole image, the output is a sum over locations: ``local`` has it.

    Args:
        in_dim: d, the size of a local feature.
        out_dim: D.
        glimpses: G, how many attention maps.
        rank: Size of the product f.
        attention_rank: Size of the product that the attention is computed from.
    """

    family = "hadamard"
    summary = "Hadamard low-rank products, summed under attention glimpses"
    paper = "ours, of the parts of Kim et al., ICLR 2017"
    expects = "features of length about 1, or a fit"
    name_options = ("glimpses",)
    additive = True

    def __init__(self, in_dim: int, out_dim: int, *, glimpses: int = 2, rank: int = 512, attention_rank: int = 128):
        super().__init__(in_dim, out_dim)
        at_least_one("hadamard", glimpses=glimpses, rank=rank, attention_rank=attention_rank)
        # Unit variance before the tanh for inputs of length 1, and unit variance after P for a flat attention.
        self.u = nn.Parameter(torch.randn(in_dim, rank))
        self.v = nn.Parameter(torch.randn(in_dim, rank))
        self.u_attention = nn.Parameter(torch.randn(in_dim, attention_rank))
        self.v_attention = nn.Parameter(torch.randn(in_dim, attention_rank))
        self.p_attention = nn.Parameter(torch.randn(attention_rank, glimpses) * attention_rank**-0.5)
        self.p = nn.Parameter(torch.randn(glimpses * rank, out_dim) * (glimpses * rank) ** -0.5)

    def forward(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b out"]:
        f, weights = self._products(x, mask)
        return glimpses(f, weights).flatten(1) @ self.p

    def local(self, x: Locals, mask: Mask = None, *, grid: Grid | None = None) -> Float[Tensor, "b l out"]:
        f, weights = self._products(x, mask)
        parts = self.p.unflatten(0, (weights.shape[-1], -1))  # (g, r, out)
        z = sum(weights[..., g, None] * (f @ part) for g, part in enumerate(parts))
        assert isinstance(z, Tensor)
        return z

    def attend(self, x: Float[Tensor, "b l d"], mask: Bool[Tensor, "b l"] | None = None) -> Float[Tensor, "b l g"]:
        """Where each glimpse looks: weights that add up to 1 over the real locations."""
        return self._products(x, mask)[1]

    def _products(self, x: Tensor, mask: Tensor | None) -> tuple[Float[Tensor, "b l r"], Float[Tensor, "b l g"]]:
        """f and the attention, by one matrix product."""
        weights = (self.u, self.u_attention, self.v, self.v_attention)
        sizes = [w.shape[1] for w in weights]
        ux, ux_attention, vx, vx_attention = embedded(self.checked(x, mask), torch.cat(weights, dim=1)).split(sizes, -1)
        return ux * vx, attention(maps(ux_attention * vx_attention, self.p_attention), mask)

    @torch.no_grad()
    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """Scale the projections so that what enters each tanh has mean square 1: in its bend, and not saturated."""
        x = sample(features, 4096, seed=seed).to(self.u)
        for weight in (self.u, self.u_attention, self.v, self.v_attention):
            weight /= (x @ weight).square().mean().sqrt().clamp_min(1e-12)

    def flops(self, locations: int) -> int:
        rank, attention_rank, (_, out) = self.u.shape[1], self.u_attention.shape[1], self.p.shape
        g = self.p_attention.shape[1]
        embed = 4 * locations * self.in_dim * (rank + attention_rank)
        return embed + 2 * locations * g * (rank + attention_rank) + 2 * g * rank * out
