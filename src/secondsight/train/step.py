"""One training step that is the same for one chunk or many, one process or many.

The loss sees the embeddings z of the whole batch, of all chunks and all processes. Its gradient g = ∂loss/∂z is
computed first; then each chunk's part of g is sent back through the network (Gao et al. 2021, "GradCache"), so that

    ∂loss/∂θ = Σ_w Σ_chunks (∂z_chunk/∂θ)ᵀ g_chunk.

DDP averages gradients over its W processes where this asks for their sum, so g is multiplied by W. The loss's own
parameters see the whole batch on every process; their gradients are equal already, and are averaged only to keep
rounding from driving them apart.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from secondsight.losses import Loss
from secondsight.model import Embedder


class Network(nn.Module):
    """What fabric wraps: from images, from cached activations of the frozen prefix, or from the kept sums of what does
    not learn (``summed``; see ``train.kept_sums``) to un-normalised embeddings.
    """

    def __init__(self, model: Embedder, *, cached: bool, size: tuple[int, int], summed: bool = False):
        super().__init__()
        self.model, self.cached, self.size, self.summed = model, cached, size, summed

    def forward(self, x: Tensor) -> Tensor:
        if self.summed:
            return self.model.ended(x)
        backbone = self.model.backbone
        features = backbone.live_part(x) if self.cached else backbone(x)
        return self.model.pool(features, grid=backbone.grid(*self.size))


@dataclass(frozen=True)
class Outcome:
    """What a step found out, before anything is updated."""

    loss: float
    z: Tensor  # (B, D) of the global batch
    gradient: Tensor  # of the loss wrt z, the same shape

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and bool(self.z.isfinite().all()) and bool(self.gradient.isfinite().all())


def seed_everything(seed: int, *keys: int) -> None:
    """Seed every global generator from (seed, keys): what a step draws depends on its number alone."""
    state = int(np.random.SeedSequence((seed, *keys)).generate_state(1)[0])
    random.seed(state)
    np.random.seed(state)  # noqa: NPY002 code that we call may use the global generator
    torch.manual_seed(state)


def gather(fabric: Fabric, local: Tensor) -> Tensor:
    """The rows of every process, in the order of their ranks; all must have equally many."""
    if fabric.world_size == 1:
        return local
    gathered = fabric.all_gather(local)
    assert isinstance(gathered, Tensor)
    return gathered.flatten(0, 1)


def forward_backward(
    fabric: Fabric, network: nn.Module, loss: Loss, chunks: Sequence[Tensor], labels: Tensor, *, seed: Sequence[int]
) -> Outcome:
    """Put the gradients of the global batch's loss in every parameter's ``grad``; none where the loss is not finite.

    Args:
        network: wrapped by ``fabric``.
        chunks: the inputs of this process; one chunk keeps its graph, more are run twice.
        labels: of the global batch.
        seed: what dropout draws from; each chunk draws the same when it is run again.
    """
    alone = len(chunks) == 1
    with torch.set_grad_enabled(alone):
        parts = [_run(fabric, network, chunk, (*seed, number)) for number, chunk in enumerate(chunks)]
    z = gather(fabric, torch.cat([part.detach() for part in parts])).requires_grad_()
    seed_everything(*seed)
    value = loss(z, labels)
    if value.requires_grad and bool(value.isfinite()):
        value.backward()
    gradient = torch.zeros_like(z) if z.grad is None else z.grad
    outcome = Outcome(float(value.detach()), z.detach(), gradient)
    if not outcome.finite:
        return outcome
    _average(fabric, loss)
    share = len(z) // fabric.world_size
    mine = (gradient * fabric.world_size)[fabric.global_rank * share :][:share]
    for number, g in enumerate(mine.split([len(chunk) for chunk in chunks])):
        with fabric.no_backward_sync(network, enabled=number < len(chunks) - 1):  # pyright: ignore[reportArgumentType]
            part = parts[0] if alone else _run(fabric, network, chunks[number], (*seed, number))
            fabric.backward(part, gradient=g)
    return outcome


def _run(fabric: Fabric, network: nn.Module, chunk: Tensor, seed: Sequence[int]) -> Tensor:
    seed_everything(*seed, fabric.global_rank)
    return network(chunk)


def _average(fabric: Fabric, loss: Loss) -> None:
    if fabric.world_size == 1:
        return
    for parameter in loss.parameters():
        if parameter.grad is not None:
            parameter.grad.copy_(fabric.all_reduce(parameter.grad, reduce_op="mean"))  # pyright: ignore[reportArgumentType]
