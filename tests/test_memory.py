"""Memory that is freed stays with the process, counted in page faults of a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys, threading, torch
from secondsight.memory import give_back, keep_freed, one_heap

print(keep_freed() if "keep" in sys.argv else None)
if "one" in sys.argv:
    one_heap()

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        [torch.zeros(32 << 20, dtype=torch.uint8).add_(1) for _ in range(3)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def settled():
    print(min(faults() for _ in range(5)))

if "thread" in sys.argv:
    thread = threading.Thread(target=settled)
    thread.start()
    thread.join()
else:
    settled()
if "back" in sys.argv:
    give_back()
    print(faults())
"""


def run(*words: str, **env: str) -> list[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_") and k != "LD_PRELOAD"}
    done = subprocess.run([sys.executable, "-c", SCRIPT, *words], capture_output=True, text=True, env=clean | env)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc")
def test_what_was_freed_is_used_again_without_a_page_fault():
    told, kept = run("keep")
    if told == "False":
        pytest.skip("this C library has no mallopt")
    _, returned = run("leave")
    assert int(kept) < 0.01 * int(returned)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc")
def test_another_thread_keeps_what_it_freed_where_there_is_one_heap():
    told, alone = run("keep", "thread")
    if told == "False":
        pytest.skip("this C library has no mallopt")
    _, together = run("keep", "thread", "one")
    assert int(together) < 0.01 * int(alone)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's malloc")
def test_what_is_kept_can_be_given_back():
    told, kept, after = run("keep", "one", "back")
    if told == "False":
        pytest.skip("this C library has no mallopt")
    assert int(after) > 10 * max(1, int(kept))


def test_what_the_user_has_set_stays():
    assert run("keep", MALLOC_MMAP_MAX_="65536")[0] == "False"
