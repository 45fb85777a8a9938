"""Hadamard low-rank bilinear pooling with attention (MLB; "HPBP" in the JCF paper).

Kim, On, Lim, Kim, Ha, Zhang, "Hadamard Product for Low-rank Bilinear Pooling", ICLR 2017, equations 7 and 10. For two
inputs x and y, f = tanh(Uᵀx) ∘ tanh(Vᵀy), and G glimpses α_g = softmax over positions of P_αᵀ f_α:

    z = Pᵀ [ Σ_l α_1l f_l ; … ; Σ_l α_Gl f_l ] .

In visual question answering y is the question; for an image alone y = x, and f is a second-order feature of a location.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from secondsight.errors import ConfigError, ShapeError
from secondsight.functional.pooling.glimpses import attention, embedded, glimpses
from secondsight.pooling.contract import Features, Grid, Pooling
from secondsight.pooling.feature_samples import sample


class Hadamard(Pooling):
    """``mlb-G``.

    Given the attention, which looks at the whole image, the output is a sum over locations: ``local`` has it.

    Args:
        in_dim: d, the size of a local feature.
        out_dim: D.
        glimpses: G, how many attention maps. The paper uses 2.
        rank: Size of the joint embedding f. The paper uses 1200 for questions and answers.
        attention_rank: Size of the joint embedding f_α that the attention is computed from.
        other_dim: Size of the second input y; d when None.
    """

    family = "mlb"
    summary = "Hadamard low-rank product under attention glimpses"
    paper = "Kim et al., ICLR 2017"
    expects = "features of length about 1, or fit"
    name_options = ("glimpses",)
    additive = True

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        glimpses: int = 2,
        rank: int = 512,
        attention_rank: int = 128,
        other_dim: int | None = None,
    ):
        super().__init__(in_dim, out_dim)
        self.other_dim = in_dim if other_dim is None else other_dim
        options = {"glimpses": glimpses, "rank": rank, "attention_rank": attention_rank, "other_dim": self.other_dim}
        for name, value in options.items():
            if value < 1:
                raise ConfigError(f"mlb: {name} must be at least 1, got {value}")
        # Unit variance before the tanh for inputs of length 1, and unit variance after P for a flat attention.
        self.u = nn.Parameter(torch.randn(in_dim, rank))
        self.v = nn.Parameter(torch.randn(self.other_dim, rank))
        self.u_attention = nn.Parameter(torch.randn(in_dim, attention_rank))
        self.v_attention = nn.Parameter(torch.randn(self.other_dim, attention_rank))
        self.p_attention = nn.Parameter(torch.randn(attention_rank, glimpses) * attention_rank**-0.5)
        self.p = nn.Parameter(torch.randn(glimpses * rank, out_dim) * (glimpses * rank) ** -0.5)

    def forward(
        self,
        x: Float[Tensor, "b l d"],
        mask: Bool[Tensor, "b l"] | None = None,
        *,
        y: Float[Tensor, "b l e"] | Float[Tensor, "b e"] | None = None,
        grid: Grid | None = None,
    ) -> Float[Tensor, "b out"]:
        """``y``: the second input, one vector an image or one a location; ``x`` when None."""
        f, weights = self._looked_at(x, mask, y)
        return glimpses(f, weights).flatten(1) @ self.p

    def local(
        self,
        x: Float[Tensor, "b l d"],
        mask: Bool[Tensor, "b l"] | None = None,
        *,
        y: Float[Tensor, "b l e"] | Float[Tensor, "b e"] | None = None,
        grid: Grid | None = None,
    ) -> Float[Tensor, "b l out"]:
        f, weights = self._looked_at(x, mask, y)
        parts = self.p.unflatten(0, (weights.shape[-1], -1))  # (g, r, out)
        z = sum(weights[..., g, None] * (f @ part) for g, part in enumerate(parts))
        assert isinstance(z, Tensor)
        return z

    def attend(
        self,
        x: Float[Tensor, "b l d"],
        mask: Bool[Tensor, "b l"] | None = None,
        *,
        y: Float[Tensor, "b l e"] | Float[Tensor, "b e"] | None = None,
    ) -> Float[Tensor, "b l g"]:
        """Where each glimpse looks: weights that add up to 1 over the real locations."""
        return self._looked_at(x, mask, y)[1]

    def _looked_at(self, x: Tensor, mask: Tensor | None, y: Tensor | None) -> tuple[Tensor, Tensor]:
        """The joint embedding f and the attention."""
        x = self.checked(x, mask)
        first, second = (self.u, self.u_attention), (self.v, self.v_attention)
        if y is None and self.other_dim == self.in_dim:
            ux, ux_attention, vy, vy_attention = embedded(x, *first, *second)
        else:
            ux, ux_attention = embedded(x, *first)
            vy, vy_attention = embedded(self._second(x, mask, x if y is None else y), *second)
        return ux * vy, attention((ux_attention * vy_attention) @ self.p_attention, mask)

    def _second(self, x: Tensor, mask: Tensor | None, y: Tensor) -> Tensor:
        y = y[:, None] if y.ndim == 2 else y
        if y.shape[-1] != self.other_dim or len(y) != len(x) or y.shape[1] not in (1, x.shape[1]):
            raise ShapeError(
                f"mlb expects a second input (batch, {self.other_dim}) or (batch, locations, {self.other_dim}) beside "
                f"local features {tuple(x.shape)}, got {tuple(y.shape)}"
            )
        return y.masked_fill(~mask[..., None], 0) if mask is not None and y.shape[1] == x.shape[1] else y

    @torch.no_grad()
    def fit(self, features: Features, *, grid: Grid | None = None, seed: int = 0) -> None:
        """Scale the projections so that what enters each tanh has mean square 1: in its bend, and not saturated."""
        x = sample(features, 4096, seed=seed).to(self.u)
        own = [self.v, self.v_attention] if self.other_dim == self.in_dim else []
        for weight in [self.u, self.u_attention, *own]:
            weight /= (x @ weight).square().mean().sqrt().clamp_min(1e-12)

    def flops(self, locations: int) -> int:
        rank, attention_rank, (_, out) = self.u.shape[1], self.u_attention.shape[1], self.p.shape
        g = self.p_attention.shape[1]
        embed = 2 * locations * (self.in_dim + self.other_dim) * (rank + attention_rank)
        return embed + 2 * locations * g * (rank + attention_rank) + 2 * g * rank * out
