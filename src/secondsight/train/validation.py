"""Retrieval on the held-out classes: every process embeds its share, the figures are computed once over all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from secondsight.data.loading.batches import BatchLoader, Rows
from secondsight.data.loading.samplers import Sequential
from secondsight.evaluate import retrieval
from secondsight.model import mean
from secondsight.train.step import Network, gather


def embed(
    fabric: Fabric, network: Network, views: Sequence[Rows], *, batch: int, workers: int | None = None
) -> tuple[Tensor, Tensor]:
    """Un-normalised embeddings and the images' numbers, in order, the same on every process.

    ``views`` are rows of the same images; an embedding is the mean of an image's views. Images that cannot be read are
    left out.
    """
    looks = [_embed(fabric, network, rows, batch=batch, workers=workers) for rows in views]
    assert all(torch.equal(indices, looks[0][1]) for _, indices in looks)
    return mean([z for z, _ in looks]), looks[0][1]


@torch.no_grad()
def _embed(fabric: Fabric, network: Network, rows: Rows, *, batch: int, workers: int | None) -> tuple[Tensor, Tensor]:
    order = Sequential(len(rows), batch * fabric.world_size, rank=fabric.global_rank, world_size=fabric.world_size)
    was_training, device = network.training, fabric.device
    network.eval()
    z, indices = [torch.zeros(0, network.model.dim, device=device)], [torch.zeros(0, dtype=torch.int64, device=device)]
    for some in BatchLoader(rows, batches=order, workers=workers):
        if len(some):
            z.append(network(fabric.to_device(some.images)).float())
            indices.append(some.indices.to(device))
    network.train(was_training)
    return _in_order(fabric, torch.cat(z), torch.cat(indices), most=-(-len(rows) // fabric.world_size) + len(order))


def _in_order(fabric: Fabric, z: Tensor, indices: Tensor, *, most: int) -> tuple[Tensor, Tensor]:
    """Every process's rows, sorted by image. Processes may have unequal numbers of rows, up to ``most``."""
    if fabric.world_size > 1:
        spare = most - len(z)
        z = gather(fabric, torch.cat([z, z.new_zeros(spare, z.shape[1])]))
        indices = gather(fabric, torch.cat([indices, indices.new_full((spare,), -1)]))
        z, indices = z[indices >= 0], indices[indices >= 0]
    order = indices.argsort()
    return z[order], indices[order]


def judge(embeddings: Tensor, labels: np.ndarray, ks: Sequence[int]) -> dict[str, float]:
    """``recall@K`` for each K, and ``map@r``. Ties count against the query: a collapsed embedding scores near zero."""
    report = retrieval(embeddings, labels, ks=ks, bootstrap=0, progress=lambda share: None)
    return {name: value for name, value in report.figures.items() if name.startswith(("recall@", "map@"))}
