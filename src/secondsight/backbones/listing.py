"""What ``secondsight backbones`` shows: every number is computed from the network itself."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from secondsight.backbones.backbone import Backbone
from secondsight.backbones.registry import BACKBONES, build


def listing() -> list[dict[str, Any]]:
    """One row a backbone: parameters, input size, grid and dimension of the local features, GFLOPs, stages, weights."""
    return [_adapter(name) if name.endswith(":NAME") else _row(name) for name in BACKBONES]


def gflops(backbone: Backbone, size: int | None = None) -> float:
    """10⁹ floating-point operations (a multiply-add is two) for one image of ``size`` × ``size`` pixels."""
    size = backbone.preprocessing.size if size is None else size
    weight = next(backbone.parameters())
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        backbone.eval()(torch.zeros(1, 3, size, size, dtype=weight.dtype, device=weight.device))
    return counter.get_total_flops() / 1e9


def _row(name: str) -> dict[str, Any]:
    with torch.device("meta"):  # shapes without numbers: nothing is computed, nothing is allocated
        backbone = build(name, weights=None)
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
