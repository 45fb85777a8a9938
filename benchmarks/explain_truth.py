"""Two collages that share one of four emoji: how much of the positive evidence lies on it?

    python benchmarks/explain_truth.py [--pairs 40] [--others 300] [--seed 1]

Heads that nobody trained, on EfficientNet-Lite0's features of the collages as they are, and on features of each emoji
alone, put together afterwards: these have not seen their surroundings. Readings of a place's contribution p, with unit
vectors u_a and u_b and the mean m of other collages: its share p · u_b; its effect; its share in the contrast,
p · (u_b − m); its share and its effect in the cosine of centred vectors; and the part of its share beyond what a
quantile of the other collages get (``distinct``).
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import collages
from explain import standard_error
from measure import console, table
from secondsight import Embedder
from secondsight.explain import Places, from_features
from secondsight.explain.algebra import effects
from secondsight.explain.distinct import distinct
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


def readings(here: Places, there: Places, others: Tensor) -> dict[str, np.ndarray]:
    """Positive evidence of each place of one collage."""
    p, own, other, mean = here.scaled, here.unit, there.unit, others.mean(0)
    centred_p, centred_own, centred_other = p - mean / len(p), own - mean, other - mean
    near, far = (x / x.norm() for x in (centred_own, centred_other))
    found = {
        "share": p @ other,
        "effect": effects(p, own, other),
        "share in the contrast": p @ centred_other,
        "share in the centred cosine": centred_p @ far,
        "effect on the centred cosine": effects(centred_p / centred_own.norm(), near, far),
    }
    for quantile in (0.9, 0.95, 0.98, 0.99, 1.0):
        name = f"distinct: share beyond {100 * quantile:g} % of others"
        found[name] = distinct(p, other, others.numpy(), quantile=quantile)
    return {name: values.clamp_min(0).numpy() for name, values in found.items()}


def quarter(number: int) -> tuple[float, float, float, float]:
    row, column = divmod(number, 2)
    return column / 2, row / 2, (column + 1) / 2, (row + 1) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--others", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1, help="of the emoji and the pairs; the quantile was chosen on 0")
    options = parser.parse_args()
    rng, files = np.random.default_rng(options.seed), collages.emoji(options.seed)
    things, at = iter(rng.permutation(len(files)).tolist()), rng.integers(4, size=(options.pairs, 2)).tolist()
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
            others = torch.stack([other.unit for other in places[2 * options.pairs :]])
            for pair, where in enumerate(at):
                both_ways = places[2 * pair : 2 * pair + 2]
                for here, there, on in zip(both_ways, both_ways[::-1], where, strict=True):
                    cover = Frame(grid).coverage(quarter(on)).ravel()
                    for name, values in readings(here, there, others).items():
                        if values.sum():
                            part = values @ cover / values.sum()
                            found.setdefault(name, {}).setdefault(head + way, []).append(part)
    for name, cells in found.items():
        shown.add_row(
            name,
            *(
                f"{100 * np.mean(values):.0f} ± {100 * standard_error(np.array(values)):.0f} %"
                for values in cells.values()
            ),
        )
    console.print(shown)


if __name__ == "__main__":
    main()
