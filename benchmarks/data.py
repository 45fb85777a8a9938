"""How fast pictures become batches, against bare decoding, Pillow, and the fastest pipeline one can write by hand.

    python benchmarks/data.py [FOLDER] [--quick]

FOLDER holds JPEGs, at any depth; without it, CUB-200-2011 is looked for beside the repository. Everything is measured
in one run, taking turns, and the best of several repeats is kept: absolute figures move with the machine, ratios hardly
do.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import numpy as np
import simplejpeg
import torch
from PIL import Image
from torch import Tensor, nn
from xxhash import xxh3_64_intdigest

from measure import console, table, verdict
from secondsight.data.cache.cached_features import CachedFeatures
from secondsight.data.cache.store import RowStore
from secondsight.data.loading.batches import BatchLoader
from secondsight.data.loading.failures import Failures
from secondsight.data.loading.picture_rows import Pictures
from secondsight.data.loading.samplers import ClassBalanced
from secondsight.data.loading.transforms import build
from secondsight.data.loading.workers import default_workers
from secondsight.memory import keep_freed

SIZE, BATCH = 224, 64
DEFAULT = Path(__file__).parents[2] / "shared/data/CUB_200_2011/images"
_resize = torch.ops.aten._upsample_bilinear2d_aa.out


class Folder:
    """Every JPEG below a folder; the folder it is in is its class."""

    def __init__(self, root: Path, most: int):
        found = sorted(path for path in root.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
        self.paths = found[:: max(1, len(found) // most)][:most]
        self.labels = np.unique([str(path.parent) for path in self.paths], return_inverse=True)[1]

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, i: int) -> Path:
        return self.paths[i]


class ByHand:
    """Read, decode into reused memory, resize into the batch; nothing is checked, ordered, turned or reported."""

    def __init__(self, images: Folder, *, fast: bool = False):
        self.names = [str(path) for path in images.paths]
        self.memory = bytearray(1 << 26)
        self.fast = fast  # quicker, coarser chroma and DCT: not the same pixels any more

    def __call__(self, i: int, out: Tensor) -> None:
        handle = os.open(self.names[i], os.O_RDONLY)
        content = os.read(handle, 1 << 20)
        os.close(handle)
        pixels = simplejpeg.decode_jpeg(content, "RGB", buffer=self.memory, fastdct=self.fast, fastupsample=self.fast)
        _resize(torch.from_numpy(pixels)[None].permute(0, 3, 1, 2), [SIZE, SIZE], False, None, None, out=out)


def empty_batch() -> Tensor:
    return torch.empty((BATCH, SIZE, SIZE, 3), dtype=torch.uint8).permute(0, 3, 1, 2)


def one_thread(images: Folder, repeats: int) -> dict[str, float]:
    """Images per second of every way, on one core: the sum over images of the best of several turns."""
    contents = [path.read_bytes() for path in images.paths]
    rows, batch = Pictures(images, build("resize", SIZE)), empty_batch()
    hand, coarse, memory = ByHand(images), ByHand(images, fast=True), bytearray(1 << 26)

    def pillow(i: int) -> None:
        image = Image.open(images.paths[i]).convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        batch[i % BATCH].copy_(torch.from_numpy(np.array(image)).permute(2, 0, 1))

    ways: dict[str, Callable[[int], object]] = {
        "simplejpeg, decoding only": lambda i: simplejpeg.decode_jpeg(contents[i], "RGB", buffer=memory),
        "Pillow, decoding only": lambda i: Image.open(io.BytesIO(contents[i])).convert("RGB"),
        "Pillow, decode + resize": pillow,
        "by hand on simplejpeg": lambda i: hand(i, batch[i % BATCH][None]),
        "by hand, coarse pixels": lambda i: coarse(i, batch[i % BATCH][None]),
        "secondsight": lambda i: rows.read_into(batch[i % BATCH], i, 0),
    }
    best = {name: np.full(len(images), np.inf) for name in ways}
    names, shuffle = list(ways), random.Random(0).shuffle
    for _ in range(repeats):
        for i in range(len(images)):
            shuffle(names)
            for name in names:
                start = time.perf_counter()
                ways[name](i)
                best[name][i] = min(best[name][i], time.perf_counter() - start)
    return {name: len(images) / float(times.sum()) for name, times in best.items()}


def all_cores(images: Folder, workers: int, repeats: int) -> dict[str, float]:
    """Images per second in batches of 64, with a thread for every core."""
    ways: dict[str, Callable[[], None]] = {
        "by hand on simplejpeg": lambda: hand_written_batches(images, workers, fast=False),
        "by hand, coarse pixels": lambda: hand_written_batches(images, workers, fast=True),
        "secondsight Loader": lambda: drain(
            BatchLoader(Pictures(images, build("resize", SIZE)), batch_size=BATCH, workers=workers)
        ),
    }
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(repeats):
        for name, way in ways.items():
            start = time.perf_counter()
            way()
            best[name] = min(best[name], time.perf_counter() - start)
    return {name: len(images) / seconds for name, seconds in best.items()}


def drain(loader: BatchLoader) -> None:
    for _ in loader:
        pass


def hand_written_batches(images: Folder, workers: int, *, fast: bool) -> None:
    """Each thread makes every ``workers``-th batch; nobody waits for anybody."""

    def work(first: int) -> None:
        hand = ByHand(images, fast=fast)
        for start in range(first * BATCH, len(images), workers * BATCH):
            batch = empty_batch()
            for i in range(start, min(start + BATCH, len(images))):
                hand(i, batch[i - start][None])

    threads = [threading.Thread(target=work, args=(w,)) for w in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def network() -> nn.Module:
    """About twice the work of an EfficientNet-Lite0: ten 3×3 convolutions, 0.8 G multiply-adds an image."""
    layers, last = [], 3
    for width in (32, 64, 128, 256, 512):
        for stride in (2, 1):
            layers += [nn.Conv2d(last, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
            last = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(last, 512)]
    return nn.Sequential(*layers)


def waiting(images: Folder, transform: str, workers: int, steps: int) -> tuple[float, float]:
    """(share of the time that a training loop waits for its next batch, seconds per step)."""
    model = network().to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-4)
    sampler = ClassBalanced(images.labels, min(32, int(images.labels.max()) + 1), 2)
    batches = iter(
        BatchLoader(Pictures(images, build(transform, SIZE)), batches=sampler, workers=workers, substitute=True)
    )
    waited, start = 0.0, time.perf_counter()
    for _ in range(steps):
        asked = time.perf_counter()
        batch = next(batches)
        waited += time.perf_counter() - asked
        z = nn.functional.normalize(model((batch.images.float() - 127) / 128))
        loss = nn.functional.cross_entropy(10 * z @ z.T, torch.arange(len(batch)).roll(1))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    total = time.perf_counter() - start
    return waited / total, total / steps


def checking(images: Folder, epochs: int, repeats: int) -> dict[str, float]:
    """Seconds to read cached activations in batches: an epoch from memory, from disk, and comparing with checksums.

    The rows are those of a VGG16 cut before its last block: 28 × 28 × 512 in half precision. Comparing and the epoch
    after it share one mapping of the file, as they do in ``FeatureCache``: pages are mapped once, by whoever is first.
    """
    keep_freed()  # as the command line does; otherwise most of an epoch is the system making fresh pages for batches
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        store, count = RowStore(Path(folder)), min(len(images), 256)
        store.create({"network": "benchmark"}, (28 * 28, 512))
        rng, row = np.random.default_rng(0), np.arange(count)
        for start in range(0, count, 32):
            block = rng.random((min(32, count - start), 28 * 28, 512), np.float32).astype(np.float16)
            digests = [rng.bytes(16) for _ in block]
            store.append(start, digests, block, np.ones(len(block), np.float32))
        records = store.records()

        def epoch(stored: np.ndarray) -> None:
            features = CachedFeatures(images, stored, records["scale"], row, Failures(), store.path)
            drain(BatchLoader(features, batch_size=BATCH, workers=1))

        def check(stored: np.ndarray) -> None:
            assert not len(store.damaged(records, row, stored))

        def forget() -> None:
            with open(store.path / "rows.f16", "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

        mapped, best = store.rows(count), {}
        one = np.array(mapped[0])
        from_memory = {
            "an epoch": lambda: epoch(store.rows(count)),
            "comparing rows that are mapped": lambda: check(mapped),
            "checksums alone, of one row in the cache": lambda: [xxh3_64_intdigest(one.data) for _ in row],
            "comparing, then an epoch": lambda: (check(now := store.rows(count)), epoch(now)),
        }
        from_disk = {  # afterwards: what is mapped is not forgotten
            "an epoch, from disk": lambda: (forget(), epoch(store.rows(count))),
            "comparing, then an epoch, from disk": lambda: (forget(), check(now := store.rows(count)), epoch(now)),
        }
        for ways in (from_memory, from_disk):
            for _ in range(repeats):
                for name, way in ways.items():
                    start = time.perf_counter()
                    way()
                    best[name] = min(best.get(name, float("inf")), time.perf_counter() - start)
            mapped = np.empty(0)
    best[f"comparing, of a run of {epochs} epochs"] = best["comparing rows that are mapped"] / epochs
    return best


def show(title: str, rates: dict[str, float], ours: str, against: str) -> None:
    result = table(title, "", "images/s", f"of {against}")
    for name, rate in rates.items():
        ratio = rate / rates[against]
        mark = verdict(ratio, 0.9, at_least=True) if name == ours else f"{ratio:.2f}×"
        result.add_row(f"[bold]{name}" if name == ours else name, f"{rate:,.0f}", mark)
    console.print(result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT, help="JPEGs to measure on")
    parser.add_argument("--quick", action="store_true", help="fewer images and repeats")
    parser.add_argument("--only", choices=["cache"], help="what checksums of cached rows cost, and nothing else")
    options = parser.parse_args()
    if not options.folder.is_dir():
        sys.exit(f"{options.folder} is not there; give a folder with JPEGs: python benchmarks/data.py FOLDER")
    quick, workers = options.quick, default_workers()
    images = Folder(options.folder, 200 if quick else 400)
    if len(images) < BATCH:
        sys.exit(f"{options.folder} holds {len(images)} JPEGs; at least {BATCH} are needed: give another folder")
    if options.only is None:
        decoding(options.folder, images, workers, quick=quick)
    caching(images, 3 if quick else 9)


def decoding(folder: Path, images: Folder, workers: int, *, quick: bool) -> None:
    """From files to batches, and how long a training step waits for them."""
    outside, by_hand = torch.get_num_threads(), "by hand on simplejpeg"
    torch.set_num_threads(1)  # one core is one core, whatever torch would like
    rates = one_thread(images, 3 if quick else 10)
    show(f"One core, {len(images)} images to {SIZE}×{SIZE}", rates, "secondsight", by_hand)
    many = Folder(folder, 1000 if quick else 3000)
    rates = all_cores(many, workers, 3 if quick else 9)
    show(f"{workers} threads, {len(many):,} images in batches of {BATCH}", rates, "secondsight Loader", by_hand)
    torch.set_num_threads(outside)
    result = table(
        f"Training on {outside} cores, batches of {BATCH}", "transform", "seconds a step", "waiting, % of the time"
    )
    for transform in ("resize", "random-crop-jitter"):
        share, step = waiting(many, transform, workers, 4 if quick else 12)
        result.add_row(transform, f"{step:.2f}", verdict(100 * share, 2, at_least=False, unit=" %"))
    console.print(result)


def caching(images: Folder, repeats: int) -> None:
    """What it costs that damaged rows are noticed."""
    torch.set_num_threads(1)
    seconds = checking(images, 6, repeats)  # as many epochs as the recipe quick-frozen has
    result = table("Cached activations: what it costs to compare every row with its checksum", "", "ms", "of an epoch")
    for name, took in seconds.items():
        share = 100 * took / seconds["an epoch"]
        mark = verdict(share, 1, at_least=False, unit=" %") if "of a run" in name else f"{share:.1f} %"
        result.add_row(name, f"{1000 * took:,.1f}", mark)
    console.print(result)


if __name__ == "__main__":
    main()
