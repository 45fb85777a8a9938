"""Memory that is freed stays with the process, counted in page faults of a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys, torch
from secondsight.memory import keep_freed

print(keep_freed() if sys.argv[1] == "keep" else None)

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.zeros(64 << 20, dtype=torch.uint8).add_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(min(faults() for _ in range(5)))  # once the heap has settled
"""


def run(word: str, **env: str) -> list[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_") and k != "LD_PRELOAD"}
    done = subprocess.run([sys.executable, "-c", SCRIPT, word], capture_output=True, text=True, env=clean | env)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc")
def test_what_was_freed_is_used_again_without_a_page_fault():
    told, kept = run("keep")
    if told == "False":
        pytest.skip("this C library has no mallopt")
    _, returned = run("leave")
    assert int(kept) < 0.01 * int(returned)


def test_what_the_user_has_set_stays():
    assert run("keep", MALLOC_MMAP_MAX_="65536")[0] == "False"
