"""1×1 convolutions of small batches by oneDNN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


class OneDnn(TorchFunctionMode):
    """Inside it, 1×1 convolutions run by oneDNN, as all others do anyway.

    On one thread and for less than 16 pictures torch takes a loop of its own, which is twice as slow:
    EfficientNet-Lite0 then needs half as much time again for a picture.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.conv2d and not kwargs and len(args) == 7 and _suits(*args):
            x, weight, bias, stride, padding, dilation, groups = args
            return torch.mkldnn_convolution(x, weight, bias, padding, stride, dilation, groups)
        return func(*args, **kwargs or {})


def _suits(x: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, *_: Any) -> bool:
    return (
        weight.shape[-2:] == (1, 1)
        and not isinstance(padding, str)
        and x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
    )
