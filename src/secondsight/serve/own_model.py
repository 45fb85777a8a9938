"""The index's own model behind the queue: embeddings, with the features that boxes and explanations need."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from secondsight.explain import geometry
from secondsight.model import VIEWS, Embedder, mean
from secondsight.serve.kept import Kept
from secondsight.serve.network import NetworkQueue
from secondsight.serve.one_dnn import OneDnn
from secondsight.serve.shared_cores import WORKERS, SharedCores
from secondsight.serve.shelf import Seen
from secondsight.serve.torch_cores import limited


class OwnModel(NetworkQueue):
    """``runtime`` embeds in the model's place; features are then computed for those pictures that are asked about.

    On a CPU several batches are computed at a time, each on its share of the cores. Cores that work on one batch wait
    for each other after every layer, and here one of them is always late: it also decodes, answers and searches.
    """

    def __init__(
        self, model: Embedder, *, batch: int, device: str = "cpu", runtime: Callable[[Tensor], Tensor] | None = None
    ):
        self.model = self.embedder = model.to(device).eval()
        self.size, self.target = model.size, model.transform.target
        self.device, self.runtime = device, runtime
        cores = torch.get_num_threads()
        workers = min(WORKERS, cores) if device == "cpu" and runtime is None else 1
        exported = getattr(runtime, "exported", None)
        if exported is not None:
            embed = SharedCores(exported)
            self.runtime = lambda images: torch.from_numpy(embed(images.numpy()))
            workers = embed.workers
        self.cores = max(1, cores // workers)
        super().__init__(batch=batch, workers=workers)

    def _work(self) -> None:
        with limited(self.cores):
            super()._work()

    @torch.no_grad()
    def run(self, pictures: list[np.ndarray], names: list[str]) -> list[Seen]:
        """As ``embed.encode``, but with the features of every picture: what explanations and boxes need."""
        model, transform = self.embedder, self.embedder.transform
        images = torch.stack([transform(pixels) for pixels in pictures])
        grid = model.backbone.grid(*images.shape[-2:])
        if self.runtime is None:
            features = self._features(images)
            pooled = [model.pool(view, grid=grid) for view in features.unbind(1)]
            vectors = model.normalise(mean(pooled))
            of = list(features)
        else:
            vectors = self.runtime(images)
            of = [lambda one=one: self._features(one[None])[0] for one in images]
        vectors = vectors.float().cpu().numpy()
        return [
            Kept(
                model=model,
                given=of[i],
                vector=vectors[i],
                frame=geometry.frame(transform, grid, *pictures[i].shape[:2]),
                name=names[i],
            )
            for i in range(len(pictures))
        ]

    @torch.no_grad()
    def _features(self, images: Tensor) -> Tensor:
        """(b, v, l, c): local features of every view."""
        images = images.to(self.device)
        with OneDnn():
            return torch.stack([self.embedder.backbone(VIEWS[view](images)) for view in self.embedder.views], dim=1)
