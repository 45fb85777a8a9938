"""Two collages that share one of four emoji: how much of the positive evidence lies on it?

    python benchmarks/explain_truth.py [--pairs 16]

Heads that nobody trained, on EfficientNet-Lite0's features of the collages as they are, and on features of each emoji
alone, put together afterwards: these have not seen their surroundings. Readings of the same links: as they are; what
removing a place would do; after the mean contribution of a collection is taken off; and links that are stronger than 99
or 99.9 % of the links that both places have with other collages (``explain.beyond_chance``).
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import collages
from measure import console, table
from secondsight import Embedder, explain
from secondsight.explain import Places, from_features
from secondsight.explain.geometry import Frame

HEADS = {
    "jcf-32-8": {"pooling": "jcf-32-8"},
    "jcf-32-8, power and whitening": {
        "pooling": "jcf-32-8",
        "norm_exponent": 0.0,
        "pooling_options": {"start": "square", "power": 0.5, "whiten": 0.25, "width": 640},
    },
    "average": {"pooling": "average"},
}


def drawn(files: list, things: list[int], ground: str, *, side: int) -> Image.Image:
    """``side`` × ``side`` emoji of 96 pixels in cells of 112."""
    canvas = Image.new("RGB", (112 * side, 112 * side), ground)
    for number, thing in enumerate(things):
        emoji = Image.open(files[thing]).convert("RGBA").resize((96, 96), Image.Resampling.LANCZOS)
        canvas.paste(emoji, (112 * (number % side) + 8, 112 * (number // side) + 8), emoji)
    return canvas


@torch.no_grad()
def features(model: Embedder, pictures: list[Image.Image]) -> Tensor:
    x = torch.from_numpy(np.stack([np.array(p) for p in pictures])).permute(0, 3, 1, 2)
    return torch.cat([model.backbone(some) for some in x.split(16)])


def both(model: Embedder, files: list, plan: list[tuple[list[int], str]]) -> dict[str, tuple[Tensor, tuple[int, int]]]:
    """Features of whole collages, and of their emoji apart, put together in the same order."""
    whole = features(model, [drawn(files, things, ground, side=2) for things, ground in plan])
    tiles = features(model, [drawn(files, [t], ground, side=1) for things, ground in plan for t in things])
    side = round(tiles.shape[1] ** 0.5)
    grids = tiles.view(len(plan), 2, 2, side, side, -1).transpose(2, 3).reshape(len(plan), 4 * side * side, -1)
    here = round(whole.shape[1] ** 0.5)
    return {"as they are": (whole, (here, here)), "embedded apart": (grids, (2 * side, 2 * side))}


def readings(a: Places, b: Places, others: list[Places]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Maps of both images: positive evidence of each place."""
    why = explain.pair(a.model, a, b)
    mean = torch.stack([other.scaled.mean(0) for other in others]).mean(0)
    centred = (a.scaled - mean) @ (b.scaled - mean).mT
    found = {
        "share": (why.a.ravel(), why.b.ravel()),
        "effect": (why.effect_a.ravel(), why.effect_b.ravel()),
        "share, mean taken off": (centred.sum(1).numpy(), centred.sum(0).numpy()),
    }
    for quantile in (0.99, 0.999):
        rare = explain.beyond_chance(why, others, quantile=quantile)
        found[f"beyond chance, {100 * quantile:g} %"] = rare.a.ravel(), rare.b.ravel()
    return {name: (x.clip(0), y.clip(0)) for name, (x, y) in found.items()}


def quarter(number: int) -> tuple[float, float, float, float]:
    row, column = divmod(number, 2)
    return column / 2, row / 2, (column + 1) / 2, (row + 1) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--others", type=int, default=40)
    options = parser.parse_args()
    rng, files = np.random.default_rng(0), collages.emoji()
    things, at = iter(rng.permutation(2000).tolist()), rng.integers(4, size=(options.pairs, 2)).tolist()
    plan = []
    for first, second in at:
        shared, *rest = [next(things) for _ in range(7)]
        grounds = rng.choice(len(collages.BACKGROUNDS), 2, replace=False)
        for place, some, ground in ((first, rest[:3], grounds[0]), (second, rest[3:], grounds[1])):
            plan.append(([*some[:place], shared, *some[place:]], collages.BACKGROUNDS[ground]))
    grounds = [collages.BACKGROUNDS[i] for i in rng.integers(6, size=options.others)]
    plan += [([next(things) for _ in range(4)], ground) for ground in grounds]
    seen = both(Embedder.build(backbone="efficientnet-lite0").eval(), files, plan)
    shown = table(
        f"positive evidence on the emoji that two collages share, {options.pairs} pairs; by chance 25 %",
        "reading",
        *(f"{head}: {way}" for head in HEADS for way in seen),
    )
    found: dict[str, dict[str, list[float]]] = {}
    for head, keys in HEADS.items():
        for way, (x, grid) in seen.items():
            torch.manual_seed(0)
            model = Embedder.build(backbone="efficientnet-lite0", **keys).eval()
            model.fit([x[2 * options.pairs :]], grid=grid)
            places = [from_features(model, one[None], frame=Frame(grid)) for one in x]
            for pair, where in enumerate(at):
                maps = readings(places[2 * pair], places[2 * pair + 1], places[2 * options.pairs :])
                for name, both_maps in maps.items():
                    on = [m @ Frame(grid).coverage(quarter(w)).ravel() for m, w in zip(both_maps, where, strict=True)]
                    parts = [value / m.sum() for value, m in zip(on, both_maps, strict=True) if m.sum()]
                    found.setdefault(name, {}).setdefault(head + way, []).extend(parts)
    for name, cells in found.items():
        shown.add_row(name, *(f"{100 * np.mean(values):.0f} %" for values in cells.values()))
    console.print(shown)


if __name__ == "__main__":
    main()
