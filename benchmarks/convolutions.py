"""VGG16's convolutions by Winograd's form against torch's own (oneDNN), and against the products that the form needs.

    python benchmarks/convolutions.py [--quick]

Every shape of conv2 … conv5 at 224 pixels; ``torch`` is the better of its two memory formats. ``limit`` is the 36
products of matrices between the transforms (108 with backward).
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch
from torch import Tensor
from torch.nn import functional as F

from measure import console, interleaved, table
from secondsight.backbones.winograd import IN, OUT, conv3x3
from secondsight.memory import keep_freed

SHAPES = [(64, 112), (128, 112), (128, 56), (256, 56), (256, 28), (512, 28), (512, 14)]
"""Channels of the input (the output of a stage's first layer has twice as many below 512), and the image's side."""


def measured(channels: int, width: int, side: int, images: int, repeats: int) -> list[str]:
    torch.manual_seed(0)
    last = torch.randn(images, channels, side, side).relu().to(memory_format=torch.channels_last).requires_grad_()
    first = last.detach().contiguous().requires_grad_()
    weight = (torch.randn(width, channels, 3, 3) / (9 * channels) ** 0.5).requires_grad_()
    tiles = images * (-(-side // OUT)) ** 2
    left, right = torch.randn(IN * IN, tiles, channels), torch.randn(IN * IN, channels, width)
    out = torch.randn(IN * IN, tiles, width)

    def torchs(x: Tensor) -> Tensor:
        return F.conv2d(x, weight, padding=1)

    def forward(run, x: Tensor):
        def once() -> None:
            with torch.no_grad():
                run(x, weight) if run is conv3x3 else run(x)

        return once

    def both(run, x: Tensor):
        def once() -> None:
            y = run(x, weight) if run is conv3x3 else run(x)
            torch.autograd.grad(y, (x, weight), torch.ones_like(y))

        return once

    row = [f"{channels} → {width}, {side}×{side}", str(images)]
    for way, limit in (
        (forward, lambda: torch.bmm(left, right)),
        (both, lambda: (torch.bmm(left, right), torch.bmm(left.mT, out), torch.bmm(out, right.mT))),
    ):
        seconds = interleaved(
            {"ours": way(conv3x3, last), "last": way(torchs, last), "first": way(torchs, first), "limit": limit},
            repeats=repeats,
        )
        best = min(seconds["last"], seconds["first"])
        row += [f"{1e3 * seconds['ours']:.0f}", f"{1e3 * best:.0f}", f"{best / seconds['ours']:.2f}×"]
        row += [f"{seconds['ours'] / seconds['limit']:.2f}×"]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one shape, few repeats: whether it runs")
    quick = parser.parse_args().quick
    keep_freed()
    rows = []
    for channels, side in SHAPES[-1:] if quick else SHAPES:
        first_of_stage = (channels, side) in {(64, 112), (128, 56), (256, 28)}
        images = max(4, min(64, 64 * 14 * 14 // side**2))
        rows.append(measured(channels, channels * 2 if first_of_stage else channels, side, images, 1 if quick else 5))
    columns = ["ms", "torch", "faster", "of limit"]
    shown = table(
        f"3×3 convolutions, {torch.get_num_threads()} thread(s)",
        "layer",
        "images",
        *columns,
        "ms with backward",
        *columns[1:],
    )
    for row in rows:
        shown.add_row(*row)
    console.print(shown)


if __name__ == "__main__":
    main()
