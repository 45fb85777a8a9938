"""What higher orders could give at most: retrieval by the exact similarity that pooling of an order stands for.

    python benchmarks/orders.py CUB_200_2011 --weights vgg16.safetensors

Pooling of order k sums xᵏ⊗ (x, x ⊗ x, …) over an image's locations. Two images compare by

    K(X, Y) = Σ_x Σ_y (‖x‖ ‖y‖)^a cos(x, y)^k ,

whatever the number of dimensions that it would take to write the sums down: nothing is lost to a reduction, a
factorisation or 512 numbers. a says how much a location counts by its norm: a = 0 is ℓ2 at every location (the paper),
a = k leaves features as they are. Every second held-out class of fold 0 judges, the backbone is as it comes, and
nothing is learned. One block of images against all others at a time: no more than some hundred MB.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from measure import console, table
from secondsight import shipped
from secondsight.data.loading.batches import BatchLoader
from secondsight.data.loading.samplers import Sequential
from secondsight.memory import keep_freed
from secondsight.progress import track
from secondsight.train import recipe_file, run_inputs
from secondsight.train.assembly import build_model
from secondsight.train.sets import Sets, open_sets

ORDERS, EXPONENTS = (1, 2, 3, 4, 8), (0, 1, 2)
IMAGES = 32
"""Images of a block."""


@dataclass(frozen=True)
class Kernel:
    """Σ_x Σ_y (‖x‖ ‖y‖)^a cos(x, y)^k."""

    exponent: int
    order: int


def kernels(x: Tensor, chosen: Sequence[Kernel]) -> dict[Kernel, Tensor]:
    """The (n, n) similarities of images (n, L, d), normalised so that an image has 1 with itself."""
    n, places, _ = x.shape
    norms = x.norm(dim=2)
    unit = x / norms[..., None].clamp_min(1e-12)
    norms = norms / norms.mean()
    found = {kernel: x.new_zeros(n, n) for kernel in chosen}
    for i in track(range(0, n, IMAGES), f"{n} images, all pairs of locations"):
        rows = slice(i, min(n, i + IMAGES))
        for j in range(0, i + 1, IMAGES):
            columns = slice(j, min(n, j + IMAGES))
            cosine = unit[rows].flatten(0, 1) @ unit[columns].flatten(0, 1).T
            for order in {kernel.order for kernel in chosen}:
                power = cosine.pow(order).view(-1, places, cosine.shape[1])
                for exponent in {kernel.exponent for kernel in chosen if kernel.order == order}:
                    left, right = norms[rows] ** exponent, norms[columns] ** exponent
                    halfway = torch.einsum("ilm,il->im", power, left).view(len(left), -1, places)
                    similarity = torch.einsum("ijm,jm->ij", halfway, right)
                    found[Kernel(exponent, order)][rows, columns] = similarity
                    found[Kernel(exponent, order)][columns, rows] = similarity.T
    return {kernel: normalised(k) for kernel, k in found.items()}


def normalised(k: Tensor) -> Tensor:
    length = k.diagonal().sqrt()
    return k / length[:, None] / length


def recall(similarity: Tensor, labels: Tensor) -> float:
    """R@1 in %; the query itself does not count."""
    nearest = similarity.clone().fill_diagonal_(-torch.inf).argmax(1)
    return 100 * (labels[nearest] == labels).float().mean().item()


@torch.no_grad()
def features(data: str, weights: str | None) -> tuple[Tensor, Tensor]:
    """VGG16's local features of every second held-out class, and the labels."""
    words = [f"data.path={data}", "model.freeze=all", "validation.share=0.5"]
    recipe = recipe_file.read(
        shipped.find("cub-vgg16-jcf-32-8"), words + ([f"model.weights={weights}"] if weights else [])
    )
    sets = open_sets(recipe)
    assert sets.validation is not None
    judging = sets.validation.select_classes(range(0, len(sets.validation.classes), 2))
    model, _ = build_model(recipe, len(sets.train.classes))
    made = run_inputs.build(recipe, Sets(judging, None), model, device=torch.device("cpu"), say=console.print)
    loader = BatchLoader(made.train, batches=Sequential(len(made.train), 64))
    seen = [model.backbone.live_part(batch.images) for batch in loader]
    return torch.cat(seen), torch.tensor(judging.require_labels())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="?", help="CUB-200's folder")
    parser.add_argument("--weights", type=Path, help="of VGG16; without it, from the hub")
    given = parser.parse_args()
    if given.data is None:
        console.print("needs images, see --help")
        return
    keep_freed()
    x, labels = features(given.data, str(given.weights) if given.weights else None)
    found = kernels(x, [Kernel(a, k) for a in EXPONENTS for k in ORDERS])
    shown = table("R@1 by the exact similarity, nothing learned", "a", *(f"order {k}" for k in ORDERS))
    for a in EXPONENTS:
        shown.add_row(str(a), *(f"{recall(found[Kernel(a, k)], labels):.1f}" for k in ORDERS))
    console.print(shown)


if __name__ == "__main__":
    main()
