"""Retrieval on the held-out classes: every process embeds its share, the figures are computed once over all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor

from secondsight.train.feeding import Feed
from secondsight.train.step import Network, gather


@torch.no_grad()
def embed(
    fabric: Fabric, network: Network, feed: Feed, *, batch: int, tick: Callable[[int], None] = lambda n: None
) -> Tensor:
    """Un-normalised embeddings of every image of ``feed``, in order, the same on every process."""
    was_training = network.training
    network.eval()
    n = len(feed)
    shares = np.array_split(np.arange(n), fabric.world_size)
    mine = shares[fabric.global_rank]
    rows = []
    for x in feed.batches([mine[i : i + batch] for i in range(0, len(mine), batch)], epoch=0):
        rows.append(network(fabric.to_device(x)).float())
        tick(len(x) * fabric.world_size)
    network.train(was_training)
    longest = len(shares[0])
    local = torch.cat(rows) if rows else torch.zeros(0, network.model.dim, device=fabric.device)
    padded = torch.cat([local, local.new_zeros(longest - len(local), local.shape[1])])
    gathered = gather(fabric, padded).unflatten(0, (fabric.world_size, longest))
    return torch.cat([part[: len(share)] for part, share in zip(gathered, shares, strict=True)])


def judge(embeddings: Tensor, labels: np.ndarray, ks: Sequence[int]) -> dict[str, float]:
    """``recall@K`` for each K, and ``map@r``. Ties count against the query, so a collapsed embedding scores near zero."""
    from secondsight.functional.ranks import positive_ranks

    everything = torch.arange(len(labels), device=embeddings.device)
    ranks = positive_ranks(embeddings, torch.as_tensor(labels, device=embeddings.device), everything, everything)
    found = ranks.positives > 0
    figures = {f"recall@{k}": float((ranks.first[found] <= k).double().mean()) for k in ks}
    return {**figures, "map@r": float(ranks.map_at_r[found].mean())}
