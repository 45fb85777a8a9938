"""Sums of local features weighed by soft assignments: the heart of Fisher vectors and of NetVLAD.

    γ(x) = softmax(A r + Q r² + c)  with r = x − centre,      s₀ = Σ γ,   s₁ = Σ γ rᵀ,   s₂ = Σ γ (r²)ᵀ

over the real locations of an image, without s₂ where there is no Q. Forward and backward are each one walk over a few
images at a time, whose r and r² stay in the cache, and the gradient's four products come as two:

    dx = [dl γ] [A; ds₁] + 2 r ∘ ([dl γ] [Q; ds₂])      with dl the gradient of the logits
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from secondsight.functional.pooling.image_slices import image_slices
from secondsight.functional.pooling.plain_gradients import plain_gradients
from secondsight.functional.pooling.residuals import masked


def posterior_sums(
    x: Float[Tensor, "b l d"],
    mask: Bool[Tensor, "b l"] | None,
    linear: Float[Tensor, "n d"],
    square: Float[Tensor, "n d"] | None,
    constant: Float[Tensor, " n"],
    *,
    centre: Float[Tensor, " d"] | None = None,
) -> tuple[Float[Tensor, "b n"], Float[Tensor, "b n d"], Float[Tensor, "b n d"] | None]:
    """(s₀, s₁, s₂); ``centre`` is taken as a constant. Gradients that are themselves differentiated cost more."""
    if x.device.type != "cpu" or torch.compiler.is_exporting():
        return _plain(x, mask, centre, linear, square, constant)
    return _PosteriorSums.apply(x, mask, centre, linear, square, constant)  # pyright: ignore[reportReturnType]


def posteriors(
    r: Float[Tensor, "b l d"],
    mask: Bool[Tensor, "b l"] | None,
    linear: Float[Tensor, "n d"],
    square: Float[Tensor, "n d"] | None,
    constant: Float[Tensor, " n"],
) -> Float[Tensor, "b l n"]:
    """γ of centred features, zero where masked out."""
    logits = torch.nn.functional.linear(r, linear, constant)
    return masked((logits if square is None else logits + r.square() @ square.T).softmax(-1), mask)


def _plain(
    x: Tensor, mask: Tensor | None, centre: Tensor | None, linear: Tensor, square: Tensor | None, constant: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    r = x if centre is None else x - centre
    gamma = posteriors(r, mask, linear, square, constant)
    return gamma.sum(1), gamma.mT @ r, None if square is None else gamma.mT @ r.square()


class _PosteriorSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, mask, centre, linear, square, constant):
        (b, length, d), n = x.shape, len(linear)
        gamma, s1 = x.new_empty(b, length, n), x.new_empty(b, n, d)
        s2 = None if square is None else x.new_empty(b, n, d)
        for some in image_slices(x):
            r, r2 = _powers(x[some], centre, square)
            logits = torch.addmm(constant, r.flatten(0, 1), linear.T)
            if square is not None:
                logits.addmm_(r2.flatten(0, 1), square.T)
            weights = torch.softmax(logits.view(len(r), length, n), -1, out=gamma[some])
            if mask is not None:
                weights.masked_fill_(~mask[some, :, None], 0)
            torch.bmm(weights.mT, r, out=s1[some])
            if s2 is not None:
                torch.bmm(weights.mT, r2, out=s2[some])
        ctx.save_for_backward(x, mask, centre, linear, square, constant, gamma)
        return gamma.sum(1), s1, s2

    @staticmethod
    def backward(ctx, *grads):
        x, mask, centre, linear, square, constant, gamma = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: gradients that can be differentiated again
            return plain_gradients(_plain, (x, mask, centre, linear, square, constant), grads)
        d0, d1, d2 = grads
        dx = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        learns = any(ctx.needs_input_grad[3:])
        d_linear, d_constant = torch.zeros_like(linear), torch.zeros_like(constant)
        d_square = None if square is None else torch.zeros_like(square)
        for some in image_slices(x):
            r, r2 = _powers(x[some], centre, square)
            weights = gamma[some]
            dl = torch.baddbmm(d0[some, None], r, d1[some].mT)
            if square is not None:
                dl.baddbmm_(r2, d2[some].mT)
            dl.mul_(weights)
            dl.addcmul_(weights, dl.sum(-1, keepdim=True), value=-1)  # of the softmax: γ ∘ (dγ − Σ γ dγ)
            if learns:
                flat = dl.flatten(0, 1)
                d_linear.addmm_(flat.T, r.flatten(0, 1))
                d_constant += flat.sum(0)
                if d_square is not None:
                    d_square.addmm_(flat.T, r2.flatten(0, 1))
            if dx is not None:
                both = torch.cat([dl, weights], -1)
                torch.bmm(both, _stacked(linear, d1[some]), out=dx[some])
                if square is not None:
                    dx[some].addcmul_(r, torch.bmm(both, _stacked(square, d2[some]), out=r2), value=2)
        return dx, None, None, *((d_linear, d_square, d_constant) if learns else (None,) * 3)


def _powers(x: Tensor, centre: Tensor | None, square: Tensor | None) -> tuple[Tensor, Tensor]:
    """r, and r² where it is needed."""
    r = x if centre is None else x - centre
    return r, r if square is None else r.square()


def _stacked(shared: Float[Tensor, "n d"], own: Float[Tensor, "b n d"]) -> Float[Tensor, "b two_n d"]:
    return torch.cat([shared.expand(len(own), -1, -1), own], 1)
