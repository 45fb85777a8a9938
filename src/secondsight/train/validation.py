"""Retrieval on the held-out classes: every process embeds its share, the figures are computed once over all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from secondsight import embed as road
from secondsight.data.loading.batches import RowSource
from secondsight.evaluate import retrieval
from secondsight.evaluation_mode import evaluating
from secondsight.train.step import Network, gather


def embed(
    fabric: Fabric, network: Network, sources: Sequence[RowSource], *, batch: int, workers: int | None = None
) -> tuple[Tensor, Tensor]:
    """Un-normalised embeddings and the images' numbers, in order, the same on every process.

    ``sources`` are rows of the same images, one for each view. Images that cannot be read are left out.
    """
    device = fabric.device
    alone = getattr(network, "module", network)  # DDP would wait in every forward for processes with fewer batches

    def forward(rows: Tensor) -> Tensor:
        with fabric.autocast():
            return alone(rows)

    inputs = road.Inputs(tuple(sources), forward)
    with evaluating(network):
        found = road.stream(
            inputs,
            batch_size=batch,
            block=batch,  # the smallest share that processes can take in turn
            workers=workers,
            device=device,
            rank=fabric.global_rank,
            world_size=fabric.world_size,
        )
        blocks = [block for block in found if len(block.indices)]
    z = torch.from_numpy(np.concatenate([np.zeros((0, network.model.dim), np.float32), *(b.vectors for b in blocks)]))
    indices = torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *(b.indices for b in blocks)]))
    most = -(-len(inputs) // (batch * fabric.world_size)) * batch
    return _in_order(fabric, z.to(device), indices.to(device), most=most)


def _in_order(fabric: Fabric, z: Tensor, indices: Tensor, *, most: int) -> tuple[Tensor, Tensor]:
    """Every process's rows, sorted by image. Processes may have unequal numbers of rows, up to ``most``."""
    if fabric.world_size > 1:
        spare = most - len(z)
        z = gather(fabric, torch.cat([z, z.new_zeros(spare, z.shape[1])]))
        indices = gather(fabric, torch.cat([indices, indices.new_full((spare,), -1)]))
        z, indices = z[indices >= 0], indices[indices >= 0]
    order = indices.argsort()
    return z[order], indices[order]


def figures(embeddings: Tensor, labels: np.ndarray, ks: Sequence[int]) -> dict[str, float]:
    """Every figure by its name. Ties count against the query: a collapsed embedding scores near zero."""
    return retrieval(embeddings, labels, ks=ks, bootstrap=0, progress=lambda share: None).figures
