"""Gradients that can be differentiated again, for operators whose own backward pass cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def plain_gradients(
    formula: Callable[..., Tensor | Sequence[Tensor | None]], inputs: Sequence[Any], grads: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """Gradients of the plain ``formula`` with respect to its ``inputs``, as autograd finds them; None where no
    gradient is wanted. For ``backward`` under ``create_graph=True``, at the plain price.
    """
    wanted = [t for t in inputs if isinstance(t, Tensor) and t.requires_grad]
    outputs = formula(*inputs)
    outputs = [outputs] if isinstance(outputs, Tensor) else outputs
    given = [(out, g) for out, g in zip(outputs, grads, strict=True) if out is not None and g is not None]
    of, at = zip(*given, strict=True)
    found = iter(torch.autograd.grad(of, wanted, at, create_graph=True, allow_unused=True))
    return tuple(next(found) if isinstance(t, Tensor) and t.requires_grad else None for t in inputs)
