"""What a model costs after its backbone: parameters and FLOPs counted, time measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from secondsight.model import Embedder


@dataclass(frozen=True)
class HeadCost:
    parameters: int  # of reduction and pooling
    gflops: float  # of reduction and pooling, an image
    ms_head: float  # of reduction and pooling, an image
    ms_per_image: float  # of the whole model
    threads: int
    native: int  # numbers that the pooling gives, before the projection to the model's


def counted(model: Embedder) -> tuple[int, float]:
    """Parameters after the backbone, and GFLOPs of reduction and pooling for an image of the model's own size."""
    h, w = model.backbone.grid(model.size, model.size)
    reduction = 0 if model.reduction is None else 2 * h * w * model.reduction.in_dim * model.reduction.out_dim
    return model.parameters_after_backbone(), len(model.views) * (reduction + model.pooling.flops(h * w)) / 1e9


@torch.inference_mode()
def measure(model: Embedder, *, images: int = 4, turns: int = 5) -> HeadCost:
    """Count, and time one batch of ``images``; the best of ``turns``, which noise can only lengthen."""
    model.eval()
    device = next(model.parameters()).device
    size = model.size
    batch = torch.randint(256, (images, 3, size, size), dtype=torch.uint8, device=device)
    features, grid = model.backbone(batch), model.backbone.grid(size, size)
    parameters, gflops = counted(model)
    return HeadCost(
        parameters=parameters,
        gflops=gflops,
        ms_head=round(
            1e3 * len(model.views) * best(lambda: model.pool(features, grid=grid), turns, device) / images, 4
        ),
        ms_per_image=round(1e3 * best(lambda: model(batch), turns, device) / images, 4),
        threads=torch.get_num_threads(),
        native=model.pooling.native_dim,
    )


def best(action: Callable[[], object], turns: int, device: torch.device) -> float:
    """Seconds of the quickest of ``turns``, after one to warm up."""
    action()
    seconds = []
    for _ in range(turns):
        start = time.perf_counter()
        action()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    return min(seconds)
