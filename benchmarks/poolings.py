"""Every pooling against ``average`` and against the operation that no implementation of it can avoid.

    python benchmarks/poolings.py [--quick] [NAME …]

One run, B = 64, L = 196 (14×14), d = 256, forward and forward + backward. Poolings that are wide by nature are measured
without their projection to 512. The limit is the method's dominant operation: the matrix products of its equation at
the shapes they have there (three with backward, for each that has two inputs to differentiate), its
eigendecomposition, or one pass over the features. Nothing may take more than 1.5 times its limit. Peak memory is what
forward + backward adds to a process that already holds inputs and parameters, each pooling in its own process; the
features themselves are 13 MB.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
from collections.abc import Callable
from dataclasses import dataclass

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import torch
from torch import Tensor

from measure import console, in_fresh_process, interleaved, peak_memory, table, verdict
from secondsight.memory import keep_freed
from secondsight.pooling import POOLINGS, Pooling, build, family

B, D, OUT, GRID = 64, 256, 512, (14, 14)
L = GRID[0] * GRID[1]
TARGET = 1.5

Work = Callable[[], object]


@dataclass(frozen=True)
class Limit:
    """A method's dominant operation, as plain calls."""

    what: str
    forward: tuple[Work, ...]
    backward: tuple[Work, ...]


def products(what: str, *shapes: tuple[int, int, int, int], constant: bool = False) -> Limit:
    """Products (batch, m, k)·(batch, k, n), with two more for each in the backward pass; one if a side is constant, or
    if both are the same matrix (XᵀX).
    """
    forward, backward = [], []
    for batch, m, k, n in shapes:
        a, b, c = torch.randn(batch, m, k), torch.randn(batch, k, n), torch.randn(batch, m, n)
        forward.append(_product(a, b))
        backward.append(_product(c, b.mT))
        if not constant:
            backward.append(_product(a.mT, c))
    return Limit(what, tuple(forward), tuple(backward))


def assignment(shape: tuple[int, int, int, int]) -> Limit:
    """A product that only says which codeword is nearest: nothing flows back through it."""
    return Limit("", products("", shape).forward, ())


def together(what: str, *limits: Limit) -> Limit:
    """One limit after the other."""
    return Limit(what, sum((limit.forward for limit in limits), ()), sum((limit.backward for limit in limits), ()))


def _product(a: Tensor, b: Tensor) -> Work:
    return (lambda: a[0] @ b[0]) if len(a) == 1 else (lambda: a @ b)


def eigh(n: int, *, changes_of_basis: int = 0) -> Limit:
    """One eigendecomposition an image; the backward pass needs none, but products with the n×n eigenvectors."""
    x = torch.randn(B, 2 * n, n)
    gram = x.mT @ x
    backward = (lambda: gram @ gram,) * changes_of_basis
    return Limit(f"eigh {n}×{n}", (lambda: torch.linalg.eigh(gram),), backward)


def one_pass(what: str, forward: Callable[[Tensor], object], backward: Callable[[Tensor], object]) -> Limit:
    """One elementwise or reducing pass over all features, and one back."""
    x = torch.rand(B, L, D)
    return Limit(what, (lambda: forward(x),), (lambda: backward(x),))


ROWS = B * L


def gram() -> Limit:
    """XᵀX of every image."""
    return products("Gram", (B, D, L, D), constant=True)


# Name → its limit.
LIMITS: dict[str, Callable[[], Limit]] = {
    "average": lambda: one_pass("sum", lambda x: x.sum(1), lambda x: x[:, :1].repeat(1, L, 1)),
    "max": lambda: one_pass("max", lambda x: x.amax(1), lambda x: x.max(1)),
    "gem": lambda: one_pass("power", lambda x: x.pow(torch.tensor(3.0)), lambda x: x.pow(torch.tensor(2.0))),
    "bp": lambda: together("d² × D", gram(), products("", (1, B, D * D, OUT))),
    "cbp-ts-8192": lambda: together("Gram", gram()),  # its FFTs would take ten times as long
    "cbp-rm-8192": lambda: products("Gram × sketch", (1, B * D, D, 8192), constant=True),
    "lrbp": lambda: together(
        "P, U",
        products("", (1, ROWS, D, 100), (1, B, 100 * 100, OUT)),
        products("", (B, 100, L, 100), constant=True),
    ),
    "fbn": lambda: together(
        "Gram, FᵀF, d² × D", gram(), products("", (OUT, D, 20, D), constant=True), products("", (1, B, D * D, OUT))
    ),
    "hadamard": lambda: products("U, V", (1, ROWS, D, 2 * (512 + 128))),
    "mlb": lambda: products("U, V of the attention", (1, ROWS, D, 2 * 512)),
    "grassmann": lambda: eigh(min(L, D)),
    "grassmann-full": lambda: eigh(min(L, D)),
    "mpn-cov": lambda: eigh(D, changes_of_basis=4),
    "isqrt-cov": lambda: together("12 × d³", gram(), products("", *[(B, D, D, D)] * 12)),
    "vlad-32": lambda: together(
        "assign, sum", assignment((1, ROWS, D, 32)), products("", (B, 32, L, D), constant=True)
    ),
    "netvlad-32": lambda: products("assign, sum", (1, ROWS, D, 32), (B, 32, L, D)),
    "fisher-16": lambda: together(
        "assign, sum", products("", *[(1, ROWS, D, 16)] * 2, constant=True), products("", *[(B, 16, L, D)] * 2)
    ),
    "fishernet-16": lambda: products("assign, sum", *[(1, ROWS, D, 16)] * 2, *[(B, 16, L, D)] * 2),
    "mfa-fv-8-8": lambda: together(
        "factors, sum, S⁻¹",
        products("", (1, ROWS, D, 72), (1, ROWS, D, 8), constant=True),
        products("", (B, 72, L, D)),
        products("", (8, 9, 9, B * D), (8, 9 * B, D, 8), (8, 9 * B, 9, D), constant=True),
    ),
    "mfafvnet-8-8": lambda: products(
        "factors, sum, S⁻¹",
        *((1, ROWS, D, 72), (1, ROWS, D, 8), (B, 72, L, D)),
        *((8, 9, 9, B * D), (8, 9 * B, D, 8), (8, 9 * B, 9, D)),
    ),
    "vlat-16": lambda: together(
        "assign, project, Gram",
        assignment((1, ROWS, D, 16)),
        products("", (16, ROWS // 16, D, 32), (16 * B, 32, L // 16, 32), constant=True),
    ),
    "sta-8": lambda: together(
        "project, assign, pairs",
        products("", (1, ROWS, D, 16), constant=True),
        assignment((1, ROWS, 16, 8)),
        products("", (B, 128, L, 128)),
    ),
    "ista-8": lambda: together(
        "assign, project, pairs",
        assignment((1, ROWS, D, 8)),
        products("", (8, ROWS // 8, D, 16), constant=True),
        products("", (B, 128, L, 128)),
    ),
    "jcf-32": lambda: products("h⊗x × [U V]", (1, ROWS, D, 32), (1, ROWS, 32 * D, 2 * OUT)),
    "jcf-32-8": lambda: products("h⊗x × [U V]", (1, ROWS, D, 32), *[(1, ROWS, 8 * D, OUT)] * 2),
}


def features(images: int) -> Tensor:
    """Local features with clusters in them, of about unit length."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(40, D, generator=generator)
    chosen = torch.randint(40, (images, L), generator=generator)
    noise = torch.randn(images, L, D, generator=generator)
    return (centres[chosen] + noise) / (2 * D) ** 0.5


def made(name: str) -> Pooling:
    """The pooling, fitted on a few images; without a projection where it is wide by nature."""
    torch.manual_seed(0)
    pooling = build(name, in_dim=D, out_dim=OUT if POOLINGS[family(name)].takes_out_dim else None)
    pooling.fit([features(16)], grid=GRID)
    return pooling.train()


def step(pooling: Pooling, x: Tensor) -> Work:
    def run() -> None:
        x.grad = None
        pooling.zero_grad()
        z = pooling(x, grid=GRID)
        z.backward(torch.ones_like(z))

    return run


def infer(pooling: Pooling, x: Tensor) -> Work:
    def run() -> None:
        with torch.no_grad():
            pooling(x, grid=GRID)

    return run


def seconds(name: str, average: Pooling, x: Tensor, *, repeats: int) -> dict[str, dict[str, float]]:
    """Medians of the pooling, its limit and ``average``, which take turns; forward, and forward + backward."""
    pooling, limit = made(name), LIMITS[name]()
    forward = {
        "ours": infer(pooling, x),
        "limit": lambda: [work() for work in limit.forward],
        "average": infer(average, x),
    }
    both = {
        "ours": step(pooling, x),
        "limit": lambda: [work() for work in (*limit.forward, *limit.backward)],
        "average": step(average, x),
    }
    return {"forward": interleaved(forward, repeats=repeats), "both": interleaved(both, repeats=repeats)}


def memory(name: str) -> int:
    pooling = made(name)
    step(pooling, features(1).requires_grad_())()  # code is loaded and the BLAS has its buffers before we look
    x = features(B).requires_grad_()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)  # or the step would fit into what fitting has freed, and seem to need nothing
    return peak_memory(step(pooling, x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="poolings to measure; all when none is given")
    parser.add_argument("--quick", action="store_true", help="three repeats")
    parser.add_argument("--memory", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("--profile", action="store_true", help="where the time of a step goes, instead of ratios")
    options = parser.parse_args()
    if options.memory:
        print(json.dumps({"bytes": memory(options.memory)}))
        return
    names = options.names or list(LIMITS)
    if unknown := sorted(set(names) - set(LIMITS)):
        parser.error(f"no limit is defined for {', '.join(unknown)}; known: {', '.join(LIMITS)}")
    keep_freed()  # as training and the command line do
    if options.profile:
        for name in names:
            console.print(f"{name}: forward", highlight=False)
            console.print(profiled(infer(made(name), features(B))), highlight=False)
            console.print(f"{name}: forward and backward", highlight=False)
            console.print(profiled(step(made(name), features(B).requires_grad_())), highlight=False)
        return
    report(names, repeats=3 if options.quick else 9)


def profiled(work: Work, *, repeats: int = 5) -> str:
    """The operations that take most of the time, in milliseconds a call of ``work``."""
    for _ in range(2):
        work()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        for _ in range(repeats):
            work()
    rows = sorted(seen.key_averages(), key=lambda event: -event.self_cpu_time_total)[:10]
    return "\n".join(f"  {event.self_cpu_time_total / 1e3 / repeats:8.1f} ms  {event.key}" for event in rows)


def report(names: list[str], *, repeats: int) -> None:
    x, average = features(B).requires_grad_(), made("average")
    columns = ("", "D", "limit", "fwd ms", "× average", "× limit", "fwd+bwd ms", "× average", "× limit", "extra MB")
    shown = table(f"B = {B}, L = {L}, d = {D}, {torch.get_num_threads()} threads", *columns)
    for name in names:
        measured = seconds(name, average, x, repeats=repeats)
        row = [name, f"{made(name).out_dim:,}", LIMITS[name]().what]
        for direction in ("forward", "both"):
            ours, limit, first_order = (measured[direction][k] for k in ("ours", "limit", "average"))
            row += [f"{1e3 * ours:.1f}", f"{ours / first_order:.1f}", verdict(ours / limit, TARGET, at_least=False)]
        extra = in_fresh_process(__file__, "--memory", name)["bytes"]
        shown.add_row(*row, f"{extra / 1e6:.0f}")
        console.print(f"[dim]{name}: {row[3]} ms forward, {row[6]} ms with backward[/]")
    console.print(shown)


if __name__ == "__main__":
    main()
