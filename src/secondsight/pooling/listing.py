"""What ``secondsight poolings`` prints: every pooling as plain values, computed from the layers themselves."""

from __future__ import annotations

from typing import Any

import torch

from secondsight.pooling.registry import POOLINGS, build, family


def names() -> dict[str, tuple[str, ...]]:
    """Family → the names to show of it. Any other numbers work too."""
    return {name: cls.examples or (name,) for name, cls in POOLINGS.items()}


def listing(*, channels: int = 2048, reduce: int = 256, dim: int = 512, locations: int = 49) -> list[dict[str, Any]]:
    """One dict a name: parameters, sizes, GFLOPs per image, and what its class says of it.

    Args:
        channels: What the backbone gives.
        reduce: Channels after the reduction, which most poolings work on.
        dim: Numbers per image.
        locations: Local features per image.
    """
    return [_row(name, channels, reduce, dim, locations) for some in names().values() for name in some]


def _row(name: str, channels: int, reduce: int, dim: int, locations: int) -> dict[str, Any]:
    cls = POOLINGS[family(name)]
    reduced = channels if cls.skips_reduction else min(reduce, channels)
    with torch.device("meta"):
        pool = build(name, in_dim=reduced, out_dim=dim)
    reduction = 0 if cls.skips_reduction else channels * reduced
    return {
        "name": name,
        "family": cls.family,
        "parameters": reduction + sum(p.numel() for p in pool.parameters()),
        "native": pool.native_dim,
        "output": pool.out_dim,
        "gflops": (2 * locations * reduction + pool.flops(locations)) / 1e9,
        "additive": pool.additive,
        "summary": cls.summary,
        "paper": cls.paper,
        "expects": cls.expects,
    }
