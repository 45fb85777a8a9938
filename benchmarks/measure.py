"""How the benchmarks measure: interleaved repeats on a noisy machine, peak memory in a fresh process."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.table import Table

Name = TypeVar("Name")

console = Console(width=None if sys.stdout.isatty() else 130)


def interleaved(
    variants: dict[Name, Callable[[], object]],
    *,
    repeats: int = 7,
    most: float = 20.0,
    rest: float = 0.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Name, float]:
    """Median seconds of each variant. The variants take turns, so that a noisy minute hurts all of them alike.

    A variant that has taken ``most`` seconds in all is not repeated again. ``rest``: seconds before each run, in which
    the last one's threads stop waiting for more. ``clock``: ``time.process_time`` counts the seconds of the processor
    instead, of all threads; with one thread, what others do on the machine hardly shows.
    """
    for run in variants.values():
        run()
    seconds: dict[Name, list[float]] = {name: [] for name in variants}
    for _ in range(repeats):
        for name, run in variants.items():
            if sum(seconds[name]) > most:
                continue
            time.sleep(rest)
            start = clock()
            run()
            seconds[name].append(clock() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def peak_memory(run: Callable[[], object]) -> int:
    """Bytes by which ``run`` raised this process's peak resident memory. Call it in a fresh process
    (``in_fresh_process``).
    """
    clear = Path("/proc/self/clear_refs")
    clear.write_text("5")  # resets the high-water mark
    before = _status("VmHWM")
    run()
    return _status("VmHWM") - before


def in_fresh_process(script: str, *arguments: str, **environment: str) -> dict:
    """Run ``script`` with ``arguments`` and more ``environment``; its last line of output is JSON."""
    done = subprocess.run(
        [sys.executable, script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )
    if done.returncode:
        raise RuntimeError(f"{script} {' '.join(arguments)} failed:\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def verdict(value: float, target: float, *, at_least: bool, unit: str = "×") -> str:
    """``value`` beside its target, with a mark that says whether it is met."""
    met = value >= target if at_least else value <= target
    sign = "≥" if at_least else "≤"
    return f"[{'green' if met else 'red'}]{value:.2f}{unit} {'✓' if met else '✗'}[/] [dim]({sign} {target:g})[/]"


def table(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left", header_style="bold")
    for i, column in enumerate(columns):
        made.add_column(column, justify="left" if i == 0 else "right")
    return made


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no {field} in /proc/self/status: peak memory is measured on Linux only")
