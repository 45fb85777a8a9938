"""An exported file behind the queue: embeddings without torch. Boxes and explanations need features."""

from __future__ import annotations

import numpy as np

from secondsight.explain.geometry import Frame
from secondsight.inference.exported import Exported
from secondsight.inference.pictures import HEADROOM, seen
from secondsight.serve.network import NetworkQueue
from secondsight.serve.shared_cores import SharedCores
from secondsight.serve.shelf import Seen


class ExportedFile(NetworkQueue):
    def __init__(self, exported: Exported, *, batch: int):
        picture = exported.description.picture
        self.exported, self.size = exported, picture.size
        self.target = round(HEADROOM * picture.resize)
        self.embed = SharedCores(exported)
        super().__init__(batch=batch, workers=self.embed.workers)

    def run(self, pictures: list[np.ndarray], names: list[str]) -> list[Seen]:
        vectors = self.embed(np.stack([self.exported.pixels(pixels) for pixels in pictures]))
        described = self.exported.description.picture
        frames = [Frame((1, 1), seen(described, *p.shape[:2]), (p.shape[0], p.shape[1])) for p in pictures]
        return [Seen(vector=v, frame=f, name=n) for v, f, n in zip(vectors, frames, names, strict=True)]
