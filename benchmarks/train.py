"""What does a training step cost beyond the network itself, and what does the frozen-feature cache save?

In one run, taking turns: whole steps of the loop (reading, decoding, forward, loss, backward, optimiser) against
the bare forward and backward pass of the same backbone on a batch that is there already; an epoch with the cache
against one without it; and what it is worth that freed memory stays with the process.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from measure import console, in_fresh_process, table, verdict
from secondsight import backbones, shipped
from secondsight.memory import keep_freed
from secondsight.model import Embedder
from secondsight.train import recipe_file
from secondsight.train.assembly import RunParts, assemble, make_fabric
from secondsight.train.display import Display
from secondsight.train.loop import Loop
from secondsight.train.recipe import Recipe
from secondsight.train.run_directory import RunDirectory

JCF = {"start": "square", "power": 0.5, "whiten": 0.25, "width": 640, "assign": "top-1"}
"""As recipes/photos.toml has it: a location goes to its nearest codeword."""


def write_pictures(root: Path, *, classes: int, images: int) -> Path:
    """JPEGs of 500×375 pixels with about the detail of photographs (60 kB each)."""
    rng = np.random.default_rng(0)
    for c in range(classes):
        (root / f"{c:02d}").mkdir(parents=True)
        for i in range(images):
            coarse = Image.fromarray(rng.integers(0, 256, (24, 32, 3), np.uint8)).resize(
                (500, 375), Image.Resampling.BICUBIC
            )
            pixels = np.asarray(coarse, np.int16) + rng.integers(-12, 13, (375, 500, 3), np.int16)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(root / f"{c:02d}" / f"{i}.jpg", quality=90)
    return root


def recipe(pictures: Path, options: argparse.Namespace, *overrides: str) -> Recipe:
    content = {
        "data": {"path": str(pictures), "transform": "resize", "cache_dir": str(pictures.parent / "cache")},
        "model": {"backbone": options.backbone, "weights": "random", "norm_exponent": 0.0, "pooling_options": JCF},
        "train": {"classes_per_batch": 16, "images_per_class": options.batch // 16},
        "validation": {"share": 0.0},
    }
    return recipe_file.make(content, overrides)


def loop_of(wanted: Recipe, place: Path) -> Loop:
    parts = assemble(wanted, make_fabric(wanted), fit=False, say=lambda words: None)
    parts.network.train()
    return Loop(parts, RunDirectory(place), Display(enabled=False))


def whole_steps(loop: Loop, steps: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of a whole step. The first one is not counted: it alone waits for a first batch."""
    loop.turn_to(0, 0)
    batches = itertools.chain.from_iterable(itertools.repeat(loop.loader))
    loop.step(next(batches), 0)
    started = clock()
    for batch in itertools.islice(batches, steps):
        loop.step(batch, 0)
    return (clock() - started) / steps


def bare_steps(
    parts: RunParts,
    network: Callable[[torch.Tensor], torch.Tensor],
    images: torch.Tensor,
    steps: int,
    clock: Callable[[], float],
) -> float:
    """Seconds of a forward and backward pass alone: of the backbone, or of all the model."""
    started = clock()
    for _ in range(steps):
        out = network(images)
        out.backward(torch.ones_like(out))
        parts.model.zero_grad()
    return (clock() - started) / steps


def bare_products(model: Embedder, images: int, locations: int, steps: int, clock: Callable[[], float]) -> float:
    """Seconds of the matrix products that reduction and projectors cannot do without, forward and backward, alone."""
    assert model.reduction is not None
    c, d = model.reduction.in_dim, model.reduction.out_dim
    shapes = [(images * locations, c, d), (images * locations, d, 2 * JCF["width"])]
    operands = [(torch.randn(m, k), torch.randn(k, n), torch.randn(m, n)) for m, k, n in shapes]
    started = clock()
    for _ in range(steps):
        for x, w, g in operands:
            for a, b in ((x, w), (g, w.T), (x.T, g)):
                torch.mm(a, b)
    return (clock() - started) / steps


def step_cost(pictures: Path, options: argparse.Namespace, place: Path) -> None:
    loop = loop_of(recipe(pictures, options), place)
    soft = loop_of(recipe(pictures, options, "model.pooling_options.assign=soft"), place).parts
    images = torch.randint(256, (options.batch, 3, 224, 224), dtype=torch.uint8)
    parts, steps, clock = loop.parts, options.steps, time.process_time if options.cpu else time.perf_counter
    measured: dict[str, Callable[[], float]] = {
        "bare forward + backward of the backbone": lambda: bare_steps(
            parts, parts.model.backbone, images, steps, clock
        ),
        "the same with reduction and pooling": lambda: bare_steps(parts, parts.model.raw, images, steps, clock),
        "the same, every codeword at every location": lambda: bare_steps(soft, soft.model.raw, images, steps, clock),
        "whole step: data, head, loss, optimiser too": lambda: whole_steps(loop, steps, clock),
    }
    seconds: dict[str, list[float]] = {name: [] for name in measured}
    for turn in range(options.repeats + 1):
        for name, run in measured.items():
            spent = run()
            if turn:  # the first warms up
                seconds[name].append(spent)
    bare, *others = (statistics.median(times) for times in seconds.values())
    h, w = parts.model.backbone.grid(224, 224)
    products = statistics.median(
        bare_products(parts.model, options.batch, h * w, steps, clock) for _ in range(options.repeats + 1)
    )
    title = f"A training step of {options.backbone} + jcf-32-8, batch {options.batch}"
    shown = table(title, "", "s/step", "images/s", "bare / this")
    for name, spent in zip(measured, (bare, *others), strict=True):
        shown.add_row(name, f"{spent:.2f}", f"{options.batch / spent:.1f}", f"{100 * bare / spent:.1f} %")
    least = bare + products
    shown.add_row("backbone + the head's matrix products alone", f"{least:.2f}", "", f"{100 * bare / least:.1f} %")
    console.print(shown)
    console.print("  whole / bare speed:", verdict(100 * bare / others[-1], 95, at_least=True, unit=" %"))


def cache_gain(pictures: Path, options: argparse.Namespace, place: Path) -> None:
    without = loop_of(recipe(pictures, options, f"model.freeze={options.freeze}", "data.cache=false"), place)
    started = time.perf_counter()
    cached = loop_of(recipe(pictures, options, f"model.freeze={options.freeze}"), place)
    filling = time.perf_counter() - started
    seconds: dict[str, list[float]] = {"without": [], "with": []}
    for _ in range(options.repeats):
        seconds["without"].append(whole_steps(without, options.steps))
        seconds["with"].append(whole_steps(cached, options.steps))
    per_epoch = len(without.parts.sampler)
    a, b = (statistics.median(times) * per_epoch for times in seconds.values())
    shown = table(f"An epoch of {per_epoch} steps, frozen up to {options.freeze}", "", "seconds")
    shown.add_row("without the cache", f"{a:.1f}")
    shown.add_row("with the cache", f"{b:.1f}")
    shown.add_row("filling the cache, once", f"{filling:.1f}")
    shown.add_row("epoch time without / with", f"[bold]{a / b:.1f}×[/]")
    console.print(shown)


def frozen_speed(pictures: Path, place: Path, *, epochs: int = 6) -> None:
    """``quick-frozen``: JCF's ends, with what does not learn summed up once and without, beside averaging.

    In seconds of the processor, over all threads: on a busy machine they say more than those of a clock.
    """
    shown = table(f"{epochs} epochs on frozen features, CPU seconds", "", "summing", "all", "images/s", "× average")
    variants = (("average", "average", True), ("jcf-32-8", "jcf-32-8", True), ("without kept sums", "jcf-32-8", False))
    spent = {}
    for name, pooling, keep in variants:
        words = [f"data.path={pictures}", f"data.cache_dir={pictures.parent / 'cache'}", "validation.share=0.0"]
        wanted = recipe_file.read(shipped.find("quick-frozen"), [*words, "train.fit_images=512", *_pooled(pooling)])
        parts = assemble(wanted, make_fabric(wanted), fit=True, say=lambda words: None)
        loop = Loop(parts, RunDirectory(place), Display(enabled=False))
        parts.network.train()
        started = time.process_time()
        if keep:
            loop.keep_sums()
        summing = time.process_time() - started
        for epoch in range(epochs):
            loop.turn_to(epoch, 0)
            for batch in loop.loader:
                loop.step(batch, epoch)
        spent[name] = time.process_time() - started
        seen = epochs * len(parts.sampler) * wanted.batch
        figures = f"{summing:.2f}", f"{spent[name]:.2f}", f"{seen / spent[name]:,.0f}"
        ratio = spent[name] / spent["average"]
        shown.add_row(name, *figures, verdict(ratio, 2.0, at_least=False) if keep else f"{ratio:.1f}")
    console.print(shown)


def _pooled(name: str) -> list[str]:
    return [
        f"model.pooling={name}",
        *(["model.pooling_options={}", "optimizer.head_lr=1e-3"] if name == "average" else []),
    ]


def memory_gain(options: argparse.Namespace) -> None:
    """The bare step in a process that keeps freed memory, and in one that returns it; see ``secondsight.memory``."""
    words = ("--bare", "--backbone", options.backbone, "--batch", str(options.batch))
    kept = in_fresh_process(__file__, *words)
    returned = in_fresh_process(__file__, *words, MALLOC_MMAP_MAX_="65536")  # glibc's own value
    shown = table("The bare step", "freed memory is", "s/step", "page faults", "peak GB")
    for name, found in (("returned to the system", returned), ("kept", kept)):
        peak = f"{found['peak'] / 1e9:.1f}"
        shown.add_row(name, f"{found['seconds']:.2f}", f"{found['faults']:,}", peak)
    console.print(shown)
    console.print(f"  kept is {returned['seconds'] / kept['seconds']:.2f}× faster")


def bare(options: argparse.Namespace) -> dict[str, float]:
    """Median seconds and page faults of a step of the backbone alone, after three that warm up."""
    network = backbones.build(options.backbone, weights="random").train()
    images = torch.randint(256, (options.batch, 3, 224, 224), dtype=torch.uint8)
    seconds, faults = [], []
    for _ in range(6):
        started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        features = network(images)
        features.backward(torch.ones_like(features))
        network.zero_grad()
        seconds.append(time.perf_counter() - started)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"seconds": statistics.median(seconds[3:]), "faults": statistics.median(faults[3:]), "peak": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="a smaller batch and fewer repeats")
    parser.add_argument(
        "--step", action="store_true", help="the step alone, without what the cache and memory are worth"
    )
    parser.add_argument("--cpu", action="store_true", help="the step in seconds of the processor, for a busy machine")
    parser.add_argument("--frozen", action="store_true", help="quick-frozen alone: JCF's ends against averaging")
    parser.add_argument("--backbone", default="resnet50")
    parser.add_argument("--freeze", default="conv4", help="for the cache")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    if options.quick:
        options.batch, options.repeats, options.steps = 16, 2, 2
    keep_freed()  # as the command line does; both sides of every ratio gain by it
    if options.bare:
        print(json.dumps(bare(options)))
        return
    if options.frozen:
        with tempfile.TemporaryDirectory() as folder:
            pictures = write_pictures(Path(folder) / "pictures", classes=16, images=8 if options.quick else 64)
            frozen_speed(pictures, Path(folder))
        return
    if not options.step:
        memory_gain(options)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        pictures = write_pictures(place / "pictures", classes=16, images=16)
        step_cost(pictures, options, place)
        if not options.step:
            cache_gain(pictures, options, place)


if __name__ == "__main__":
    main()
