"""Retrieval figures against the bare matrix product, faiss and pytorch-metric-learning, in one run.

    python benchmarks/evaluate.py [--quick]

Targets: all Recall@K and MAP@R in the time of one full product Z Zᵀ or less; 5 times as fast as faiss' exact search for
the 1,000 nearest; less than 1 GB on top of the embeddings; time grows as n², memory as n. The embeddings are drawn
around class centres such that Recall@1 is about that of a trained network (print it: pruning depends on it).

Where the whole would take too long, faiss is timed on a share of the queries and scaled up (its work is proportional to
the number of queries); the table says so.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import numpy as np
import torch

from measure import console, in_fresh_process, interleaved, peak_memory, table, verdict

if TYPE_CHECKING:
    from secondsight.evaluate import Report

KS = (1, 10, 100, 1000)
SIZES = {"10k": (10_000, 2_000), "SOP": (60_502, 11_316)}
DIM = 512
BLOCK = 2048
SHARE = 100_000_000  # similarities after which faiss is cut short


def embeddings(n: int, classes: int, *, noise: float = 1.9) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors around ``classes`` centres, as float32, and labels in no order."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(n) % classes)
    # Centres that share directions: classes are confused with their neighbours, not with everyone.
    centres = rng.standard_normal((classes, 48), dtype=np.float32) @ rng.standard_normal((48, DIM), dtype=np.float32)
    x = centres[labels] + noise * 48**0.5 * rng.standard_normal((n, DIM), dtype=np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True), labels


def ours(x: np.ndarray, labels: np.ndarray) -> Callable[[], Report]:
    from secondsight.evaluate import retrieval

    return lambda: retrieval(x, labels, ks=KS, bootstrap=0)


def gemm(x: np.ndarray) -> Callable[[], object]:
    """Z Zᵀ and nothing else, in blocks that fit the cache; the result is written over."""
    z = torch.from_numpy(x)
    buffer = torch.empty(BLOCK * BLOCK)

    def run() -> None:
        for rows in z.split(BLOCK):
            for columns in z.split(BLOCK):
                torch.mm(rows, columns.T, out=buffer[: len(rows) * len(columns)].view(len(rows), len(columns)))

    return run


def flat(x: np.ndarray, queries: int) -> Callable[[], object]:
    import faiss

    index = faiss.IndexFlatIP(x.shape[1])
    index.add(x)
    return lambda: index.search(x[:queries], min(1000, len(x)))


def calculator(x: np.ndarray, labels: np.ndarray) -> Callable[[], object]:
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    calculate = AccuracyCalculator(
        include=("precision_at_1", "mean_average_precision_at_r", "r_precision"),
        k="max_bin_count",
        device=torch.device("cpu"),
    )
    return lambda: calculate.get_accuracy(torch.from_numpy(x), torch.from_numpy(labels))


def memory(n: int, classes: int) -> None:
    """In a process of its own: what the figures need beyond the embeddings."""
    x, labels = embeddings(n, classes)
    small = embeddings(500, 50)
    ours(*small)()  # libraries are loaded and threads are started before the count begins
    print(json.dumps({"peak": peak_memory(ours(x, labels))}))


def compare(name: str, n: int, classes: int, repeats: int) -> float:
    x, labels = embeddings(n, classes)
    queries = min(n, max(500, SHARE // n))
    variants: dict[str, Callable[[], object]] = {"ours": ours(x, labels), "gemm": gemm(x), "faiss": flat(x, queries)}
    if n <= 10_000:
        variants["pml"] = calculator(x, labels)
    seconds = interleaved(variants, repeats=repeats)
    seconds["faiss"] *= n / queries
    peak = in_fresh_process(__file__, "--memory", str(n), str(classes))["peak"]
    recall = ours(x, labels)().recall[1]
    rows = table(f"{name}: {n:,} × {DIM}, {classes:,} classes, R@1 {100 * recall:.1f} %", "what", "s", "ours is")
    rows.add_row("[bold]ours[/]: Recall@{1,10,100,1000}, MAP@R, R-precision, MRR", f"{seconds['ours']:.2f}", "")
    rows.add_row(
        "the bare product Z Zᵀ, in blocks",
        f"{seconds['gemm']:.2f}",
        verdict(seconds["ours"] / seconds["gemm"], 1, at_least=False),
    )
    cut = "" if queries == n else f" ({queries:,} queries timed, scaled)"
    rows.add_row(
        f"faiss IndexFlatIP, k = 1000{cut}",
        f"{seconds['faiss']:.2f}",
        verdict(seconds["faiss"] / seconds["ours"], 5, at_least=True, unit="× faster"),
    )
    if "pml" in seconds:
        rows.add_row(
            "pytorch-metric-learning: P@1, MAP@R, R-precision only",
            f"{seconds['pml']:.2f}",
            f"{seconds['pml'] / seconds['ours']:.2f}× faster",
        )
    rows.add_row("peak memory beyond the embeddings", "", verdict(peak / 1e9, 1, at_least=False, unit=" GB"))
    console.print(rows)
    return seconds["ours"]


def growth(sizes: tuple[int, ...]) -> None:
    """Time as n² and memory as n: the figures per pair and per item should stay level."""
    rows = table("growth", "items", "s", "ns per pair", "bytes per item beyond the embeddings")
    for n in sizes:
        x, labels = embeddings(n, n // 5)
        seconds = interleaved({"ours": ours(x, labels)}, repeats=3)["ours"]
        peak = in_fresh_process(__file__, "--memory", str(n), str(n // 5))["peak"]
        rows.add_row(f"{n:,}", f"{seconds:.2f}", f"{1e9 * seconds / n**2:.2f}", f"{peak / n:,.0f}")
    console.print(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="10k only, fewer repeats")
    parser.add_argument("--memory", nargs=2, type=int, metavar=("N", "CLASSES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        memory(*options.memory)
        return
    console.print(f"{torch.get_num_threads()} threads; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    compare("10k", *SIZES["10k"], repeats=3 if options.quick else 7)
    if options.quick:
        return
    compare("SOP's size", *SIZES["SOP"], repeats=3)
    growth((5_000, 10_000, 20_000, 40_000))


if __name__ == "__main__":
    sys.exit(main())
