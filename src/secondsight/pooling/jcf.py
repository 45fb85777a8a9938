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
from typing import TypedDict

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from secondsight.errors import ConfigError, DataError, ShapeError, UnknownName
from secondsight.functional.pooling.jcf import jcf, jcf_local
from secondsight.pooling.codewords import Assigned, Codewords
from secondsight.pooling.contract import Features, Grid, Pooling
from secondsight.pooling.ending import Ending
from secondsight.pooling.fitting import sample
from secondsight.pooling.mixing import Linear, Mixer, mixer
from secondsight.pooling.naming import numbers
from secondsight.pooling.starts import STARTS, saliency, strongest

ENOUGH = 20
"""Locations a codeword from which it takes less time to combine the shared projectors and route than to use all."""


class Operands(TypedDict):
    """What ``functional.jcf`` takes."""

    x: Tensor
    h: Tensor
    uv: Tensor
    bias: Tensor | None
    index: Tensor | None
    y: Tensor | None
    g: Tensor | None
    index2: Tensor | None


class JCF(Pooling):
    """The paper's layer and its generalisations.

    The paper's literal layer is ``scale=1.0`` with ``learn_scale=False``, on features that the reduction has
    ℓ2-normalised.

    Args:
        in_dim: d, the size of a local feature.
        out_dim: D.
        codewords: N; None for no codebook.
        projectors: R projectors shared by the codewords through f_p and f_q; None for one projector a codeword.
        mix: f_p and f_q: ``"linear"`` (the paper's A and B), ``"mlp"`` (one hidden layer of N units), or a function (N,
            R) → module.
        assign, scale, learn_scale, straight_through, gains: See ``Codewords``.
        codebooks: 2 gives the second factor a codebook of its own.
        start: ``"random"`` projectors, or one U for all and a second factor that makes of z something known, so that
            the rest is learned on top. ``"average"``: the factor is 1 (an offset; V near 0), z ≈ Σ_x Uᵀx.
            ``"saliency"``: it is ⟨s, x⟩ with s the mean feature, scaled to E⟨s, x⟩ = 1, so that a location counts by
            how much it stands out; for features that keep their norm. ``"square"``: V = U, z ≈ Σ_x (Uᵀx)², with power ½
            a generalised mean (p = 2). All but ``"average"`` need ``fit``.
        power, whiten: See ``Ending``.
        width: K ≥ D, the size of z before the matrix of ``whiten`` makes D of it; None for D.
        dropout: Chance that a projector is left out of an image while training (inverted dropout on p and q, shared by
            locations); with a sparse assignment, that a codeword is.
        reduce: ``"sum"`` over locations (the paper's) or ``"mean"``.
    """

    additive = True
    wants_channels = True

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        codewords: int | None = None,
        projectors: int | None = None,
        mix: str | Mixer = "linear",
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
        if start not in STARTS:
            raise UnknownName("start of jcf", start, STARTS)
        if not 0 <= dropout < 1:
            raise ConfigError(f"dropout must be in [0, 1), got {dropout}")
        self.codewords, self.projectors = codewords, projectors
        self.start, self.reduce, self.dropout = start, reduce, dropout
        self.width = out_dim if width is None else width
        self.codebooks = nn.ModuleList(
            Codewords(
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
        self.reset_projectors()

    @classmethod
    def from_name(cls, name: str, *, in_dim: int, out_dim: int, **options) -> JCF:
        codewords, projectors, *_ = [*numbers(name, "jcf", ["codewords", "projectors"]), None, None]
        return cls(in_dim, out_dim, codewords=codewords, projectors=projectors, **options)

    def ends(self) -> Iterator[nn.Parameter]:
        """The matrix of ``whiten`` and the codewords' gains."""
        yield from self.ending.parameters()
        for book in self.codebooks:
            assert isinstance(book, Codewords)
            if book.log_gains is not None:
                yield book.log_gains

    @property
    def u(self) -> Float[Tensor, "n d k"]:
        """First factor's projectors U (a view)."""
        return self.uv[..., : self.width]

    @property
    def v(self) -> Float[Tensor, "n d k"]:
        """Second factor's projectors V (a view)."""
        return self.uv[..., self.width :]

    def forward(
        self,
        x: Float[Tensor, "b l d"],
        mask: Bool[Tensor, "b l"] | None = None,
        *,
        y: Float[Tensor, "b l d"] | None = None,
        grid: Grid | None = None,
    ) -> Float[Tensor, "b out"]:
        """``y``: other features for the second factor (another modality, a neighbouring location); ``x`` when None."""
        return self.ending(self._summed(x, mask, y))

    def _summed(self, x: Tensor, mask: Tensor | None = None, y: Tensor | None = None) -> Float[Tensor, "b k"]:
        z = jcf(**self._operands(x, mask, y))
        return z if self.reduce == "sum" else z / _count(x, mask)

    def local(
        self,
        x: Float[Tensor, "b l d"],
        mask: Bool[Tensor, "b l"] | None = None,
        *,
        y: Float[Tensor, "b l d"] | None = None,
        grid: Grid | None = None,
    ) -> Float[Tensor, "b l out"]:
        return self.ending.local(self.summands(x, mask, y=y))

    def summands(
        self,
        x: Float[Tensor, "b l d"],
        mask: Bool[Tensor, "b l"] | None = None,
        *,
        y: Float[Tensor, "b l d"] | None = None,
    ) -> Float[Tensor, "b l k"]:
        """What each location adds to z before power and matrix: ``ending(summands(x).sum(1)) == forward(x)``. Unlike
        those of ``local`` they do not depend on the other locations, so without location l the sum is z − z_l.
        """
        z = jcf_local(**self._operands(x, mask, y))
        return z if self.reduce == "sum" else z / _count(x, mask)[..., None]

    def _operands(self, x: Tensor, mask: Tensor | None, y: Tensor | None) -> Operands:
        """What the contraction takes: features, coefficients p and q, projectors, offsets."""
        x = self.checked(x, mask)
        if y is not None:
            y = self.checked(y, mask)
            if y.shape != x.shape:
                raise ShapeError(f"the second input {tuple(y.shape)} must have the first one's shape {tuple(x.shape)}")
        h, g = self._assign(x, mask, y)
        uv, bias = self.uv, self._bias()
        if self.mixers and self._routes_pay(locations=x.shape[0] * x.shape[1]):
            uv, bias = self.unshared()
        elif self.mixers:
            first, second = self.mixers
            p, q = h.dense(self.codewords or 1), (g or h).dense(self.codewords or 1)
            # f may have a constant term: what is not a location must stay out of z all the same.
            h, g = Assigned(first(p), None).masked(mask), Assigned(second(q), None).masked(mask)
        h, g = self._dropped(h, g, len(uv))
        second_weights, second_index = (None, None) if g is None else g
        return Operands(x=x, h=h.weights, uv=uv, bias=bias, index=h.which, y=y, g=second_weights, index2=second_index)

    def _assign(self, x: Tensor, mask: Tensor | None, y: Tensor | None) -> tuple[Assigned, Assigned | None]:
        """h(x), and the second factor's assignment where it is another one."""
        if not self.codebooks:
            return Assigned(x.new_ones(*x.shape[:2], 1), None).masked(mask), None
        h = self.codebooks[0](x, mask)
        alike = y is None and len(self.codebooks) == 1
        return h, None if alike else self.codebooks[-1](x if y is None else y, mask)

    def _routes_pay(self, *, locations: int) -> bool:
        """Whether h touches fewer codewords than there are shared projectors, and often enough: then N combined ones,
        routed, cost less.
        """
        book = self.codebooks[0]
        assert isinstance(book, Codewords)
        linear = all(isinstance(mixer, Linear) for mixer in self.mixers)
        enough = locations >= ENOUGH * (self.codewords or 0)
        return linear and enough and book.sparse and (book.k or 0) < (self.projectors or 0)

    def unshared(self) -> tuple[Float[Tensor, "n d two_k"], Float[Tensor, "n two_k"] | None]:
        """One projector a codeword, U_n = Σ_r A_nr Ũ_r, and the offsets: the N projectors that R shared ones stand
        for.
        """
        bias = self._bias()
        if not self.mixers:
            return self.uv, bias
        a, b = (mixer.weight for mixer in self.mixers if isinstance(mixer, Linear))
        uv = torch.cat([torch.tensordot(a, self.u, 1), torch.tensordot(b, self.v, 1)], dim=-1)
        if bias is None:
            return uv, None
        return uv, torch.cat([a @ bias[:, : self.width], b @ bias[:, self.width :]], dim=-1)

    def assignments(self, x: Float[Tensor, "b l d"]) -> tuple[Float[Tensor, "b l n"], Float[Tensor, "b l n"]]:
        """h(x) of the first and of the second factor, dense."""
        h, g = self._assign(x, None, None)
        n = self.codewords or 1
        return h.dense(n), (g or h).dense(n)

    def _bias(self) -> Tensor | None:
        """[0 c]: offsets of both factors, as the contraction takes them."""
        return None if self.offset is None else nn.functional.pad(self.offset, (self.width, 0))

    def _dropped(self, h: Assigned, g: Assigned | None, n: int) -> tuple[Assigned, Assigned | None]:
        if not (self.training and self.dropout):
            return h, g
        keep = torch.rand(h.weights.shape[0], 1, n, device=h.weights.device) >= self.dropout
        keep = keep.to(h.weights.dtype) / (1 - self.dropout)

        def thinned(a: Assigned) -> Assigned:
            scale = keep if a.which is None else keep.expand(-1, a.which.shape[1], -1).gather(2, a.which)
            return Assigned(a.weights * scale, a.which)

        return thinned(h), None if g is None else thinned(g)

    @torch.no_grad()
    def reset_projectors(self) -> None:
        """Random projectors under which z of one unit-norm location has variance 1, whatever N, R, d and D are.

        A factor is Σ_j p_j ⟨u_j, x⟩; with independent entries of variance σ² its variance is σ² ‖p‖² ‖x‖², and z's is
        σ⁴ ‖p‖² ‖q‖² ‖x‖⁴. How large ‖p‖ is depends on how sharp the assignment is, so it is measured on random
        directions.
        """
        if self.uv.is_meta:
            return
        if self.start == "random":
            p, q = self._coefficients(nn.functional.normalize(torch.randn(1, 1024, self.in_dim), dim=-1))
            self.uv.normal_(std=(p.square().sum(-1) * q.square().sum(-1)).mean().item() ** -0.25)
            return
        # With orthonormal rows or columns, so that z starts as average pooling, its angles untouched if K ≥ d. With
        # K = d it is the identity: squares and powers then act on the features' own channels.
        shared = torch.empty(self.in_dim, self.width)
        self._share(nn.init.eye_(shared) if self.in_dim == self.width else nn.init.orthogonal_(shared))

    def _share(self, u: Float[Tensor, "d k"]) -> None:
        """One U for all projectors."""
        self.u.copy_(u * max(u.shape) ** 0.5)
        self._start_second_factor(self.u[0] if self.start == "square" else None)

    def _start_second_factor(self, v: Float[Tensor, "d _"] | None) -> None:
        """``v`` for every projector, or an offset of 1, and noise that tells projectors apart."""
        assert self.offset is not None
        self.offset.fill_(1.0 if v is None else 0.0)
        self.v.normal_(std=1e-2).add_(0.0 if v is None else v)

    def _coefficients(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """p and q of both factors, dense."""
        p, q = self.assignments(x)
        return (self.mixers[0](p), self.mixers[1](q)) if self.mixers else (p, q)

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

        Starts that square or weigh do so best in the backbone's own ``channels``: U begins with the K strongest, where
        there are as many.
        """
        points = sample(features, 100_000, seed=seed)
        if channels is not None and self.start in ("saliency", "square") and channels.shape[1] >= self.width:
            self._share(strongest(channels.to(self.uv), points.to(self.uv), self.width))
        for i, book in enumerate(self.codebooks):
            assert isinstance(book, Codewords)
            book.fit(points, seed=seed + i)
        x = points[:4096][None].to(self.uv)
        for side, p in zip((self.u, self.v), self._coefficients(x), strict=True):
            if side.data_ptr() == self.v.data_ptr() and self.start != "random":
                continue  # V stays near zero beside its offset of 1
            factor = sum((p[0, :, j, None] * x[0]) @ side[j] for j in range(len(side)))
            assert isinstance(factor, Tensor)
            side.div_(factor.square().mean().sqrt().clamp_min(1e-12))
        if self.start == "saliency":
            self._start_second_factor(saliency(points.to(self.uv))[:, None])
        elif self.start == "square":
            self._start_second_factor(self.u[0])
        if self.ending.needed:
            self.ending.fit(self._sums(features))

    def _sums(self, features: Features) -> Float[Tensor, "images out"]:
        sums, was_training = [], self.training
        self.eval()  # no dropout
        for tensor in features.split(64) if isinstance(features, Tensor) else features:
            if tensor.ndim != 3:
                raise DataError(
                    f"jcf with a power or whitening is fitted from images, tensors (images, locations, {self.in_dim}), "
                    f"got one of shape {tuple(tensor.shape)}"
                )
            sums += [self._summed(some.to(self.uv)) for some in tensor.split(64)]
        self.train(was_training)
        return torch.cat(sums)

    def flops(self, locations: int) -> int:
        """Of one image among many: what is done once a batch, combining shared projectors, is left out."""
        n = self.projectors or self.codewords or 1
        book = self.codebooks[0] if self.codebooks else None
        active = min(n, book.k or n) if isinstance(book, Codewords) else n
        assign = 2 * self.in_dim * (self.codewords or 0) * len(self.codebooks)
        mix = 4 * (self.codewords or 0) * (self.projectors or 0)
        each = assign + mix + 4 * active * self.in_dim * self.width + 2 * self.width
        return locations * each + self.ending.flops()

    def extra_repr(self) -> str:
        shared = f", projectors={self.projectors}" if self.projectors else ""
        return f"in_dim={self.in_dim}, out_dim={self.out_dim}, codewords={self.codewords}{shared}"


def _count(x: Tensor, mask: Tensor | None) -> Float[Tensor, "b 1"]:
    """Real locations of every image, at least 1 (an empty image stays zero)."""
    if mask is None:
        return x.new_full((len(x), 1), max(1, x.shape[1]))
    return mask.sum(1, keepdim=True).clamp_min(1).to(x.dtype)
