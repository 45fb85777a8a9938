"""What ``secondsight backbones`` shows: every number is computed from the network itself."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from secondsight.backbones.backbone import Backbone
from secondsight.backbones.registry import BACKBONES, build


def listing() -> list[dict[str, Any]]:
    """One row a backbone: parameters, input size, grid and dimension of the local features, GFLOPs, stages, weights."""
    return [_adapter(name) if name.endswith(":NAME") else _row(name) for name in BACKBONES]


def gflops(backbone: Backbone, size: int | None = None) -> float:
    """10⁹ floating-point operations (a multiply-add is two) of its convolutions for one square image."""
    size = backbone.preprocessing.size if size is None else size
    operations = []

    def count(convolution: nn.Module, _, output: Tensor) -> None:
        assert isinstance(convolution, nn.Conv2d)
        operations.append(2 * convolution.weight.numel() * output.shape[-2] * output.shape[-1])

    hooks = [module.register_forward_hook(count) for module in backbone.modules() if isinstance(module, nn.Conv2d)]
    backbone.eval()(torch.empty(0, 3, size, size))  # a batch of no images: all the shapes, none of the work
    for hook in hooks:
        hook.remove()
    return sum(operations) / 1e9


def freeze_like(name: str, stage: str | None) -> str | None:
    """Where to freeze ``name`` when a recipe freezes another network at ``stage``.

    There as well if it has such a stage, else so that its last stage learns; an adapter, which may be impossible to cut
    elsewhere, as a whole.

    >>> freeze_like("efficientnet-lite2", "blocks5"), freeze_like("vgg16", "blocks5"), freeze_like("vgg16", "all")
    ('blocks5', 'conv4', 'all')
    """
    if stage is None or ":" in name:
        return stage and "all"
    stages = _without_weights(name).stages
    return stage if stage in {*stages, "all"} else stages[-2]


def _without_weights(name: str) -> Backbone:
    with torch.device("meta"):  # no time spent on random numbers that nobody looks at
        return build(name, weights=None)


def _row(name: str) -> dict[str, Any]:
    backbone = _without_weights(name).to_empty(device="cpu")
    size = backbone.preprocessing.size
    return {
        "name": name,
        "parameters": sum(parameter.numel() for parameter in backbone.parameters()),
        "size": size,
        "grid": list(backbone.grid(size, size)),
        "out_dim": backbone.out_dim,
        "gflops": round(gflops(backbone), 3),
        "stages": list(backbone.stages),
        "preprocessing": backbone.preprocessing.as_dict(),
        "weights": backbone.default_weights or "file",
    }


def _adapter(name: str) -> dict[str, Any]:
    unknown = dict.fromkeys(("parameters", "size", "grid", "out_dim", "gflops", "preprocessing"))
    return {"name": name, **unknown, "stages": ["its modules"], "weights": "hub"}
