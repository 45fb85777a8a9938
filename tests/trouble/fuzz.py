"""Try to break everything that takes something from outside, any number of times: ``make fuzz N=100000``.

    python tests/trouble/fuzz.py [N] [--kind pictures …] [--seed 0]

Mutations are tried in child processes with bounded memory, so that a crash or a hang is counted and does not end the
run. What went wrong is printed with its seed: ``--kind pictures --from SEED 1`` tries that one again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # train_tiny

from attempts import KINDS, REFUSED, SOUND, Different

CHUNK = 2000  # mutations in one process
PATIENCE = 60.0  # seconds for one mutation
ADDRESS_SPACE = 8 << 30


@dataclass
class Tally:
    """What happened."""

    tried: int = 0
    sound: int = 0
    refused: int = 0
    escapes: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    crashes: list[str] = field(default_factory=list)
    slowest: float = 0.0  # seconds of a processor
    peak: int = 0  # bytes of memory

    @property
    def faults(self) -> list[str]:
        return self.escapes + self.different + self.crashes

    def add(self, other: Tally) -> None:
        for name in ("tried", "sound", "refused", "escapes", "different", "crashes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest, self.peak = max(self.slowest, other.slowest), max(self.peak, other.peak)


def attempts(kind: str, seeds: range, folder: Path, *, at: Path | None = None) -> Tally:
    """Try the seeds, in this process; ``at`` is a file that names the one under way."""
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")  # Pillow and zipfile have something to say about almost every one
    attempt, tally = KINDS[kind].prepare(folder), Tally()
    for seed in seeds:
        if at is not None:
            at.write_text(str(seed))
        start = time.process_time()
        tally.tried += 1
        try:
            outcome = attempt(random.Random(f"{kind} {seed}"))
            tally.sound += outcome == SOUND
            tally.refused += outcome == REFUSED
        except Different as error:
            tally.different.append(f"{kind} {seed}: {error}")
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            tally.escapes.append(f"{kind} {seed}: {type(error).__name__}: {error} ({where.filename}:{where.lineno})")
        tally.slowest = max(tally.slowest, time.process_time() - start)
    tally.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return tally


def in_processes(kind: str, first: int, count: int) -> Tally:
    """The same in child processes, one after the other; one that dies is followed by another."""
    total, seed, end = Tally(), first, first + count
    while seed < end:
        with tempfile.TemporaryDirectory() as folder:
            at, result = Path(folder, "at"), Path(folder, "result")
            size = min(CHUNK, end - seed)
            words = ["--child", folder, "--kind", kind, "--from", str(seed), str(size)]
            with Path(folder, "stderr").open("wb") as errors:
                why = _waited(subprocess.Popen([sys.executable, __file__, *words], stdout=errors, stderr=errors), at)
            if not at.exists():
                raise RuntimeError(f"{kind} cannot be prepared: {Path(folder, 'stderr').read_text()}")
            if result.exists():
                total.add(Tally(**json.loads(result.read_text())))
                seed += size
            else:
                last = int(at.read_text() or seed) if at.exists() else seed
                total.add(Tally(tried=last - seed + 1, crashes=[f"{kind} {last}: {why}"]))
                seed = last + 1
    return total


def _waited(child: subprocess.Popen, at: Path) -> str:
    before, waited = "", 0.0
    while child.poll() is None:
        time.sleep(0.2)
        waited += 0.2  # and not what a clock says: both of us may have been stopped for a while
        now = at.read_text() if at.exists() else ""
        if now != before:
            before, waited = now, 0.0
        elif waited > (PATIENCE if before else 10 * PATIENCE):  # torch takes its time to load
            child.kill()
            child.wait()
            return f"over {PATIENCE:.0f} s"
    return f"ended with {child.returncode}"


def child(folder: Path, kind: str, seeds: range) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    os.environ["SECONDSIGHT_CACHE"] = str(folder / "cache")
    tally = attempts(kind, seeds, folder / "work", at=folder / "at")
    (folder / "unfinished").write_text(json.dumps(tally.__dict__))
    (folder / "unfinished").rename(folder / "result")
    os._exit(0)  # threads of a test server do not hold us


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=10_000, help="mutations in all")
    parser.add_argument("--kind", choices=sorted(KINDS), help="only these")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first seed")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.kind, range(options.first, options.first + options.count))
    kinds = [options.kind] if options.kind else list(KINDS)
    shares = sum(KINDS[kind].share for kind in kinds)
    names = ("tried", "sound", "refused", "escapes", "different", "crashes", "slowest", "peak")
    print(f"{'kind':10} " + " ".join(f"{name:>9}" for name in names))
    faults = []
    with contextlib.suppress(KeyboardInterrupt):
        for kind in kinds:
            tally = in_processes(kind, options.first, max(1, round(options.count * KINDS[kind].share / shares)))
            faults += tally.faults
            counts = (tally.tried, tally.sound, tally.refused)
            counts += tuple(map(len, (tally.escapes, tally.different, tally.crashes)))
            figures = [f"{count:,}" for count in counts] + [f"{tally.slowest:.1f} s", f"{tally.peak / 1e9:.2f} GB"]
            print(f"{kind:10} " + " ".join(f"{figure:>9}" for figure in figures), flush=True)
    print("\n".join(faults))
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
