"""Files to vectors of wholes and of parts, by one pass of the network."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from secondsight.data.loading.decode import DecodeError
from secondsight.explain import from_features
from secondsight.explain.geometry import WHOLE, Frame
from secondsight.index import queries, scan
from secondsight.index.parts import Parts
from secondsight.model import VIEWS, Embedder

if TYPE_CHECKING:
    from secondsight.index.collection import Index
    from secondsight.index.growth import Encoder

BLOCK = 1024
"""Pictures between two commits, where parts are made for items that are here already."""


class Described:
    """Runs in a model's place: gives the vectors of whole pictures, and sets their parts aside."""

    def __init__(self, model: Embedder, count: int):
        self.model, self.count = model, count
        self.made: list[tuple[np.ndarray, np.ndarray]] = []  # vectors and boxes, on what the network saw

    @torch.no_grad()
    def __call__(self, batch: Tensor) -> Tensor:
        model, grid = self.model, self.model.backbone.grid(*batch.shape[-2:])
        views = torch.stack([model.backbone(VIEWS[view](batch)) for view in model.views], 1)
        wholes = []
        for features in views:
            places = from_features(model, features, frame=Frame(grid))
            found = places.parts(self.count - 1)
            self.made.append((np.stack([p.vector for p in found]), np.array([p.box for p in found])))
            wholes.append(places.unit)
        return torch.stack(wholes).float()


def encoder(index: Index, parts: Parts) -> Encoder:
    """What ``growth`` embeds files with: it keeps the parts of each content before the item can be committed."""

    def encode(paths: Sequence[str]) -> tuple[np.ndarray, np.ndarray, dict[int, DecodeError]]:
        before = {path: _status(path) for path in paths}
        run = Described(index.model(), parts.count)
        vectors, numbers, errors = queries.plain_encoder(index, run)(paths)
        made = {}
        for file, (found, boxes) in zip((paths[int(n)] for n in numbers), run.made, strict=True):
            # The file as it is now is what was decoded if it has not changed since before.
            try:
                content = scan.content(file)
            except DecodeError:
                continue
            if before[file] is not None and _status(file) == before[file]:
                made[content.hash] = found, _on_original(index.model(), boxes, content)
        parts.keep(made)
        return vectors, numbers, errors

    return encode


def fill(index: Index, parts: Parts) -> int:
    """Make the parts of items that have none, where their files are still the same; gives for how many."""
    encode, missing = encoder(index, parts), parts.current().missing
    for some in _blocks(missing):
        files = [item.path for item in (index.item(int(i)) for i in some) if item.path and os.path.isfile(item.path)]
        if files:
            encode(files)
    return len(missing) - len(parts.current().missing)


def _blocks(ids: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(ids), BLOCK):
        yield ids[start : start + BLOCK]


def _on_original(model: Embedder, boxes: np.ndarray, content: scan.Content) -> np.ndarray:
    """Boxes on what the network saw → on the whole original."""
    seen = WHOLE
    if content.width and content.height:
        seen = getattr(model.transform, "seen", lambda height, width: WHOLE)(content.height, content.width)
    left, top, right, bottom = seen
    origin, size = np.array([left, top, left, top]), np.array([right - left, bottom - top] * 2)
    return np.clip(origin + boxes * size, 0, 1).astype(np.float32)


def _status(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns
