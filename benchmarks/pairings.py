"""A set on which averaging is provably blind: classes differ only in which features occur *together*.

    python benchmarks/pairings.py [--draw docs/pictures/pairings.svg]

Five colours, five shapes. A class says which shape has which colour (a permutation; 120 classes), an image shows every
colour and every shape equally often. A location is the sum of a direction for its colour and one for its shape, plus
noise: Σ x is the same vector for all classes, so whatever follows an average cannot tell them apart, while Σ x xᵀ holds
the pairing. Sixty classes teach, the sixty others judge; chance is 1/60.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import Tensor, nn

from measure import console, table
from secondsight import evaluate, files, losses
from secondsight.pooling import build

KINDS = 5  # colours, and shapes
TIMES = 4  # that each occurs in an image
CLASSES = list(itertools.permutations(range(KINDS)))
D, OUT = 32, 64
POOLINGS = ("average", "max", "gem", "netvlad-8", "bp", "jcf", "jcf-8", "jcf-8-4")


def directions(seed: int = 0) -> tuple[Tensor, Tensor]:
    """(KINDS, D) each: orthogonal unit vectors for the colours and for the shapes, along no axis."""
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(D, D, generator=generator)).Q
    return basis[:KINDS], basis[KINDS : 2 * KINDS]


def images(pairings: Tensor, *, noise: float, generator: torch.Generator) -> Tensor:
    """(B, KINDS) shapes of the colours → (B, KINDS · TIMES, D) local features, in any order."""
    colours, shapes = directions()
    clean = (colours + shapes[pairings]).repeat(1, TIMES, 1)
    order = torch.rand(clean.shape[:2], generator=generator).argsort(1)
    clean = clean.take_along_dim(order[..., None], 1)
    return clean + noise * torch.randn(clean.shape, generator=generator)


def split() -> tuple[Tensor, Tensor]:
    """Pairings that teach, and pairings that judge."""
    order = torch.randperm(len(CLASSES), generator=torch.Generator().manual_seed(0))
    pairings = torch.tensor(CLASSES)[order]
    return pairings[: len(CLASSES) // 2], pairings[len(CLASSES) // 2 :]


def recall(head: nn.Module, pairings: Tensor, *, noise: float, seed: int, per_class: int = 10) -> float:
    """Recall@1 in per cent, on images never seen."""
    labels = torch.arange(len(pairings)).repeat_interleave(per_class)
    x = images(pairings[labels], noise=noise, generator=torch.Generator().manual_seed(1000 + seed))
    with torch.no_grad():
        return 100 * evaluate.retrieval(head.eval()(x), labels, bootstrap=0).recall[1]


def learned(name: str, *, seed: int, steps: int, noise: float) -> tuple[float, float]:
    """Recall@1 on the classes that judge, before and after learning from the others."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    teach, judge = split()
    options: dict[str, Any] = {"start": "average"} if name.startswith("jcf") else {}
    head = build(name, in_dim=D, out_dim=OUT, **options)
    labels = torch.arange(len(teach))
    head.fit(images(teach, noise=noise, generator=generator))
    before = recall(head, judge, noise=noise, seed=seed)
    loss = losses.build("proxy-anchor", dim=OUT, classes=len(teach))
    groups = [{"params": head.parameters(), "lr": 3e-3}, {"params": loss.parameters(), "lr": 3e-2}]
    optimiser = torch.optim.AdamW(groups)
    head.train()
    for _ in range(steps):
        chosen = labels[torch.randperm(len(labels), generator=generator)[:30]].repeat_interleave(4)
        optimiser.zero_grad()
        loss(head(images(teach[chosen], noise=noise, generator=generator)), chosen).backward()
        optimiser.step()
    return before, recall(head, judge, noise=noise, seed=seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"poolings; {', '.join(POOLINGS)} when none is given")
    parser.add_argument("--noise", type=float, default=0.1, help="of every number of a local feature (default 0.1)")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--draw", type=Path, metavar="SVG", help="only draw two images of two classes")
    options = parser.parse_args()
    if options.draw:
        files.write_text(options.draw, drawing())
        return
    title = f"R@1 on {len(split()[1])} pairings never seen, noise {options.noise:g}, {options.seeds} seeds"
    shown = table(title, "", "untrained", f"after {options.steps} steps")
    for name in options.names or POOLINGS:
        runs = [
            learned(name, seed=seed, steps=options.steps, noise=options.noise)
            for seed in track(range(options.seeds), name, console=console, transient=True)
        ]
        shown.add_row(name, *(_spread(column) for column in zip(*runs, strict=True)))
    console.print(shown)


def _spread(values: tuple[float, ...]) -> str:
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


COLOURS = ("#d64545", "#3e6990", "#e0a526", "#4f9d69", "#8e5ea2")
PATHS = (  # circle, square, triangle, diamond, cross; in a box of −1 … 1
    "M-1,0a1,1 0 1,0 2,0a1,1 0 1,0 -2,0z",
    "M-.85,-.85h1.7v1.7h-1.7z",
    "M0,-1L1,.8H-1z",
    "M0,-1.1L.9,0L0,1.1L-.9,0z",
    "M-.35,-1h.7v.65h.65v.7h-.65v.65h-.7v-.65h-.65v-.7h.65z",
)


def drawing(cell: int = 44) -> str:
    """Two images as they would look: the same colours and the same shapes, paired differently."""
    generator = torch.Generator().manual_seed(3)
    columns, gap = KINDS, 60
    side = columns * cell
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * side + gap} {TIMES * cell}" '
        f'width="{2 * side + gap}" role="img" aria-label="Two grids with the same colours and the same shapes, '
        'in other pairs">'
    ]
    for i, pairing in enumerate((CLASSES[0], CLASSES[37])):
        left = i * (side + gap)
        parts.append(f'<rect x="{left}" width="{side}" height="{TIMES * cell}" rx="6" fill="#f6f4ef"/>')
        for place, what in enumerate(torch.randperm(KINDS * TIMES, generator=generator).tolist()):
            colour = what % KINDS
            x, y = left + (place % columns + 0.5) * cell, (place // columns + 0.5) * cell
            parts.append(
                f'<path transform="translate({x:g} {y:g}) scale({cell * 0.3:g})" d="{PATHS[pairing[colour]]}" '
                f'fill="{COLOURS[colour]}"/>'
            )
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    main()
