"""x W at every location as the 1×1 convolution that it is.

The same sums as a product of matrices, by other kernels: on processors of AMD oneDNN's convolutions take half the time
of MKL's products, and so do their gradients, where locations are many enough to be worth packing W anew each time.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

MANY = 2048
"""Locations from which the convolution is the faster one; at 600 it is the slower."""


def pointwise(x: Float[Tensor, "b l c"], w: Float[Tensor, "c d"]) -> Float[Tensor, "b l d"]:
    """x W.

    >>> pointwise(torch.tensor([[[1.0, 2.0]]]), torch.tensor([[3.0], [4.0]]))
    tensor([[[11.]]])
    """
    ours = x.device.type == "cpu" and x.dtype == torch.float32 and torch.backends.mkldnn.is_available()
    if not ours or torch.compiler.is_compiling() or x.shape[0] * x.shape[1] < MANY:
        return x @ w
    return torch.conv2d(x[:, None].permute(0, 3, 1, 2), w.T[:, :, None, None]).permute(0, 2, 3, 1)[:, 0]
