"""Similarities of two sets of vectors: fast in float32 with a proven error bound, exact in float64 where it matters.

Each metric is a dot product s(q, g) = ⟨a(q), b(g)⟩ of prepared vectors, so that a block of similarities is one GEMM:

    cosine       a = b = x / |x|                                         (a zero vector stays zero: similarity 0)
    dot          a = b = x
    euclidean    a = (x, −½|x|², 1),  b = (x, 1, −½|x|²), so that s = −½|q − g|²; x is centred first

A float32 dot product of K terms, summed in any order, is off by at most γ_K Σ|a_k b_k| ≤ γ_K |a||b| with γ_K ≈ K·2⁻²⁴
(Higham 2002, §3.1): whatever BLAS, blocking or thread count, a comparison that is clearer than this bound is right.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

Metric = Literal["cosine", "dot", "euclidean"]
METRICS: tuple[Metric, ...] = ("cosine", "dot", "euclidean")

_ROWS = 1024  # rows that are prepared at a time: a float64 copy that stays in the cache
_SLACK = 16  # rounding of the inputs, of the thresholds and of the bound itself, in units of the last place
_WORD = 8  # gallery positions are padded to whole 64-bit words of booleans


@dataclass(frozen=True)
class Similarity:
    """s(q, g) between ``queries`` and ``gallery``: rows of ``vectors``, named by index."""

    vectors: Float[Tensor, "n d"]
    queries: Int[Tensor, " q"]
    gallery: Int[Tensor, " g"]
    centre: Float[Tensor, " d"] | None  # subtracted first (euclidean)
    scale: Float[Tensor, " n"]  # multiplied by next: 1 / |x| for cosine, else one number that keeps float32 in range
    half: Float[Tensor, " n"] | None  # ½|x|² after both (euclidean)
    a: Float[Tensor, "q k"]  # float32
    b: Float[Tensor, "padded k"]  # float32, with rows of zeros at the end
    error: Float[Tensor, " q"]  # no float32 similarity of query q is further than this from the true one

    @property
    def tolerance(self) -> Float[Tensor, " q"]:
        """The same bound for the difference of two float64 similarities: if no further apart than this, they tie."""
        return self.error * 2.0**-28

    def block(self, rows: slice, columns: slice, out: Tensor) -> Float[Tensor, "r c"]:
        """Float32 similarities of some queries and gallery items, written into the start of the buffer ``out``."""
        a, b = self.a[rows], self.b[columns]
        return torch.mm(a, b.T, out=out[: len(a) * len(b)].view(len(a), len(b)))

    def exact_block(self, rows: slice, columns: slice) -> Float[Tensor, "r c"]:
        """The same in float64, from the vectors as they were given; what is past the end of the gallery is 0."""
        q, g = self.queries[rows], self.gallery[columns]
        s = self._rows(q) @ self._rows(g).T
        if self.half is not None:
            s = s - self.half[q, None] - self.half[g]
        return pad(s, (0, self.b[columns].shape[0] - len(g)))

    def exact_pairs(self, i: Int[Tensor, " m"], j: Int[Tensor, " m"]) -> Float[Tensor, " m"]:
        """Float64 similarity of query ``i[m]`` and gallery item ``j[m]``, from the vectors as they were given."""
        values = []
        for q, g in zip(self.queries[i].split(_ROWS), self.gallery[j].split(_ROWS), strict=True):
            s = (self._rows(q) * self._rows(g)).sum(1)
            values.append(s if self.half is None else s - self.half[q] - self.half[g])
        return torch.cat(values)

    def _rows(self, index: Tensor) -> Tensor:
        return _scaled(self.vectors[index], self.centre, self.scale[index])


def similarity(
    vectors: Float[Tensor, "n d"], queries: Int[Tensor, " q"], gallery: Int[Tensor, " g"], *, metric: Metric = "cosine"
) -> Similarity:
    """Prepare both sides for GEMMs. One float32 copy of the vectors is made (two where the sides differ)."""
    if metric == "cosine" and vectors.dtype == torch.float64:
        # Squares of entries that float32 cannot hold may leave the range of float64 too; directions stay as they are.
        vectors = vectors / vectors.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    centre = _mean(vectors) if metric == "euclidean" else None
    scale = _scale(vectors, centre, metric)
    half = (
        torch.cat([_scaled(x, centre, s).square().sum(1) / 2 for x, s in _parts(vectors, scale)])
        if metric == "euclidean"
        else None
    )

    def prepared(index: Tensor, padding: int, *, left: bool) -> Tensor:
        k = vectors.shape[1] + (0 if half is None else 2)
        filled = torch.zeros((len(index) + padding, k), device=vectors.device)
        for start in range(0, len(index), _ROWS):
            part = index[start : start + _ROWS]
            rows = filled[start : start + len(part)]
            rows[:, : vectors.shape[1]] = _scaled(vectors[part], centre, scale[part])
            if half is not None:
                rows[:, -2 if left else -1] = -half[part]
                rows[:, -1 if left else -2] = 1
        return filled

    b = prepared(gallery, -len(gallery) % _WORD, left=False)
    shared = half is None and torch.equal(queries, gallery)
    a = b[: len(queries)] if shared else prepared(queries, 0, left=True)
    return Similarity(vectors, queries, gallery, centre, scale, half, a, b, _error_bound(a, b))


def _parts(*tensors: Tensor) -> Iterable[tuple[Tensor, ...]]:
    return zip(*(tensor.split(_ROWS) for tensor in tensors), strict=True)


def _scaled(x: Tensor, centre: Tensor | None, scale: Tensor) -> Tensor:
    x = x.double()
    return (x if centre is None else x - centre) * scale[:, None]


def _mean(vectors: Tensor) -> Tensor:
    return torch.stack([x.double().div(len(vectors)).sum(0) for (x,) in _parts(vectors)]).sum(0)


def _scale(vectors: Tensor, centre: Tensor | None, metric: Metric) -> Tensor:
    if metric == "cosine":
        norm = torch.cat([torch.linalg.vector_norm(x.double(), dim=1) for (x,) in _parts(vectors)])
        return torch.where(norm > 0, 1 / norm, 0)
    largest = max(
        float((x.double() if centre is None else x.double() - centre).abs().max()) for (x,) in _parts(vectors)
    )
    bound = largest * vectors.shape[1] ** 0.5  # no vector is longer
    return torch.full((len(vectors),), 1 / bound if bound else 1.0, dtype=torch.float64, device=vectors.device)


def _error_bound(a: Tensor, b: Tensor) -> Tensor:
    longest = torch.linalg.vector_norm(b, dim=1).max().double()
    gamma = (a.shape[1] + _SLACK) * 2.0**-24
    # The last term covers products that float32 cannot hold as normal numbers.
    return gamma * torch.linalg.vector_norm(a, dim=1).double() * longest + a.shape[1] * 2.0**-120
