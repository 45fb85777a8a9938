"""Embeddings in bulk: a model over a set of images, with progress, without the files that cannot be read, resumable."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from rich.progress import Progress, TaskID
from torch import nn

from secondsight import files
from secondsight.data.imageset import ImageSet
from secondsight.data.loading import transforms
from secondsight.data.loading.batches import BatchLoader
from secondsight.data.loading.failures import Failures
from secondsight.data.loading.loader import Pictures
from secondsight.data.loading.transforms import Transform
from secondsight.errors import ConfigError, DataError, RunError
from secondsight.model import Embedder
from secondsight.progress import bar

BLOCK = 2048
"""Images worked on between two writes: what a killed process loses at most."""


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Vectors of the images that could be read, and which images these are."""

    vectors: np.ndarray  # (n, D) float32
    labels: np.ndarray | None  # (n,) int64
    indices: np.ndarray  # (n,) int64, numbers in the set
    failures: Failures = field(default_factory=Failures)

    def __len__(self) -> int:
        return len(self.vectors)


def embed(
    model: nn.Module,
    images: ImageSet,
    transform: Transform | None = None,
    *,
    batch_size: int = 64,
    workers: int | None = None,
    device: str | torch.device = "cpu",
    strict: bool = False,
    out: str | Path | None = None,
) -> Embeddings:
    """Embed every image, in order.

    Args:
        model: Maps uint8 RGB (B, 3, S, S) to (B, D); an ``Embedder``, usually.
        images: What to embed.
        transform: From a picture to (3, S, S); must be deterministic. None for the embedder's own, by which it was
            judged when it was trained.
        batch_size: Images at once.
        workers: Decoding threads; None chooses.
        device: Where the model runs.
        strict: A file that cannot be read is an error; otherwise it is set aside and counted.
        out: A directory for blocks of embeddings as they come: a run that was stopped goes on from there.
    """
    if len(images) == 0:
        raise DataError(f"{images.root}: no images to embed")
    transform = look(model) if transform is None else transform
    if not transform.deterministic:
        raise ConfigError(f"embedding needs a transform without chance, not {transform.key}: 'resize' or 'resize-crop'")
    store = None if out is None else _Store(Path(out), _identity(model, images, transform))
    was_training = model.training
    model.to(device).eval()
    blocks: list[_Block] = []
    try:
        with bar(unit="images") as progress:
            told = _Told(progress, progress.add_task("embedding", total=len(images), note=""))
            for number, start in enumerate(range(0, len(images), BLOCK)):
                stop = min(len(images), start + BLOCK)
                block = None if store is None else store.read(number)
                if block is None:
                    rows = Pictures(images.subset(np.arange(start, stop)), transform)
                    # Patient after the first block: a stretch of bad files among good ones is set aside like any other.
                    patient = any(len(b.indices) for b in blocks)
                    loader = BatchLoader(rows, batch_size=batch_size, workers=workers, strict=strict, patient=patient)
                    block = _compute(model, loader, start, device, told.embedded)
                    if store is not None:
                        store.write(number, block)
                blocks.append(block)
                told.reached(stop)
    finally:
        model.train(was_training)
    return _joined(blocks, images)


def look(model: nn.Module) -> Transform:
    """How an embedder wants to be shown images: the transform and the size that it was trained and judged with."""
    if not isinstance(model, Embedder):
        raise ConfigError(f"a {type(model).__name__} does not say how it wants to be shown images: give a transform")
    return transforms.build(model.config.transform, model.size)


class _Told:
    """The bar: images done, and how many were embedded a second (those that a stopped run left behind are not)."""

    def __init__(self, progress: Progress, task: TaskID):
        self.progress, self.task = progress, task
        self.count, self.start = 0, time.monotonic()

    def embedded(self, images: int) -> None:
        self.count += images
        rate = self.count / max(time.monotonic() - self.start, 1e-3)
        self.progress.update(self.task, advance=images, note=f"{rate:.0f} images/s")

    def reached(self, images: int) -> None:
        self.progress.update(self.task, completed=images)


@dataclass(frozen=True, eq=False)
class _Block:
    vectors: np.ndarray
    indices: np.ndarray
    failures: list[tuple[int, str, str]]  # index, path, cause


@torch.no_grad()
def _compute(model: nn.Module, loader: BatchLoader, start: int, device, advance: Callable[[int], None]) -> _Block:
    vectors, indices = [], []
    for batch in loader:
        if len(batch):
            z = model(batch.images.to(device)).float().cpu()
            if not torch.isfinite(z).all():
                broken = int(batch.indices[~torch.isfinite(z).all(1)][0])
                raise RunError(f"the model gives NaN or infinite numbers for {loader.rows.name(broken)}")
            vectors.append(z.numpy())
            indices.append(batch.indices.numpy() + start)
        advance(len(batch))
    failures = [(f.index + start, f.path, f.cause) for f in loader.failures]
    width = vectors[0].shape[1] if vectors else 0
    empty = np.zeros((0, width), np.float32), np.zeros(0, np.int64)
    return _Block(np.concatenate([empty[0], *vectors]), np.concatenate([empty[1], *indices]), failures)


def _joined(blocks: list[_Block], images: ImageSet) -> Embeddings:
    filled = [block for block in blocks if len(block.indices)]
    failures = Failures()
    for block in blocks:
        for index, path, cause in block.failures:
            failures.add(index, path, cause)
    if not filled:
        raise DataError(f"{images.root}: none of the {len(images)} images can be read\n{failures.text(most=3)}")
    indices = np.concatenate([block.indices for block in filled])
    labels = None if images.labels is None else np.asarray(images.labels)[indices]
    return Embeddings(np.concatenate([block.vectors for block in filled]), labels, indices, failures)


def _identity(model: nn.Module, images: ImageSet, transform: Transform) -> dict[str, str]:
    """What must be equal for stored blocks to be this run's."""
    fingerprint = getattr(model, "fingerprint", None)
    if fingerprint is None:
        raise ConfigError("only a model with a fingerprint (an Embedder) can be embedded with in a resumable way")
    return {"model": fingerprint(), "images": images.fingerprint(), "transform": transform.key}


class _Store:
    """Blocks in a directory, each written whole or not at all."""

    def __init__(self, directory: Path, identity: dict[str, str]):
        self.directory, note = directory, directory / "embedding.json"
        if note.exists() and (theirs := json.loads(note.read_text("utf-8"))) != identity:
            differ = " and ".join(key for key in identity if theirs.get(key) != identity[key])
            raise ConfigError(f"{directory} holds embeddings of another {differ}; choose another place, or remove it")
        files.write_text(note, json.dumps(identity, indent=1) + "\n")

    def _path(self, number: int) -> Path:
        return self.directory / f"block-{number:06d}.npz"

    def read(self, number: int) -> _Block | None:
        path = self._path(number)
        if not path.exists():
            return None
        with np.load(path, allow_pickle=False) as arrays:
            failures = [(int(i), str(p), str(c)) for i, p, c in json.loads(str(arrays["failures"]))]
            return _Block(arrays["vectors"], arrays["indices"], failures)

    def write(self, number: int, block: _Block) -> None:
        with files.replacing(self._path(number)) as temporary, temporary.open("wb") as handle:
            text = np.array(json.dumps(block.failures, ensure_ascii=False))
            np.savez(handle, vectors=block.vectors, indices=block.indices, failures=text)
