"""Joint Codebook and Factorization (JCF), the paper's pooling.

Jacob, Picard, Histace, Klein, "Efficient Codebook and Factorization for Second Order Representation Learning":

    jcf       z_i(x) = ⟨u_i, x⟩ ⟨v_i, x⟩                             (facto_so_feature)
    jcf-N     z_i(x) = (h(x)ᵀ U_iᵀ x) (h(x)ᵀ V_iᵀ x)                 (our_second_facto_simplified)
    jcf-N-R   z_i(x) = (f_p(h(x))ᵀ Ũ_iᵀ x) (f_q(h(x))ᵀ Ṽ_iᵀ x)       (nearly_final_eq)

with f_p(h) = Aᵀh, f_q(h) = Bᵀh by default (truly_final_eq), and z = Σ_x z(x). Ours, and off by default: a signed power
of z, and a matrix after it (``ending``), which lets z be wider than what comes out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from secondsight.errors import ConfigError, ShapeError, require_known
from secondsight.evaluation_mode import evaluating
from secondsight.functional.pooling.assignment import nearest
from secondsight.functional.pooling.codeword_sums import codeword_sums
from secondsight.functional.pooling.combined_projectors import combined_projectors
from secondsight.functional.pooling.jcf import jcf, jcf_local
from secondsight.functional.pooling.locations import location_count
from secondsight.pooling.codebook import Assigned, Codebook
from secondsight.pooling.contract import Features, Grid, Locals, Mask, Pooling
from secondsight.pooling.ending import Ending
from secondsight.pooling.feature_samples import image_batches, sample
from secondsight.pooling.mixers import Linear, mixer
from secondsight.pooling.starts import (
    IN_CHANNELS,
    STARTS,
    pairs,
    random_scale,
    root_mean_square,
    second_factor,
    shared_projector,
    strongest,
)

ENOUGH = 20
"""Locations a codeword from which it takes less time to combine the shared projectors and route than to use all."""


class JCF(Pooling):
    """The paper's layer and its generalisations.

    Its parts: ``Codebook`` and ``mixers`` (p and q, which projectors a location uses), ``starts`` (what these begin
    as), ``Ending`` (what follows the sum). The paper's literal layer is ``scale=1.0`` with ``learn_scale=False``, on
    features that the reduction has ℓ2-normalised.

    Args:
        in_dim: d, the size of a local feature.
        out_dim: D.
        codewords: N; None for no codebook.
        projectors: R projectors shared by the codewords through f_p and f_q; None for one projector a codeword.
        mix: f_p and f_q, one of ``MIXERS``: ``"linear"`` (the paper's A and B) or ``"mlp"``.
        assign, scale, learn_scale, straight_through, gains: See ``Codebook``.
        codebooks: 2 gives the second factor a codebook of its own, as the paper suggests for two inputs.
        start: One of ``STARTS``. All but ``"random"`` and ``"average"`` need ``fit``.
        power, whiten: See ``Ending``.
        width: K ≥ D, the size of z before the matrix of ``whiten`` makes D of it; None for D.
        dropout: Chance that a projector is left out of an image while training (inverted dropout on p and q, shared by
            locations); with a sparse assignment, that a codeword is.
        reduce: ``"sum"`` over locations (the paper's) or ``"mean"``.
    """

    family = "jcf"
    summary = "joint codebook and factorisation: N codewords, R projectors"
    paper = "Jacob, Picard, Histace, Klein 2019"
    name_options = ("codewords", "projectors")
    examples = ("jcf", "jcf-4", "jcf-16-4", "jcf-32", "jcf-32-8")
    additive = True
    fit_takes_channels = True

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        codewords: int | None = None,
        projectors: int | None = None,
        mix: str = "linear",
        assign: str = "soft",
        scale: float = 16.0,
        learn_scale: bool = True,
        straight_through: bool = True,
        gains: bool = False,
        codebooks: int = 1,
        start: str = "random",
        power: float = 1.0,
        whiten: float | None = None,
        width: int | None = None,
        dropout: float = 0.0,
        reduce: str = "sum",
    ):
        super().__init__(in_dim, out_dim)
        if projectors is not None and (codewords is None or projectors < 1):
            raise ConfigError(
                f"{projectors} shared projectors need a codebook and at least 1 projector, as in 'jcf-32-8'"
            )
        if codebooks not in (1, 2):
            raise ConfigError(f"codebooks must be 1 (shared by both factors) or 2 (one each), got {codebooks}")
        if reduce not in ("sum", "mean"):
            raise ConfigError(f"reduce must be 'sum' or 'mean', got {reduce!r}")
        require_known("start of jcf", start, STARTS)
        if not 0 <= dropout < 1:
            raise ConfigError(f"dropout must be in [0, 1), got {dropout}")
        self.codewords, self.projectors = codewords, projectors
        self.start, self.reduce, self.dropout = start, reduce, dropout
        self.width = out_dim if width is None else width
        self.codebooks = nn.ModuleList(
            Codebook(
                in_dim,
                codewords,
                assign=assign,
                scale=scale,
                learn_scale=learn_scale,
                straight_through=straight_through,
                gains=gains,
            )
            for _ in range(codebooks)
            if codewords is not None
        )
        self.mixers = nn.ModuleList(mixer(mix, codewords, projectors) for _ in range(2) if codewords and projectors)
        self.ending = Ending(self.width, out_dim, power=power, whiten=whiten)
        n = projectors or codewords or 1
        self.uv = nn.Parameter(torch.empty(n, in_dim, 2 * self.width))
        self.offset = nn.Parameter(torch.ones(n, self.width)) if start != "random" else None
        self._combined: tuple[list, list, tuple[Tensor, Tensor | None]] | None = None
        self.reset_projectors()

    @property
    def _books(self) -> list[Codebook]:
        return [book for book in self.codebooks if isinstance(book, Codebook)]

    def readout_parameters(self) -> Iterator[nn.Parameter]:
        """The matrix of ``whiten`` and the codewords' gains."""
        yield from self.ending.parameters()
        yield from (book.log_gains for book in self._books if book.log_gains is not None)

    @property
    def u(self) -> Float[Tensor, "n d k"]:
        """First factor's projectors U (a view)."""
        return self.uv[..., : self.width]

    @property
    def v(self) -> Float[Tensor, "n d k"]:
        """Second factor's projectors V (a view)."""
        return self.uv[..., self.width :]

    def forward(
        self, x: Locals, mask: Mask = None, *, y: Locals | None = None, grid: Grid | None = None
    ) -> Float[Tensor, "b out"]:
        """``y``: other features for the second factor (another modality, a neighbouring location); ``x`` when None."""
        return self.ending(self._summed(x, mask, y))

    def _summed(self, x: Tensor, mask: Tensor | None = None, y: Tensor | None = None) -> Float[Tensor, "b k"]:
        z = jcf(**self._operands(x, mask, y))
        return z if self.reduce == "sum" else z / location_count(x, mask)

    def local(
        self, x: Locals, mask: Mask = None, *, y: Locals | None = None, grid: Grid | None = None
    ) -> Float[Tensor, "b l out"]:
        return self.ending.local(self.summands(x, mask, y=y))

    def summands(self, x: Locals, mask: Mask = None, *, y: Locals | None = None) -> Float[Tensor, "b l k"]:
        """What each location adds to z before power and matrix: ``ending(summands(x).sum(1)) == forward(x)``. Unlike
        those of ``local`` they do not depend on the other locations, so without location l the sum is z − z_l.
        """
        z = jcf_local(**self._operands(x, mask, y))
        return z if self.reduce == "sum" else z / location_count(x, mask)[..., None]

    def _operands(self, x: Tensor, mask: Tensor | None, y: Tensor | None) -> dict[str, Any]:
        """What ``functional.jcf`` takes: features, coefficients p and q, projectors, offsets."""
        x = self.checked(x, mask)
        if y is not None:
            y = self.checked(y, mask)
            if y.shape != x.shape:
                raise ShapeError(f"the second input {tuple(y.shape)} must have the first one's shape {tuple(x.shape)}")
        h, g = self._assign(x, mask, y)
        uv, bias = self.uv, self._bias()
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            self._combined = None  # what may learn now: fused optimisers change parameters and do not count it
        if self.mixers and self._routes and self._still:
            uv, bias = self._unshared_once()
        elif self.mixers and self._routes and self._enough(locations=x.shape[0] * x.shape[1]):
            uv, bias = self.unshared()
        elif self.mixers:
            first, second = self.mixers
            p, q = h.dense(self.codewords or 1), (g or h).dense(self.codewords or 1)
            # f may have a constant term: what is not a location must stay out of z all the same.
            h, g = Assigned(first(p), None).masked(mask), Assigned(second(q), None).masked(mask)
        if self.training and self.dropout:
            kept = torch.rand(x.shape[0], 1, len(uv), device=x.device) >= self.dropout
            kept = kept.to(h.weights.dtype) / (1 - self.dropout)
            h, g = h.thinned(kept), None if g is None else g.thinned(kept)
        operands = {"x": x, "y": y, "h": h.weights, "index": h.which, "uv": uv, "bias": bias}
        return operands if g is None else {**operands, "g": g.weights, "index2": g.which}

    def _assign(self, x: Tensor, mask: Tensor | None, y: Tensor | None) -> tuple[Assigned, Assigned | None]:
        """h(x), and the second factor's assignment where it is another one."""
        if not self.codebooks:
            return Assigned(x.new_ones(*x.shape[:2], 1), None).masked(mask), None
        h = self.codebooks[0](x, mask)
        alike = y is None and len(self.codebooks) == 1
        return h, None if alike else self.codebooks[-1](x if y is None else y, mask)

    @property
    def _routes(self) -> bool:
        """Whether h touches fewer codewords than there are shared projectors: N combined ones, routed, then multiply
        less.
        """
        book = self._books[0]
        return (
            book.sparse and (book.k or 0) < (self.projectors or 0) and all(isinstance(f, Linear) for f in self.mixers)
        )

    @property
    def _still(self) -> bool:
        """Whether nothing learns, so that projectors are combined once for all batches."""
        return not (self.training or torch.is_grad_enabled() or torch.compiler.is_compiling())

    def _enough(self, *, locations: int | torch.SymInt) -> bool:
        """Whether so many locations gain more by routes than combining projectors for this batch costs."""
        # A branch on the number of locations would bind an exported program to it: there, enough is taken for granted.
        return torch.compiler.is_exporting() or locations >= ENOUGH * (self.codewords or 0)

    def _unshared_once(self) -> tuple[Float[Tensor, "n d two_k"], Float[Tensor, "n two_k"] | None]:
        """``unshared``, kept until a parameter changes: one image alone would take longer to combine than to embed."""
        of = [p for p in (self.uv, self.offset, *self.mixers.parameters()) if p is not None]
        if any(p.is_inference() for p in of):
            return self.unshared()  # such tensors do not count their changes
        state = [(id(p), p.data_ptr(), p._version) for p in of]
        if self._combined is None or self._combined[0] != state:
            self._combined = state, of, self.unshared()  # parameters that are held keep their places in memory
        return self._combined[2]

    def train(self, mode: bool = True) -> JCF:
        if mode:  # what evaluates says so before every image
            self._combined = None
        return super().train(mode)

    def unshared(self) -> tuple[Float[Tensor, "n d two_k"], Float[Tensor, "n two_k"] | None]:
        """One projector a codeword, U_n = Σ_r A_nr Ũ_r, and the offsets: the N projectors that R shared ones stand
        for.
        """
        if not self.mixers:
            return self.uv, self._bias()
        a, b = (f for f in self.mixers if isinstance(f, Linear))
        uv = combined_projectors(a.weight, b.weight, self.uv)
        return uv, None if self.offset is None else self._padded(b.combined(self.offset))

    def assignments(self, x: Float[Tensor, "b l d"]) -> tuple[Float[Tensor, "b l n"], Float[Tensor, "b l n"]]:
        """h(x) of the first and of the second factor, dense."""
        h, g = self._assign(x, None, None)
        n = self.codewords or 1
        return h.dense(n), (g or h).dense(n)

    def _bias(self) -> Tensor | None:
        """[0 c]: offsets of both factors, as the contraction takes them."""
        return None if self.offset is None else self._padded(self.offset)

    def _padded(self, offset: Tensor) -> Tensor:
        return nn.functional.pad(offset, (self.width, 0))

    def _coefficients(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """p and q of both factors, dense."""
        p, q = self.assignments(x)
        return (self.mixers[0](p), self.mixers[1](q)) if self.mixers else (p, q)

    @torch.no_grad()
    def reset_projectors(self) -> None:
        """The start, as far as it needs no data."""
        if self.uv.is_meta:
            return
        if self.start == "random":
            directions = nn.functional.normalize(torch.randn(1, 1024, self.in_dim), dim=-1)
            self.uv.normal_(std=random_scale(*self._coefficients(directions)))
        else:
            self._share(shared_projector(self.in_dim, self.width))

    def _share(self, u: Float[Tensor, "d k"]) -> None:
        """One U for all projectors, and V beside it."""
        self.u.copy_(u * max(u.shape) ** 0.5)
        self._start_second_factor(None)

    def _start_second_factor(self, points: Float[Tensor, "m d"] | None) -> None:
        """The same V, or an offset of 1, for every projector, and noise that tells them apart."""
        assert self.offset is not None
        v = second_factor(self.start, self.u[0], points)
        self.offset.fill_(1.0 if v is None else 0.0)
        self.v.normal_(std=1e-2).add_(0.0 if v is None else v)

    def _start_pairs(self, u: Float[Tensor, "d k"], v: Float[Tensor, "d k"]) -> None:
        """The same U and V for all projectors, and no offset; codewords tell them apart as they learn."""
        assert self.offset is not None
        self.offset.fill_(0.0)
        self.u.copy_(u)
        self.v.copy_(v)

    @torch.no_grad()
    def fit(
        self,
        features: Features,
        *,
        grid: Grid | None = None,
        seed: int = 0,
        channels: Float[Tensor, "d c"] | None = None,
    ) -> None:
        """Codebook by spherical k-means; projectors rescaled so that each factor has mean square 1 on the data; then
        the second factor's start, and m and W from the images' sums.

        ``channels``: The backbone's own, where U begins with the K strongest if the start is one of ``IN_CHANNELS``.
        """
        points = sample(features, 100_000, seed=seed)
        if self.start == "pairs":
            self._start_pairs(*pairs(features, self.in_dim, self.width))
        elif channels is not None and self.start in IN_CHANNELS and channels.shape[1] >= self.width:
            self._share(strongest(channels.to(self.uv), points.to(self.uv), self.width))
        for i, book in enumerate(self._books):
            book.fit(points, seed=seed + i)
        x = points[:4096].to(self.uv)
        p, q = self._coefficients(x[None])
        self.u.div_(root_mean_square(self.u, p[0], x))
        if self.start in ("random", "pairs"):
            self.v.div_(root_mean_square(self.v, q[0], x))
        elif self.start in IN_CHANNELS:  # with "average" V stays near zero beside its offset of 1
            self._start_second_factor(points.to(self.uv))
        if self.ending.needed:
            self.ending.fit(self._sums(features))

    @property
    def keeps_sums(self) -> bool:
        """Gains weigh pairs of codewords, g_n g_m: too many to keep, unless a location has one codeword and n = m."""
        if self.dropout:
            return False
        linear = all(isinstance(f, Linear) for f in self.mixers)
        return not self._gains or (linear and [book.k for book in self._books] == [1])

    @property
    def _gains(self) -> bool:
        return any(book.log_gains is not None for book in self._books)

    def kept_sums(
        self, x: Locals, mask: Mask = None, *, grid: Grid | None = None
    ) -> Float[Tensor, "b k"] | Float[Tensor, "b n k"]:
        """z before power and matrix; with gains one for each codeword, before its gain."""
        if not self._gains:
            return self._summed(x, mask)
        x = self.checked(x, mask)
        words = nearest(x, self._books[0].words)[..., 0]
        uv, bias = self.unshared()
        z = codeword_sums(x, words, uv, bias=bias, mask=mask)
        return z if self.reduce == "sum" else z / location_count(x, mask)[..., None]

    def ended(self, sums: Float[Tensor, "b ..."]) -> Float[Tensor, "b out"]:
        gains = self._books[0].gains if self._gains else None
        return self.ending(sums if gains is None else gains.square().to(sums.dtype) @ sums)

    def _sums(self, features: Features) -> Float[Tensor, "images out"]:
        batches = image_batches(features, self.in_dim, of="jcf with a power or whitening")
        with evaluating(self):  # no dropout
            return torch.cat([self._summed(some.to(self.uv)) for some in batches])

    def flops(self, locations: int) -> int:
        """Of one image among many: what is done once a batch, combining shared projectors, is left out."""
        n = self.projectors or self.codewords or 1
        active = min(n, self._books[0].k or n) if self._books else n
        assign = 2 * self.in_dim * (self.codewords or 0) * len(self.codebooks)
        mix = 4 * (self.codewords or 0) * (self.projectors or 0)
        each = assign + mix + 4 * active * self.in_dim * self.width + 2 * self.width
        return locations * each + self.ending.flops()

    def extra_repr(self) -> str:
        shared = f", projectors={self.projectors}" if self.projectors else ""
        return f"in_dim={self.in_dim}, out_dim={self.out_dim}, codewords={self.codewords}{shared}"
