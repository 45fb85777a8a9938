"""What a codebook could give at most: exact kernels, not cut to few numbers, with a learned metric on top.

    python benchmarks/ceiling.py ./photos --codewords 1 4 16 32

Pooling of second order with N codewords compares two images by

    K(X, Y) = Σ_n Σ_ij h_n(x_i) h_n(y_j) ⟨x_i, y_j⟩² ,

h the (hard) assignment by direction; N = 1 is second order without a codebook, and Σ_ij ⟨x_i, y_j⟩ first order. Half of
the classes teach, the other half judge, then they change places. Images become vectors by kernel PCA on those that
teach (512 directions, each by the power −¼ of its eigenvalue, as the label-free fit has it), and the metric is that of
``secondsight.train.choice``: what differs within the classes that teach counts less. R@1 on classes never seen, without
and with the metric.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from measure import console, table
from secondsight import backbones, data
from secondsight.data.cache.feature_cache import FeatureCache, default_directory
from secondsight.data.loading import transforms
from secondsight.pooling.feature_samples import kmeans
from secondsight.pooling.principal import main_directions
from secondsight.progress import track
from secondsight.train.choice import class_halves, hits, learned_metric

KEEP, EXPONENT = 512, 0.25
ROWS = 8192
"""Locations compared with each other at a time."""


def first_order(x: Tensor) -> Tensor:
    """(n, n): Σ_ij ⟨x_i, y_j⟩."""
    sums = x.sum(1)
    return sums @ sums.T


def second_order(x: Tensor, assigned: Tensor, codewords: int) -> Tensor:
    """(n, n): Σ_n Σ_ij [h(x_i) = h(y_j) = n] ⟨x_i, y_j⟩², one codeword after the other."""
    n, places, d = x.shape
    if codewords == 1:
        moments = (x.mT @ x).flatten(1)
        return moments @ moments.T
    image = torch.arange(n).repeat_interleave(places)
    flat, found = x.reshape(-1, d), torch.zeros(n, n)
    for number in track(range(codewords), f"{codewords} codeword(s)"):
        rows = (assigned.flatten() == number).nonzero().flatten()
        for left in _runs(rows):
            for right in _runs(rows):
                if right[0] < left[0]:
                    continue  # K is symmetric
                squares = (flat[left] @ flat[right].T).square_()
                images, columns = image[left].unique(return_inverse=True)
                others, where = image[right].unique(return_inverse=True)
                part = torch.zeros(len(images), squares.shape[1]).index_add_(0, columns, squares)
                part = torch.zeros(len(images), len(others)).index_add_(1, where, part)
                found[images[:, None], others] += part
                if right[0] != left[0]:
                    found[others[:, None], images] += part.T
    return found


def _runs(rows: Tensor) -> Iterator[Tensor]:
    return (run for run in rows.split(ROWS) if len(run))


def judged(kernel: Tensor, labels: Tensor, *, seed: int) -> tuple[float, float]:
    """R@1 in %, mean of both directions: as it is, and with the metric."""
    lengths = kernel.diagonal().sqrt()
    kernel, halves = kernel / lengths[:, None] / lengths, class_halves(labels, seed=seed)
    plain, learned = [], []
    for teach, judge in (halves, halves[::-1]):
        values, vectors = torch.linalg.eigh(kernel[teach][:, teach].double())
        keep = min(KEEP, int((values > values[-1] * 1e-7).sum()))
        values, vectors = values[-keep:], vectors[:, -keep:]
        middle = values[len(values) // 2]
        axes = vectors * (values**-0.5 * values.clamp_min(middle) ** -EXPONENT)
        z = torch.nn.functional.normalize((kernel[:, teach].double() @ axes).float(), dim=1)
        plain.append(hits(z[judge], labels[judge]))
        learned.append(hits(z[judge] @ learned_metric(z[teach], labels[teach]), labels[judge]))
    return tuple(100 * torch.cat(found).float().mean().item() for found in (plain, learned))  # type: ignore[return-value]


def features(given: argparse.Namespace) -> tuple[Tensor, Tensor]:
    """Local features (n, L, d) on their d principal axes, and the labels, of some images of every class."""
    images = data.open(given.data)
    labels = torch.as_tensor(images.require_labels())
    chosen = torch.cat([(labels == c).nonzero().flatten()[: given.images] for c in labels.unique()]).sort().values
    network = backbones.build(given.backbone, freeze="all", head=given.head).eval()
    cache = FeatureCache(given.cache, say=console.print)
    key = {"network": network.prefix_name, "prefix": network.prefix_fingerprint()}
    shown = transforms.build("resize-crop", network.preprocessing.size)
    found = cache.features(images, network.frozen_part, transform=shown, key=key)
    x = torch.from_numpy(found[chosen.numpy()])
    x = x @ main_directions(x, given.axes).float()
    return x / x.norm(dim=2).mean(), labels[chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", help="images with labels")
    parser.add_argument("--backbone", default="efficientnet-lite0")
    parser.add_argument(
        "--head", action="store_true", help="features after the network's last 1×1 layer, not before it"
    )
    parser.add_argument("--codewords", type=int, nargs="+", default=[1, 4, 16, 32])
    parser.add_argument("--axes", type=int, default=128, help="principal axes that features are cut to")
    parser.add_argument("--images", type=int, default=30, help="of a class")
    parser.add_argument("--cache", type=Path, default=default_directory(), help="where features are kept")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.data is None:
        console.print("needs images, see --help")
        return
    x, labels = features(given)
    shown = table("R@1 on classes never seen, exact kernels", "kernel", "as it is", "with a learned metric")

    def add(name: str, kernel: Tensor) -> None:
        figures = [f"{value:.1f}" for value in judged(kernel, labels, seed=given.seed)]
        console.print(name, *figures)  # a row at a time: the next may take long
        shown.add_row(name, *figures)

    add("first order", first_order(x))
    add("first order, locations weighed by their norm", first_order(x * x.norm(dim=2, keepdim=True)))
    for n in given.codewords:
        assigned = torch.zeros(x.shape[:2], dtype=torch.int64)
        if n > 1:
            centres = kmeans(x.flatten(0, 1)[::7], n, spherical=True, seed=given.seed)
            assigned = (x @ centres.T).argmax(-1)
        add("second order" if n == 1 else f"second order, {n} codewords", second_order(x, assigned, n))
    console.print(shown)


if __name__ == "__main__":
    main()
