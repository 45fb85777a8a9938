"""Similarities between two sets of vectors: fast in float32 with a proven error bound, exact in float64 where it matters.

Each metric is a dot product s(q, g) = ⟨a(q), b(g)⟩ of prepared vectors, so that a block of similarities is one GEMM:

    cosine       a = b = x / |x|                                         (a zero vector stays zero: similarity 0)
    dot          a = b = x
    euclidean    a = (x, −½|x|², 1),  b = (x, 1, −½|x|²), so that s = −½|q − g|²; x is centred first

A float32 dot product of K terms, summed in any order, is off by at most γ_K Σ|a_k b_k| ≤ γ_K |a||b| with γ_K ≈ K·2⁻²⁴
(Higham 2002, §3.1): whatever BLAS, blocking or thread count, a comparison that is clearer than this bound is right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

Metric = Literal["cosine", "dot", "euclidean"]
METRICS: tuple[Metric, ...] = ("cosine", "dot", "euclidean")

_ROWS = 4096  # rows that are prepared at a time: bounds the float64 copy, not the result
_SLACK = 16  # rounding of the inputs, of the thresholds and of the bound itself, in units of the last place
_WORD = 8  # gallery positions are padded to whole 64-bit words of booleans


@dataclass(frozen=True)
class Similarity:
    """s(q, g) between ``queries`` and ``gallery``: rows of ``vectors``, named by index."""

    vectors: Float[Tensor, "n d"]
    queries: Int[Tensor, " q"]
    gallery: Int[Tensor, " g"]
    metric: Metric
    centre: Tensor  # subtracted first; zero unless euclidean
    scale: float  # divided by next; a common factor changes no order, and keeps float32 from overflowing
    a: Float[Tensor, "q k"]  # float32
    b: Float[Tensor, "g_padded k"]  # float32, padded with zero rows
    error: Float[Tensor, " q"]  # no float32 similarity of query q is further than this from the true one

    @property
    def tolerance(self) -> Float[Tensor, " q"]:
        """The same bound for the float64 values: similarities no further apart than this are a tie."""
        return self.error * 2.0**-28

    def block(self, rows: slice, columns: slice, out: Tensor) -> Float[Tensor, "r c"]:
        """Float32 similarities of some queries and gallery items, written into the start of the buffer ``out``."""
        a, b = self.a[rows], self.b[columns]
        view = out[: len(a) * len(b)].view(len(a), len(b))
        return torch.mm(a, b.T, out=view)

    def exact_block(self, rows: slice, columns: slice) -> Float[Tensor, "r c"]:
        """The same in float64, from the vectors as they were given; padding has similarity 0."""
        a = self._prepared(self.queries[rows], side="a")
        b = self._prepared(self.gallery[columns], side="b")
        padding = self.b[columns].shape[0] - len(b)
        return a @ torch.nn.functional.pad(b, (0, 0, 0, padding)).T

    def exact_pairs(self, i: Int[Tensor, " m"], j: Int[Tensor, " m"]) -> Float[Tensor, " m"]:
        """Float64 similarity of query ``i[m]`` and gallery item ``j[m]``, from the vectors as they were given."""
        values = [
            (self._prepared(self.queries[i_part], side="a") * self._prepared(self.gallery[j_part], side="b")).sum(-1)
            for i_part, j_part in zip(i.split(_ROWS), j.split(_ROWS), strict=True)
        ]
        return torch.cat(values) if values else self.error.new_empty(0)

    def _prepared(self, index: Tensor, *, side: Literal["a", "b"]) -> Tensor:
        return _prepare(self.vectors[index], self.metric, self.centre, self.scale, side)


def similarity(
    vectors: Float[Tensor, "n d"], queries: Int[Tensor, " q"], gallery: Int[Tensor, " g"], *, metric: Metric = "cosine"
) -> Similarity:
    """Prepare both sides for GEMMs. One float32 copy of the vectors is made (two where the sides differ)."""
    centre, scale = _frame(vectors, metric)

    def fill(index: Tensor, side: Literal["a", "b"], padding: int) -> Tensor:
        k = vectors.shape[1] + (2 if metric == "euclidean" else 0)
        filled = vectors.new_zeros((len(index) + padding, k), dtype=torch.float32)
        for start in range(0, len(index), _ROWS):
            part = index[start : start + _ROWS]
            filled[start : start + len(part)] = _prepare(vectors[part], metric, centre, scale, side)
        return filled

    b = fill(gallery, "b", -len(gallery) % _WORD)
    shared = metric != "euclidean" and torch.equal(queries, gallery)
    a = b[: len(queries)] if shared else fill(queries, "a", 0)
    return Similarity(vectors, queries, gallery, metric, centre, scale, a, b, _error_bound(a, b))


def _error_bound(a: Tensor, b: Tensor) -> Tensor:
    longest = torch.linalg.vector_norm(b, dim=1).max() if len(b) else b.new_ones(())
    gamma = (a.shape[1] + _SLACK) * 2.0**-24
    # The last term covers products that float32 cannot hold as normal numbers.
    return gamma * 1.001 * torch.linalg.vector_norm(a, dim=1).double() * longest.double() + a.shape[1] * 2.0**-120


def _frame(vectors: Tensor, metric: Metric) -> tuple[Tensor, float]:
    """The centre to subtract and the common scale to divide by, from two passes in float64."""
    centre = torch.zeros(vectors.shape[1], dtype=torch.float64, device=vectors.device)
    if metric == "cosine":
        return centre, 1.0
    parts = vectors.split(_ROWS)
    if metric == "euclidean":
        for part in parts:
            centre += part.double().div(len(vectors)).sum(0)
    largest = max((float((part.double() - centre).abs().max()) for part in parts), default=0.0)
    return centre, largest * vectors.shape[1] ** 0.5 or 1.0


def _prepare(x: Tensor, metric: Metric, centre: Tensor, scale: float, side: Literal["a", "b"]) -> Tensor:
    x = x.double()
    if metric == "cosine":
        # Divided by its largest entry first: squares of very small or very large entries would leave the range.
        tiny = torch.finfo(torch.float64).tiny
        x = x / x.abs().amax(1, keepdim=True).clamp_min(tiny)
        return x / torch.linalg.vector_norm(x, dim=1, keepdim=True).clamp_min(tiny)
    x = (x - centre) / scale
    if metric == "dot":
        return x
    half = -0.5 * x.square().sum(1, keepdim=True)
    one = torch.ones_like(half)
    return torch.cat((x, half, one) if side == "a" else (x, one, half), dim=1)
