"""What else a label-free fit could be: squares beside second moments, of the network's last layer and the one before.

    python benchmarks/fit_parts.py birds=CUB_200_2011 cars=cars196/train emoji icons=icons:/usr/share/icons

Recall@1 as ``benchmarks/fit.py`` has it, on the same images and stored features, for sums among which ``jcf-pairs`` was
chosen: each is a sum over locations, so explanations would stay exact. The last lines choose a row on all kinds but
one and judge it on that one: what such a choice is worth on images that nobody has seen.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from fit import HEAD, local_features, sample
from kinds import open_kind
from measure import console, table
from secondsight.data.cache.feature_cache import default_directory
from secondsight.functional.pooling.eigenvectors import eigh
from secondsight.memory import keep_freed
from secondsight.pooling.ending import SMOOTH
from secondsight.train.choice import hits

DIM, SQUARES, AXES = 512, 640, 128
PAIRS = (512, 1024)
WEIGHTS = (0.4, 0.5, 0.7)
"""Of pairs beside squares, as lengths."""


def rows(last: Tensor, before: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Name and vectors of every way to fit."""
    yield "average", mapped(last, lambda x: x.mean(1))
    yield "gem 3, half whitened", whitened(mapped(last, lambda x: x.pow(3).mean(1)).clamp_min(1e-12) ** (1 / 3))
    reduced = principal(last, 256)
    square = root(strongest(mapped(last, lambda x: (x @ reduced @ reduced.T).square().mean(1)), SQUARES))
    yield "squares (jcf)", whitened(square)
    yield "squares of all channels, not reduced", whitened(root(mapped(last, lambda x: x.square().mean(1))))
    for where, x in {"before the last layer": before, "of the last layer": last}.items():
        axes = principal(x, AXES)
        for count in PAIRS:
            second = root(pairs(x, axes, count))
            yield f"{count} pairs {where}", whitened(second)
            for weight in WEIGHTS:
                yield (
                    f"squares beside {count} pairs {where}, {weight}",
                    whitened(torch.cat([unit(square), weight * unit(second)], 1)),
                )
    axes = principal(before, AXES)
    both = torch.cat([last, before / 2], -1)  # about as much energy each
    for channels in (256, 384):
        together = principal(both, channels)
        x = mapped(both, lambda some, w=together: some @ w).half()
        square = root(strongest(mapped(x, lambda some, w=together: (some @ w[:1280].T).square().mean(1)), SQUARES))
        second = root(pairs(x, 2 * together[1280:].T @ axes, PAIRS[0]))
        for weight in WEIGHTS:
            yield (
                f"both layers as {channels} channels, squares beside {PAIRS[0]} pairs, {weight}",
                whitened(torch.cat([unit(square), weight * unit(second)], 1)),
            )


def mapped(x: Tensor, function) -> Tensor:
    return torch.cat([function(some.float()) for some in x.split(64)])


def principal(x: Tensor, count: int) -> Tensor:
    """(c, count): the directions of most energy."""
    moment = sum(some.flatten(0, 1).float().T @ some.flatten(0, 1).float() for some in x[::2].split(64))
    assert isinstance(moment, Tensor)
    return eigh(moment)[1][:, -count:]


def pairs(x: Tensor, axes: Tensor, count: int) -> Tensor:
    """The entries of Σ x xᵀ on ``axes`` that differ most from image to image."""
    a, b = torch.triu_indices(axes.shape[1], axes.shape[1])
    entries = mapped(x, lambda some: ((some @ axes).mT @ (some @ axes))[:, a, b]) / x.shape[1]
    entries *= torch.where(a == b, 1.0, 2**0.5)
    return entries[:, entries.var(0).topk(count).indices]


def strongest(z: Tensor, count: int) -> Tensor:
    return z[:, z.square().mean(0).topk(count).indices]


def root(z: Tensor) -> Tensor:
    return z * (z.abs() / z.abs().mean() + SMOOTH) ** -0.5


def unit(z: Tensor) -> Tensor:
    """Of mean length 1."""
    return z / z.square().sum(1).mean().sqrt()


def whitened(z: Tensor) -> Tensor:
    """As ``pooling.ending`` does it, by half; through the images' products where they are fewer than the numbers."""
    n, k = z.shape
    values, vectors = eigh((z @ z.T if k > n else z.T @ z) / n)
    scale = values.clamp_min(values[-(len(values) + 1) // 2]).clamp_min(1e-12) ** -0.25
    found = vectors * (values.clamp_min(0) * n).sqrt() * scale if k > n else z @ (vectors * scale)
    return found[:, -DIM:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", help="as benchmarks/fit.py takes them")
    parser.add_argument("--most", type=int, default=1500, help="images of a kind")
    parser.add_argument("--size", type=int, help="pixels a side; default: what `secondsight index` takes")
    parser.add_argument("--cache", type=Path, default=default_directory(), help="where features are kept")
    options = parser.parse_args()
    if not options.data:
        console.print("needs labelled images to judge on, see --help")
        return
    keep_freed()
    torch.set_grad_enabled(False)
    found: dict[str, dict[str, float]] = {}
    for name, _, spec in (given.rpartition("=") for given in options.data):
        images = sample(open_kind(spec), options.most)
        local, labels = local_features(images, options.size, options.cache)
        for row, z in rows(local[..., :HEAD], local[..., HEAD:]):
            found.setdefault(row, {})[name or spec] = 100 * hits(z, labels).float().mean().item()
            console.print(name or spec, row, f"{found[row][name or spec]:.1f}")
    show(found)


def show(found: dict[str, dict[str, float]]) -> None:
    """The table, best mean first, and what a choice on the other kinds is worth on each."""
    kinds = list(next(iter(found.values())))

    def mean(row: str, without: str = "") -> float:
        others = [found[row][kind] for kind in kinds if kind != without]
        return sum(others) / max(1, len(others))

    shown = table("Recall@1 in %", "", *kinds, "mean")
    for row in sorted(found, key=mean, reverse=True):
        shown.add_row(row, *(f"{found[row][kind]:.1f}" for kind in kinds), f"{mean(row):.2f}")
    chosen = {kind: max(found, key=lambda row, kind=kind: mean(row, kind)) for kind in kinds}
    figures = [found[chosen[kind]][kind] for kind in kinds]
    shown.add_row("chosen on the other kinds", *(f"{f:.1f}" for f in figures), f"{sum(figures) / len(figures):.2f}")
    console.print(shown)
    for kind, row in chosen.items():
        console.print(f"without {kind}: {row}")


if __name__ == "__main__":
    main()
