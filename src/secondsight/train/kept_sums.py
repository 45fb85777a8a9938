"""Where only a pooling's readout learns, everything before it is computed once for every image and kept.

On frozen features JCF spends its time on projectors that do not learn. Its readout, the gains of codewords and the last
matrix, sees no more of an image than ``pooling.kept_sums``: a few thousand numbers that replace the activations for
the rest of the run. They lie in an unnamed file that is gone when the process ends. They are made block by block in the
order of the images, so they are the same bits whenever they are made, and a resumed run continues exactly.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from secondsight.data.loading.batches import BatchLoader, RowSource
from secondsight.progress import track
from secondsight.train.assembly import RunParts
from secondsight.train.run_inputs import cache_directory

BLOCK = 256
"""Images at a time: enough of them for every codeword's product to be a large one."""

LARGER = 4
"""Sums that take more than this many times the activations' room are not kept: reading them would cost the gain."""

RESERVE = 1 << 30  # bytes of the disk that are left free


@dataclass(frozen=True, eq=False)
class KeptSums:
    """Rows of sums in the place of the activations that they were made from."""

    source: RowSource
    rows: np.ndarray  # (n, …) float32, memory-mapped
    there: np.ndarray  # (n,) bool: false where there was nothing to read

    @property
    def labels(self) -> np.ndarray | None:
        return self.source.labels

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, index: int) -> str:
        return self.source.name(index)

    def empty(self, count: int) -> Tensor:
        return torch.empty((count, *self.rows.shape[1:]))

    def read_into(self, row: Tensor, index: int, epoch: int) -> None:
        if not self.there[index]:
            self.source.read_into(self.source.empty(1)[0], index, epoch)  # it says what is wrong with that image
        row.copy_(torch.from_numpy(self.rows[index]))


def keep_sums(parts: RunParts, say: Callable[[str], None] = lambda words: None) -> bool:
    """Put sums in the place of the run's activations, where that gives the same numbers sooner; whether it was done.

    To be called when the weights are those that the run goes on with: fitted, or restored.
    """
    made = parts.inputs
    if not made.cached or not only_readout_learns(parts):
        return False
    example = _sums(parts, made.train.empty(1).zero_())
    each, stored = 4 * example[0].numel(), 2 * made.train.empty(1).numel()
    sources = list({id(source): source for source in (made.train, made.plain, *made.validation)}.values())
    place = cache_directory(parts.recipe)
    needed = each * sum(map(len, sources))
    if each > LARGER * stored:
        return False
    if needed + RESERVE > shutil.disk_usage(place).free:
        say(f"{place}: {needed / 1e9:.1f} GB to keep the sums of frozen layers are not free; training will be slower")
        return False
    kept = {id(source): _summed(parts, source, tuple(example.shape[1:]), place) for source in sources}
    parts.inputs = replace(
        made,
        train=kept[id(made.train)],
        plain=kept[id(made.plain)],
        validation=tuple(kept[id(source)] for source in made.validation),
        summed=True,
    )
    getattr(parts.network, "module", parts.network).summed = True
    return True


def only_readout_learns(parts: RunParts) -> bool:
    """Whether the network is frozen to its last layer, and of the rest only the pooling's readout learns."""
    pooling = parts.model.pooling
    if parts.model.backbone.frozen != "all" or not pooling.keeps_sums:
        return False
    readout = {id(parameter) for parameter in pooling.readout_parameters()}
    return all(id(p) in readout for p in parts.model.parameters() if p.requires_grad)


@torch.no_grad()
def _sums(parts: RunParts, rows: Tensor) -> Tensor:
    model = parts.model
    with parts.fabric.autocast():
        features = model.reduced(model.backbone.live_part(rows.to(parts.fabric.device)))
        return model.pooling.kept_sums(features, grid=model.backbone.grid(*parts.inputs.size)).float().cpu()


def _summed(parts: RunParts, source: RowSource, shape: tuple[int, ...], place: Path) -> KeptSums:
    with tempfile.TemporaryFile(dir=place) as file:  # the mapping holds it open
        file.truncate(len(source) * math.prod(shape) * 4)
        rows = np.memmap(file, np.float32, mode="r+", shape=(len(source), *shape))
    there = np.zeros(len(source), bool)
    loader = BatchLoader(source, batch_size=BLOCK, workers=parts.recipe.data.workers, patient=True)
    for batch in track(loader, "summing up what does not learn", total=len(loader)):
        if len(batch):
            rows[batch.indices.numpy()] = _sums(parts, batch.images).numpy()
            there[batch.indices.numpy()] = True
    return KeptSums(source, rows, there)
