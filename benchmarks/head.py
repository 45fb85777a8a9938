"""The JCF contraction against its limit (a plain matrix product) and against what a user would write instead.

    python benchmarks/head.py [--quick]

One run, B = 64, d = 256, D = 512, L = 49 and 196, ``jcf-32`` and ``jcf-32-8``. Variants:

    gemm       a plain matrix product with the same number of floating-point operations (three of them with backward)
    ours       secondsight.functional.pooling.jcf
    einsum     the equation transcribed, hᵀ Uᵀ x, with a three-operand einsum a factor (torch contracts left to right)
    h⊗x        the same einsum with its operands in the lucky order, h, x, U: it stores h ⊗ x for all locations
    weigh      project with every projector first, weigh with h afterwards
    top-1      ours, one of the 32 codewords a location

Peak memory is what forward + backward adds to a process that already holds inputs and parameters, each variant in its
own process.
"""

from __future__ import annotations

import argparse
import json
import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch
from torch import Tensor

from measure import console, in_fresh_process, interleaved, peak_memory, table, verdict
from secondsight.functional.pooling.jcf import jcf

B, D_IN, D_OUT, CODEWORDS = 64, 256, 512, 32
WAYS = {"ours": "ours", "einsum": "einsum", "h⊗x": "outer", "weigh": "weigh", "top-1": "top1"}


class Case:
    """Inputs of one layer: coefficients over ``projectors`` projectors, shared (``jcf-32``) or apart (``jcf-32-8``)."""

    def __init__(self, name: str, locations: int):
        torch.manual_seed(0)
        self.name, self.locations = name, locations
        self.n = 8 if name == "jcf-32-8" else CODEWORDS
        self.x = torch.randn(B, locations, D_IN).requires_grad_()
        self.h = torch.rand(B, locations, self.n).softmax(-1).requires_grad_()
        self.g = torch.rand(B, locations, self.n).softmax(-1).requires_grad_() if name == "jcf-32-8" else None
        self.uv = (torch.randn(self.n, D_IN, 2 * D_OUT) / 16).requires_grad_()
        self.index = torch.randint(self.n, (B, locations, 1))
        self.one = torch.ones(B, locations, 1, requires_grad=True)

    def ours(self) -> Tensor:
        return jcf(self.x, self.h, self.uv, g=self.g)

    def top1(self) -> Tensor:
        return jcf(self.x, self.one, self.uv, index=self.index)

    def einsum(self) -> Tensor:
        u, v = self.uv.chunk(2, -1)
        g = self.h if self.g is None else self.g
        a = torch.einsum("bln,ndo,bld->blo", self.h, u, self.x)
        return (a * torch.einsum("bln,ndo,bld->blo", g, v, self.x)).sum(1)

    def outer(self) -> Tensor:
        u, v = self.uv.chunk(2, -1)
        g = self.h if self.g is None else self.g
        a = torch.einsum("bln,bld,ndo->blo", self.h, self.x, u)
        return (a * torch.einsum("bln,bld,ndo->blo", g, self.x, v)).sum(1)

    def weigh(self) -> Tensor:
        u, v = self.uv.chunk(2, -1)
        g = self.h if self.g is None else self.g

        def factor(h: Tensor, w: Tensor) -> Tensor:
            wide = self.x @ w.transpose(0, 1).reshape(D_IN, -1)  # (B, L, n · D)
            return (wide.view(B, self.locations, self.n, D_OUT) * h[..., None]).sum(2)

        return (factor(self.h, u) * factor(g, v)).sum(1)

    def gemms(self) -> list[tuple[Tensor, Tensor]]:
        """The operands of the products that no implementation can avoid: forward, input gradient, weight gradient."""
        rows, inner, outer = B * self.locations, self.n * D_IN, 2 * D_OUT
        hx, w, gz = torch.randn(rows, inner), torch.randn(inner, outer), torch.randn(rows, outer)
        return [(hx, w), (gz, w.T), (hx.T, gz)]


def speed(case: Case, repeats: int) -> dict[str, dict[str, float]]:
    operands = case.gemms()

    def train(run):
        def step():
            for t in (case.x, case.h, case.g, case.uv, case.one):
                if t is not None:
                    t.grad = None
            run().sum().backward()

        return step

    def infer(run):
        def step():
            with torch.no_grad():
                run()

        return step

    ways = {way: getattr(case, method) for way, method in WAYS.items() if way != "top-1" or case.name == "jcf-32"}
    forward = {"gemm": lambda: operands[0][0] @ operands[0][1], **{k: infer(f) for k, f in ways.items()}}
    both = {"gemm": lambda: [a @ b for a, b in operands], **{k: train(f) for k, f in ways.items()}}
    return {"forward": interleaved(forward, repeats=repeats), "both": interleaved(both, repeats=repeats)}


def memory(name: str, locations: int, way: str) -> int:
    getattr(Case(name, 1), way)().sum().backward()  # code is loaded and the BLAS has its buffers before we look
    case = Case(name, locations)
    run = getattr(case, way)
    return peak_memory(lambda: run().sum().backward())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="L = 49 only, three repeats")
    parser.add_argument("--memory", nargs=3, metavar=("NAME", "L", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        name, locations, way = options.memory
        print(json.dumps({"bytes": memory(name, int(locations), way)}))
        return
    for name in ("jcf-32", "jcf-32-8"):
        for locations in (49,) if options.quick else (49, 196):
            report(name, locations, repeats=3 if options.quick else 7)


def report(name: str, locations: int, repeats: int) -> None:
    case = Case(name, locations)
    flops = 2 * B * locations * case.n * D_IN * 2 * D_OUT
    seconds = speed(case, repeats)
    ways = list(seconds["forward"])
    peak = {
        way: in_fresh_process(__file__, "--memory", name, str(locations), WAYS[way])["bytes"]
        for way in ways
        if way != "gemm"
    }
    shown = table(
        f"{name}, L = {locations}: {flops / 1e9:.1f} GFLOP forward", "", "fwd ms", "GFLOP/s", "fwd+bwd ms", "extra MB"
    )
    for way in ways:
        fwd, both = seconds["forward"][way], seconds["both"][way]
        work = flops / CODEWORDS if way == "top-1" else flops
        extra = f"{peak[way] / 1e6:.0f}" if way in peak else "–"
        shown.add_row(way, f"{1e3 * fwd:.1f}", f"{work / fwd / 1e9:.0f}", f"{1e3 * both:.1f}", extra)
    console.print(shown)
    fwd, both = seconds["forward"], seconds["both"]
    claims = {
        "forward, share of the GEMM's speed": verdict(fwd["gemm"] / fwd["ours"], 0.8, at_least=True),
        "forward + backward, share of the GEMM's speed": verdict(both["gemm"] / both["ours"], 0.7, at_least=True),
        "forward, times faster than einsum": verdict(fwd["einsum"] / fwd["ours"], 5, at_least=True),
        "forward, times faster than h⊗x": f"{fwd['h⊗x'] / fwd['ours']:.2f}×",
        "forward, times faster than weigh": f"{fwd['weigh'] / fwd['ours']:.2f}×",
        "extra memory, share of einsum's": verdict(peak["ours"] / peak["einsum"], 1 / 6, at_least=False),
        "extra memory, share of h⊗x's": f"{peak['ours'] / peak['h⊗x']:.2f}×",
    }
    if "top-1" in fwd:
        claims["top-1, times faster than dense, forward"] = verdict(fwd["ours"] / fwd["top-1"], 8, at_least=True)
        claims["top-1, times faster than dense, both"] = f"{both['ours'] / both['top-1']:.2f}×"
    for claim, value in claims.items():
        console.print(f"  {claim}: {value}")


if __name__ == "__main__":
    main()
