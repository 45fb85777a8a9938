"""The loop from images to vectors: blocks of images, batches inside them, bad files set aside.

The unit of work is a block: consecutive images, a whole number of batches. Processes that share the work take blocks in
turn and batches never cross a block, so any number of processes, and a run that was stopped and goes on, give the same
vectors bit for bit. One set of decoding threads serves all blocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from secondsight.data import ImageSet
from secondsight.data.loading.batches import Batch, BatchLoader
from secondsight.data.loading.failures import Failure, Failures
from secondsight.data.loading.samplers import BatchSampler
from secondsight.data.loading.transforms import Transform
from secondsight.embed.inputs import Forward, Inputs, pictures
from secondsight.errors import ConfigError, DataError, RunError
from secondsight.evaluation_mode import evaluating
from secondsight.model import Embedder
from secondsight.progress import bar

BLOCK = 2048  # images


@dataclass(frozen=True, eq=False)
class Block:
    """The vectors of the images ``start`` … ``stop − 1``, without those that could not be read."""

    number: int
    start: int
    stop: int
    vectors: np.ndarray  # (m, D) float32
    indices: np.ndarray  # (m,) int64, numbers in the set
    failures: tuple[Failure, ...] = ()


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
    run: Forward | None = None,
) -> Embeddings:
    """Embed every image, in order; the arguments are those of ``blocks``."""
    found = blocks(
        model, images, transform, batch_size=batch_size, workers=workers, device=device, strict=strict, run=run
    )
    return join(found, images)


def blocks(
    model: nn.Module,
    images: ImageSet,
    transform: Transform | None = None,
    *,
    batch_size: int = 64,
    block: int = BLOCK,
    done: Container[int] = (),
    workers: int | None = None,
    device: str | torch.device = "cpu",
    strict: bool = False,
    rank: int = 0,
    world_size: int = 1,
    run: Forward | None = None,
) -> Iterator[Block]:
    """Embed images block by block, in order, with a progress bar.

    Args:
        model: Maps uint8 RGB (B, 3, S, S) to unit vectors (B, D); an ``Embedder``, usually.
        images: What to embed.
        transform: From a picture to (3, S, S), without chance; None for the embedder's own.
        batch_size: Images at once.
        block: Images in a block, rounded up to whole batches.
        done: Numbers of blocks that are not needed again.
        workers: Decoding threads; None chooses.
        device: Where the model runs.
        strict: A file that cannot be read is an error; otherwise it is set aside and counted.
        rank, world_size: This process takes every ``world_size``-th block.
        run: What runs in the model's place: a runtime of ``secondsight.inference``.
    """
    if len(images) == 0:
        raise DataError(f"{images.root}: no images to embed")
    inputs = pictures(model, images, transform, run=run)
    with evaluating(model.to(device)), bar(unit="images") as progress:
        task = progress.add_task("embedding", total=len(images) // world_size, note="")
        started, count = time.monotonic(), 0

        def advance(images: int) -> None:
            nonlocal count
            count += images
            rate = count / max(time.monotonic() - started, 1e-3)
            progress.update(task, advance=images, note=f"{rate:.0f} images/s")

        yield from stream(
            inputs,
            batch_size=batch_size,
            block=block,
            done=done,
            workers=workers,
            device=device,
            strict=strict,
            rank=rank,
            world_size=world_size,
            advance=advance,
        )


def stream(
    inputs: Inputs,
    *,
    batch_size: int = 64,
    block: int = BLOCK,
    done: Container[int] = (),
    workers: int | None = None,
    device: str | torch.device = "cpu",
    strict: bool = False,
    rank: int = 0,
    world_size: int = 1,
    advance: Callable[[int], None] = lambda images: None,
) -> Iterator[Block]:
    """The loop itself. Networks must be in evaluation mode already, on ``device``."""
    if batch_size < 1 or block < 1:
        raise ConfigError(f"batch_size and block must be at least 1, got {batch_size} and {block}")
    step = -(-block // batch_size) * batch_size
    mine = [b for b in range(rank, block_count(len(inputs), step, batch_size), world_size) if b not in done]
    plan = _BlockBatches(len(inputs), batch_size, step, mine)
    cuda = torch.device(device).type == "cuda"
    loaders = [
        BatchLoader(source, batches=plan.copy(), workers=workers, strict=strict, pin_memory=cuda)
        for source in inputs.sources
    ]
    batches = zip(*loaders, strict=True)
    reported: set[int] = set()
    for number in mine:
        start, stop = number * step, min(len(inputs), (number + 1) * step)
        vectors, indices = [], []
        for first in range(start, stop, batch_size):
            rows, kept = _common(next(batches))
            if len(kept):
                with torch.no_grad():
                    z = inputs.embedded(tuple(x.to(device, non_blocking=cuda) for x in rows)).float().cpu()
                _check_finite(z, kept, inputs)
                vectors.append(z.numpy())
                indices.append(kept.numpy())
            advance(min(batch_size, stop - first))
        failures = tuple(f for loader in loaders for f in loader.failures if f.index not in reported)
        failures = tuple({f.index: f for f in failures if start <= f.index < stop}.values())
        reported.update(f.index for f in failures)
        joined = np.concatenate(vectors) if vectors else np.zeros((0, 0), np.float32)
        yield Block(number, start, stop, joined, np.concatenate([np.zeros(0, np.int64), *indices]), failures)


def block_count(images: int, block: int = BLOCK, batch_size: int = 64) -> int:
    """How many blocks a set of images has."""
    return -(-images // (-(-block // batch_size) * batch_size))


def join(found: Iterable[Block], images: ImageSet) -> Embeddings:
    """Blocks in any order as one; an error where not a single image could be read."""
    ordered = sorted(found, key=lambda block: block.start)
    failures = Failures()
    for block in ordered:
        for failure in block.failures:
            failures.add(failure.index, failure.path, failure.cause, lasting=failure.lasting)
    filled = [block for block in ordered if len(block.indices)]
    if not filled:
        raise DataError(f"{images.root}: none of the {len(images)} images can be read\n{failures.text(most=3)}")
    indices = np.concatenate([block.indices for block in filled])
    labels = None if images.labels is None else np.asarray(images.labels)[indices]
    return Embeddings(np.concatenate([block.vectors for block in filled]), labels, indices, failures)


def features(
    model: Embedder,
    images: ImageSet | Inputs,
    *,
    count: int,
    batch_size: int = 32,
    workers: int | None = None,
    device: str | torch.device = "cpu",
) -> list[Tensor]:
    """Local features (b, L, c) of at least ``count`` images (fewer than twice as many) spread evenly over the set.

    Of ``Inputs``, ``forward`` gives the features; of images, the model's backbone does.
    """
    inputs = images if isinstance(images, Inputs) else pictures(model, images, run=model.backbone)
    chosen = np.arange(0, len(inputs), max(1, len(inputs) // max(1, count)))
    plan = _Listed([chosen[i : i + batch_size] for i in range(0, len(chosen), batch_size)])
    found = []
    with evaluating(model.to(device)), torch.no_grad(), bar(unit="images") as progress:
        task = progress.add_task("initialising", total=len(chosen), note="")
        for batch in BatchLoader(inputs.sources[0], batches=plan, workers=workers):
            if len(batch):
                found.append(inputs.forward(batch.images.to(device)))
            progress.advance(task, len(batch))
    return found


class _Listed(BatchSampler):
    """Batches that are written out."""

    def __init__(self, batches: list[np.ndarray]):
        super().__init__(seed=0, rank=0, world_size=1)
        self.batches = batches

    def plan(self, epoch: int) -> list[np.ndarray]:
        return self.batches


class _BlockBatches(_Listed):
    """The batches of some blocks."""

    def __init__(self, images: int, batch_size: int, block: int, numbers: list[int]):
        self.arguments = images, batch_size, block, numbers
        starts = (s for n in numbers for s in range(n * block, min(images, (n + 1) * block), batch_size))
        super().__init__([np.arange(s, min(images, s + batch_size)) for s in starts])

    def copy(self) -> _BlockBatches:
        return _BlockBatches(*self.arguments)


def _common(batches: tuple[Batch, ...]) -> tuple[tuple[Tensor, ...], Tensor]:
    """The rows of the images that every source could give, and these images' numbers."""
    kept = batches[0].indices
    if all(torch.equal(batch.indices, kept) for batch in batches):
        return tuple(batch.images for batch in batches), kept
    for batch in batches[1:]:
        kept = kept[torch.isin(kept, batch.indices)]
    return tuple(batch.images[torch.isin(batch.indices, kept)] for batch in batches), kept


def _check_finite(z: Tensor, indices: Tensor, inputs: Inputs) -> None:
    if not torch.isfinite(z).all():
        broken = int(indices[~torch.isfinite(z).all(1)][0])
        raise RunError(f"the model gives NaN or infinite numbers for {inputs.sources[0].name(broken)}")
