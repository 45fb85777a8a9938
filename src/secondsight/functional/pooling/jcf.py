"""Joint codebook and factorisation: the contraction at the heart of the paper, at the speed of a matrix product.

Jacob, Picard, Histace, Klein, "Efficient Codebook and Factorization for Second Order Representation Learning". With
coefficients p(x), q(y) over n projectors (p = q = h(x), the assignment to the codebook, in JCF-N; p = Aᵀh(x), q =
Bᵀh(x) in JCF-N-R), equation (truly_final_eq) with optional offsets b, c reads

    z(x) = ( Σ_j p_j(x) (U_jᵀ x + b_j) ) ∘ ( Σ_j q_j(y) (V_jᵀ y + c_j) ),      z = Σ_x z(x) .

``uv`` holds [U_j V_j] side by side, so that p = q and x = y need one matrix product. The only intermediate kept for the
backward pass is the two factors, 2·D numbers a location; h ⊗ x (n·d numbers a location) is formed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from secondsight.functional.pooling.jcf_nearest import jcf_nearest
from secondsight.functional.pooling.plain_gradients import plain_gradients
from secondsight.functional.pooling.projectors import project, project_backward

ROWS = 1024
"""Locations worked on at a time. It bounds the memory and never changes the result beyond rounding."""


def jcf(
    x: Float[Tensor, "b l d"],
    h: Float[Tensor, "b l k"],
    uv: Float[Tensor, "n d two_o"],
    *,
    bias: Float[Tensor, "n two_o"] | None = None,
    index: Int[Tensor, "b l k"] | None = None,
    y: Float[Tensor, "b l d"] | None = None,
    g: Float[Tensor, "b l k2"] | None = None,
    index2: Int[Tensor, "b l k2"] | None = None,
    rows: int = ROWS,
) -> Float[Tensor, "b two_o//2"]:
    """The pooled z = Σ_l a(x_l) ∘ c(y_l), with a = Σ_j h_j (x U_j + b_j) and c = Σ_j g_j (y V_j + c_j).

    Args:
        x: Local features.
        h: Coefficients of the first factor, over all n projectors, or over the k that ``index`` names.
        uv: Projectors [U V]; the first ``o`` columns are U's.
        bias: Offsets [b c] of the two factors.
        index: Makes ``h`` sparse: ``h[..., i]`` belongs to projector ``index[..., i]``.
        y: Local features of the second factor; ``x`` when None.
        g: Coefficients of the second factor; ``h`` when None.
        index2: As ``index``, for ``g``; used with ``g`` only.
        rows: Locations worked on at a time.
    """
    if torch.compiler.is_exporting():
        if index is not None:  # `inference.routing` writes this operator in ONNX's words
            return _jcf(x, h, index, y, g, index2, uv, bias, rows, False)[0]
        return _exported(x, h, uv, bias, y, g)  # exporters know matrix products, not our operator
    x, h, uv, bias, y, g = _autocast(x, h, uv, bias, y, g)
    if index is not None and index.shape[-1] == 1 and y is None and g is None and not torch.compiler.is_compiling():
        return jcf_nearest(x, h, index, uv, bias)
    if index is not None:
        rows *= 8  # they are shared out among the projectors, and there is no h ⊗ x to hold
    keep = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (x, h, uv, bias, y, g))
    if not (torch.is_grad_enabled() or torch.compiler.is_compiling()):  # an operator imports torch's compiler
        return _factored(x, h, index, y, g, index2, uv, bias, rows, keep)[0]
    return _jcf(x, h, index, y, g, index2, uv, bias, rows, keep)[0]


def jcf_local(
    x: Float[Tensor, "b l d"],
    h: Float[Tensor, "b l k"],
    uv: Float[Tensor, "n d two_o"],
    *,
    bias: Float[Tensor, "n two_o"] | None = None,
    index: Int[Tensor, "b l k"] | None = None,
    y: Float[Tensor, "b l d"] | None = None,
    g: Float[Tensor, "b l k2"] | None = None,
    index2: Int[Tensor, "b l k2"] | None = None,
) -> Float[Tensor, "b l two_o//2"]:
    """z(x) of every location: ``jcf_local(…).sum(1) == jcf(…)``. Plain differentiable operations, L·n·d memory."""
    u, v = uv.chunk(2, dim=-1)
    b, c = (None, None) if bias is None else bias.chunk(2, dim=-1)
    if g is None:
        g, index2 = h, index
    a = _factor(x, h, index, u, b)
    return a * _factor(x if y is None else y, g, index2, v, c)


def _exported(x, h, uv, bias, y, g) -> Tensor:
    """Plain operations, few of them: (h ⊗ x) [U V] as one product where both factors see the same, else as two."""
    n, d, o = uv.shape[0], uv.shape[1], uv.shape[2] // 2

    def factors(x: Tensor, h: Tensor, columns: slice) -> Tensor:
        wide = (h[..., None] * x[:, :, None]).flatten(2) if n > 1 else h * x
        out = wide @ uv[..., columns].reshape(n * d, -1)
        return out if bias is None else out + h @ bias[:, columns]

    if y is None and g is None:
        a, c = factors(x, h, slice(0, 2 * o)).chunk(2, dim=-1)
    else:
        a = factors(x, h, slice(0, o))
        c = factors(x if y is None else y, h if g is None else g, slice(o, 2 * o))
    return (a * c).sum(1)


def _factor(x: Tensor, h: Tensor, index: Tensor | None, w: Tensor, bias: Tensor | None) -> Tensor:
    """(b, l, o): Σ_j h_j (x W_j + b_j), one projector after the other."""
    if index is not None and index.shape[-1] == 1 and not (torch.is_grad_enabled() or torch.compiler.is_compiling()):
        return _one_each(x, h, index[..., 0], w, bias)
    if index is not None:
        h = torch.zeros(*h.shape[:2], len(w), dtype=h.dtype, device=h.device).scatter(2, index, h)
    out = sum((h[..., j, None] * x) @ w[j] for j in range(len(w)))
    assert isinstance(out, Tensor)
    return out if bias is None else out + h @ bias


def _one_each(x: Tensor, h: Tensor, index: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
    """As ``_factor`` where each location has one projector: it alone is read and multiplied."""
    out = torch.empty(*index.shape, w.shape[-1], dtype=torch.result_type(x, w), device=x.device)
    for j in index.unique().tolist():
        mine = index == j
        out[mine] = h[mine] * (x[mine] @ w[j] if bias is None else x[mine] @ w[j] + bias[j])
    return out


def _autocast(*tensors: Tensor | None) -> tuple:
    """The tensors in autocast's type where autocast is on: it knows matrix products, and must be told of ours."""
    first = next(t for t in tensors if t is not None)
    if not torch.is_autocast_enabled(first.device.type):
        return tensors
    dtype = torch.get_autocast_dtype(first.device.type)
    return tuple(t if t is None else t.to(dtype) for t in tensors)


def _blocks(b: int, length: int, rows: int) -> Iterator[tuple[slice, slice]]:
    """Cover b images of ``length`` locations by blocks of whole images, or of parts of one where it alone is too
    long.
    """
    images = max(1, rows // max(1, length))
    for i in range(0, b, images):
        if images > 1 or length <= rows:
            yield slice(i, min(b, i + images)), slice(0, length)
        else:
            for s in range(0, length, rows):
                yield slice(i, i + 1), slice(s, min(length, s + rows))


class _Side(NamedTuple):
    """One factor: its features, its coefficients, and the columns of [U V] that are its projectors."""

    x: Tensor
    h: Tensor
    which: Tensor | None
    columns: slice


def _sides(x, h, index, y, g, index2, o: int) -> list[_Side]:
    """Both factors as one side where they see the same features and coefficients, else as two."""
    if y is None and g is None:
        return [_Side(x, h, index, slice(0, 2 * o))]
    first = _Side(x, h, index, slice(0, o))
    h2, which2 = (h, index) if g is None else (g, index2)
    return [first, _Side(x if y is None else y, h2, which2, slice(o, 2 * o))]


def _block(t: Tensor, images: slice, places: slice) -> Tensor:
    """(m, …): the block's locations as rows; a view whenever ``t`` is contiguous."""
    return t[images, places].reshape(-1, t.shape[-1])


def _factored(
    x: Tensor,
    h: Tensor,
    index: Tensor | None,
    y: Tensor | None,
    g: Tensor | None,
    index2: Tensor | None,
    uv: Tensor,
    bias: Tensor | None,
    rows: int,
    keep: bool,
) -> tuple[Tensor, Tensor]:
    """z, and the two factors [a c] of every location when ``keep`` asks for them (else an empty tensor)."""
    (b, length, _), o = x.shape, uv.shape[-1] // 2
    z = x.new_zeros(b, o)
    factors = x.new_empty(b if keep else 0, length, 2 * o)
    for images, places in _blocks(b, length, rows):
        m = (images.stop - images.start) * (places.stop - places.start)
        ac = _block(factors, images, places) if keep else x.new_empty(m, 2 * o)
        for side in _sides(x, h, index, y, g, index2, o):
            project(
                _block(side.x, images, places),
                _block(side.h, images, places),
                None if side.which is None else _block(side.which, images, places),
                uv[..., side.columns],
                None if bias is None else bias[:, side.columns],
                out=ac[:, side.columns],
            )
        z[images] += (ac[:, :o] * ac[:, o:]).view(-1, places.stop - places.start, o).sum(1)
    return z, factors


_jcf = torch.library.custom_op(
    "secondsight::jcf",
    _factored,
    mutates_args=(),
    schema="(Tensor x, Tensor h, Tensor? index, Tensor? y, Tensor? g, Tensor? index2, Tensor uv, Tensor? bias,"
    " int rows, bool keep) -> (Tensor, Tensor)",
)


@_jcf.register_fake
def _(x, h, index, y, g, index2, uv, bias, rows, keep):
    o = uv.shape[-1] // 2
    return x.new_empty(x.shape[0], o), x.new_empty(x.shape[0] if keep else 0, x.shape[1], 2 * o)


@torch.library.custom_op(
    "secondsight::jcf_backward",
    mutates_args=(),
    schema="(Tensor gz, Tensor factors, Tensor x, Tensor h, Tensor? index, Tensor? y, Tensor? g, Tensor? index2,"
    " Tensor uv, Tensor? bias, int rows, bool of_features, bool of_projectors)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _jcf_backward(
    gz: Tensor,
    factors: Tensor,
    x: Tensor,
    h: Tensor,
    index: Tensor | None,
    y: Tensor | None,
    g: Tensor | None,
    index2: Tensor | None,
    uv: Tensor,
    bias: Tensor | None,
    rows: int,
    of_features: bool,
    of_projectors: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients with respect to x, h, y, g, uv and bias; empty where there is no such input, or nobody asks."""
    o = uv.shape[-1] // 2
    gx, gh, gy, gg, guv, gbias = _gradients(x, h, y, g, uv, bias, of_features, of_projectors)
    targets = [(gx, gh), (gx if y is None else gy, gh if g is None else gg)]
    for block, (images, places) in enumerate(_blocks(x.shape[0], x.shape[1], rows)):
        ac, spread = factors[images, places], gz[images, None, :]
        gac = torch.cat([ac[..., o:] * spread, ac[..., :o] * spread], dim=-1).view(-1, 2 * o)
        for side, (g_features, g_coefficients) in zip(_sides(x, h, index, y, g, index2, o), targets, strict=False):
            project_backward(
                gac[:, side.columns],
                _block(side.x, images, places),
                _block(side.h, images, places),
                None if side.which is None else _block(side.which, images, places),
                uv[..., side.columns],
                None if bias is None else bias[:, side.columns],
                gx=_block(g_features, images, places) if of_features else None,
                gh=_block(g_coefficients, images, places),
                gw=guv[..., side.columns] if of_projectors else None,
                gbias=None if bias is None else gbias[:, side.columns],
                first=block == 0,
            )
    return gx, gh, gy, gg, guv, gbias


def _gradients(x, h, y, g, uv, bias, of_features: bool, of_projectors: bool) -> tuple[Tensor, ...]:
    """Zeros to add the gradients to; for the projectors' room that the first block writes to."""
    features = [t if of_features else None for t in (x, y)]
    wanted = (features[0], h, features[1], g, uv if of_projectors else None, bias)
    nothing = bool(x.numel() == 0)  # while tracing it is a symbol
    return tuple(_room(t, like=x, zeros=t is not uv or nothing) for t in wanted)


def _room(t: Tensor | None, *, like: Tensor, zeros: bool) -> Tensor:
    # torch.zeros, not zeros_like: the blocks of a gradient must be views, whatever the strides of the input.
    make = torch.zeros if zeros else torch.empty
    return make(0 if t is None else t.shape, dtype=like.dtype, device=like.device)


@_jcf_backward.register_fake
def _(gz, factors, x, h, index, y, g, index2, uv, bias, rows, of_features, of_projectors):
    return _gradients(x, h, y, g, uv, bias, of_features, of_projectors)


def _setup(ctx, inputs, output) -> None:
    *tensors, rows, _ = inputs
    ctx.save_for_backward(output[1], *tensors)
    ctx.rows = rows


def _backward(ctx, gz, _):
    factors, x, h, index, y, g, index2, uv, bias = ctx.saved_tensors
    if torch.is_grad_enabled():  # create_graph=True: gradients that can be differentiated again, at the plain price
        return *plain_gradients(_plain, (x, h, index, y, g, index2, uv, bias), (gz,)), None, None
    wanted = ctx.needs_input_grad
    gradients = iter(
        _jcf_backward(
            gz.contiguous(), factors, x, h, index, y, g, index2, uv, bias, ctx.rows, wanted[0] or wanted[3], wanted[6]
        )
    )
    of_all = (None if i in (2, 5) else next(gradients) for i in range(8))  # indices have none
    return *(gradient if asked else None for gradient, asked in zip(of_all, wanted, strict=False)), None, None


def _plain(x, h, index, y, g, index2, uv, bias) -> Tensor:
    return jcf_local(x, h, uv, bias=bias, index=index, y=y, g=g, index2=index2).sum(1)


_jcf.register_autograd(_backward, setup_context=_setup)
