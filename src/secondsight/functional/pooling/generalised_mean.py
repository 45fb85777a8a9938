"""The generalised mean over locations: average at p = 1, maximum as p → ∞."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.autograd.function import once_differentiable


def generalised_mean(
    x: Float[Tensor, "b l d"],
    p: Float[Tensor, " p"],
    mask: Bool[Tensor, "b l"] | None = None,
    *,
    eps: float = 1e-6,
) -> Float[Tensor, "b d"]:
    """(1/L Σ_l max(x_l, eps)^p)^{1/p} of every channel; ``p`` is one number or one for each channel.

    Worked in logarithms, exp((logsumexp_l(p·log x_l) − log L) / p), which no p over- or underflows, and which is faster
    than powers. An image without locations gives zeros.
    """
    if x.shape[1] == 0:
        return x.sum(1)
    if torch.compiler.is_exporting():
        return _forward(x, p, mask, eps)[-1]
    z = _GeneralisedMean.apply(x, p, mask, eps)
    assert isinstance(z, Tensor)
    return z


def _forward(x: Tensor, p: Tensor, mask: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """log x, log Σ x^p, log L and the result."""
    logs = x.clamp_min(eps).log()
    if mask is None:
        count = torch.full((1, 1), x.shape[1], dtype=x.dtype, device=x.device)
    else:
        # Very low instead of −∞: an image with no location then gives e^very low = 0, and no gradient is NaN.
        logs = logs.masked_fill(~mask[..., None], 0.5 * torch.finfo(x.dtype).min / p.max().clamp_min(1))
        count = mask.sum(1, keepdim=True).clamp_min(1).to(x.dtype)
    total, count = (p * logs).logsumexp(1), count.log()
    return logs, total, count, ((total - count) / p).exp()


class _GeneralisedMean(torch.autograd.Function):
    """By hand: autograd would keep four tensors of the size of the features and pass over them ten times."""

    @staticmethod
    def forward(ctx, x: Tensor, p: Tensor, mask: Tensor | None, eps: float) -> Tensor:
        logs, total, count, z = _forward(x, p, mask, eps)
        ctx.save_for_backward(logs, p, total, count, z)
        ctx.lowest = math.log(eps) + 1e-5  # what was raised to eps, in the rounding of any type
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients: Tensor):  # pyright: ignore[reportIncompatibleMethodOverride]
        """∂z/∂x_l = z·w_l/x_l and ∂z/∂p = z/p·(Σ_l w_l log x_l − log z), with the weights w_l = x_l^p / Σ x^p."""
        logs, p, total, count, z = ctx.saved_tensors
        gz, gx, gp = gradients[0] * z, None, None
        if ctx.needs_input_grad[0]:
            gx = ((p - 1) * logs).sub_(total[:, None]).exp_().mul_(gz[:, None])  # w/x, in one exponential
            gx.masked_fill_(logs <= ctx.lowest, 0)
        if ctx.needs_input_grad[1]:
            weights = (p * logs).sub_(total[:, None]).exp_()
            gp = gz / p * (weights.mul_(logs).sum(1) - (total - count) / p)
            gp = gp.sum_to_size(p.shape)
        return gx, gp, None, None
