"""Compressing a trained model against training the small one: recall on classes that neither has seen.

    secondsight poolings --compare CUB_200_2011 --out COMPARISON --seeds 3 --only jcf-32 --only jcf-32-8
    python benchmarks/compression.py COMPARISON

Both were trained on the same frozen features with the same budget. The large one is compressed with what a thousand
training images tell; nothing of the classes that judge is looked at.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from measure import console, table
from secondsight import load
from secondsight.compress import Sample, compress
from secondsight.evaluate import retrieval
from secondsight.functional.pooling.compression import from_bits, to_bits, to_int8
from secondsight.memory import keep_freed
from secondsight.model import Embedder
from secondsight.progress import track
from secondsight.train import recipe_file, run_inputs
from secondsight.train.sets import open_sets


def stored(run: Path, images: int) -> tuple[Sample, Sample, np.ndarray]:
    """Features of some training images and of all judging ones, from the cache that the run has used; the labels."""
    recipe, model = recipe_file.read(run / "config.toml"), load(run / "best")
    sets = open_sets(recipe)
    assert sets.validation is not None
    made = run_inputs.build(recipe, sets, model, device=torch.device("cpu"), say=console.print)
    if not made.cached or not made.validation:
        raise SystemExit(f"{run} was not trained on stored features")
    grid = model.backbone.grid(*made.size)
    chosen = np.sort(np.random.default_rng(0).permutation(len(made.plain))[:images])

    def some(rows, which: np.ndarray) -> Sample:
        return Sample([torch.from_numpy(rows[part]) for part in np.array_split(which, -(-len(which) // 64))], grid)

    labels = np.asarray(sets.validation.require_labels())
    return some(made.plain, chosen), some(made.validation[0], np.arange(len(labels))), labels


def figures(large: Embedder, direct: Embedder, sample: Sample, judge: Sample, labels: np.ndarray, steps: int):
    """(what, size of the head, bytes an image, Recall@1) for everything one would weigh up."""
    plain: Callable[[Tensor], Tensor] = lambda z: z  # noqa: E731
    closed = compress(large, projectors=8, sample=sample)[0]
    tuned = compress(large, projectors=8, sample=sample, steps=steps)[0]
    models = {
        "jcf-32": large,
        "jcf-32-8, trained directly": direct,
        "jcf-32 → jcf-32-8, without images": compress(large, projectors=8)[0],
        "jcf-32 → jcf-32-8, closed form": closed,
        f"jcf-32 → jcf-32-8, {steps} steps": tuned,
        "jcf-32 → jcf-32-4, closed form": compress(large, projectors=4, sample=sample)[0],
        "jcf-32 → jcf-32-2, closed form": compress(large, projectors=2, sample=sample)[0],
        "jcf-32, --dim 256": compress(large, dim=256, sample=sample)[0],
        "jcf-32, --dim 128": compress(large, dim=128, sample=sample)[0],
        "jcf-32, --dim 64": compress(large, dim=64, sample=sample)[0],
    }
    for name, model in models.items():
        z, head = judge.pooled(model), sum(p.numel() for n, p in model.named_parameters() if "backbone" not in n)
        kinds = {"": (plain, 4 * model.dim)}
        if name in ("jcf-32", "jcf-32, --dim 128"):
            kinds[", int8"] = (lambda z: to_int8(z).float(), model.dim)
            kinds[", bits"] = (lambda z: from_bits(to_bits(z), z.shape[1]), -(-model.dim // 8))
        for kind, (stored_as, size) in kinds.items():
            recall = retrieval(stored_as(z).numpy(), labels, bootstrap=0).recall[1]
            yield name + kind, head, size, 100 * recall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("comparison", type=Path, nargs="?", help="the --out of `secondsight poolings --compare`")
    parser.add_argument("--steps", type=int, default=200, help="of fine-tuning towards the large model")
    parser.add_argument("--images", type=int, default=1000, help="training images to look at")
    options = parser.parse_args()
    if options.comparison is None:
        console.print("needs trained models, see --help")
        return
    keep_freed()
    runs = options.comparison.glob("runs/poolings/jcf-32-f*")
    pairs = [(run, run.with_name(run.name.replace("jcf-32-", "jcf-32-8-"))) for run in runs]
    pairs = sorted(pair for pair in pairs if pair[1].exists())
    if not pairs:
        raise SystemExit(f"no runs of jcf-32 and jcf-32-8 in {options.comparison}")
    sample, judge, labels = stored(pairs[0][0], options.images)
    recalls, sizes = defaultdict(list), {}
    for large, small in track(pairs, "compressing"):
        models = load(large / "best"), load(small / "best")
        for name, head, size, recall in figures(*models, sample, judge, labels, options.steps):
            recalls[name].append(recall)
            sizes[name] = head, size
    shown = table(f"Recall@1 in %, {len(pairs)} seeds", "", "parameters", "bytes an image", "R@1", "against jcf-32")
    for name, values in recalls.items():
        against = [value - first for value, first in zip(values, recalls["jcf-32"], strict=True)]
        head, size = sizes[name]
        shown.add_row(name, f"{head / 1e6:.2f}M", f"{size:,}", _spread(values), _spread(against, sign="+"))
    console.print(shown)


def _spread(values: list[float], sign: str = "") -> str:
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):{sign}.1f}{spread}"


if __name__ == "__main__":
    main()
