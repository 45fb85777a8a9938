"""A process that changes an index step by step and says after each step that it is done; made to be killed.

    python index_worker.py INDEX SEED FIRST STEPS KILL

Step ``n`` is a function of SEED, ``n`` and what the index holds, so that whoever started the process knows what each
step does. With KILL ≥ 0 the process ends itself with SIGKILL at the KILL-th call of something that reaches the disk or
the database.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import numpy as np

DIM = 8
CALLS = {
    "fsync",
    "execute",
    "executemany",
    "replace",
    "write",
    "unlink",
    "mkstemp",
    "release",
    "close",
    "open",
    "chmod",
}


def step(seed: int, n: int, living: list[int]) -> tuple[str, list[int] | np.ndarray]:
    """What step ``n`` does to an index that holds the ids ``living``."""
    rng = np.random.default_rng((seed, n))
    kind = rng.choice(["add", "add", "add", "remove", "remove", "compact"])
    if kind == "add" or not living:
        return "add", rng.standard_normal((int(rng.integers(1, 40)), DIM)).astype(np.float32)
    if kind == "remove":
        return "remove", sorted(rng.choice(living, int(rng.integers(1, len(living) + 1)), replace=False).tolist())
    return "compact", []


def main() -> None:
    from secondsight import index

    path, seed, first, steps, kill = sys.argv[1], *map(int, sys.argv[2:])
    made = index.open(path)
    made.ids()
    if kill >= 0:
        left = kill

        def count(frame, event, function):
            nonlocal left
            if event == "c_call" and function.__name__ in CALLS:
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.setprofile(count)
    for n in range(first, first + steps):
        kind, what = step(seed, n, made.ids().tolist())
        ids = []
        if kind == "add":
            ids = made.add_vectors(what, labels=[f"step {n}"] * len(what)).tolist()
        elif kind == "remove":
            made.remove(what)
        else:
            made.compact()
        os.write(1, (json.dumps({"step": n, "ids": ids}) + "\n").encode())


if __name__ == "__main__":
    main()
