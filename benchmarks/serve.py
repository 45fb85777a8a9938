"""How fast a collection is served: load from another process than the server, all in one run.

    python benchmarks/serve.py                    # 100,000 vectors by id; pictures against the bare model
    python benchmarks/serve.py --items 10000 --seconds 5

``by id``: clients ask one after the other, several at once. ``pictures``: 16 clients upload JPEGs; beside it, in turns,
the bare model on batches of 16 decoded pictures, on as many threads as the server has. Half load: the same clients wait
between requests, so that the server works half of the time.
"""

from __future__ import annotations

import argparse
import io
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import torch
from PIL import Image

from measure import console, table, verdict
from secondsight import index
from secondsight.model import published


@contextmanager
def served(path: Path) -> Iterator[tuple[str, int]]:
    """The server in a process of its own: its address and its number."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "secondsight", "serve", str(path), "--port", str(port)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait()


def load(ask: Callable[[httpx.Client, int], None], address: str, *, clients: int, seconds: float, pause: float = 0.0):
    """Seconds of every request, from ``clients`` threads that ask for ``seconds``."""
    taken: list[float] = []
    stop = time.perf_counter() + seconds

    def client(number: int) -> None:
        with httpx.Client(base_url=address, timeout=60) as http:
            turn = number
            while time.perf_counter() < stop:
                start = time.perf_counter()
                ask(http, turn)
                taken.append(time.perf_counter() - start)
                turn += clients
                time.sleep(pause)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken


def memory(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) * 1024


def row(out, name: str, taken: list[float], seconds: float, note: str = "") -> None:
    ordered = sorted(taken)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    out.add_row(name, f"{len(taken) / seconds:.0f}", f"{1e3 * statistics.median(taken):.1f}", f"{1e3 * p99:.1f}", note)


def by_id(folder: Path, items: int, seconds: float, out) -> None:
    rng = np.random.default_rng(0)
    made = index.create(folder / "many.index", dim=512)
    for start in range(0, items, 20_000):
        made.add_vectors(rng.normal(size=(min(20_000, items - start), 512)).astype(np.float32))
    made.build()
    body = {"vector": made.vector(5).tolist(), "k": 10}

    def ids(http: httpx.Client, turn: int) -> None:
        http.post("/api/search", json={"id": turn % items, "k": 10}).raise_for_status()

    def vectors(http: httpx.Client, turn: int) -> None:
        http.post("/api/search", json=body).raise_for_status()

    with served(made.path) as (address, pid):
        load(ids, address, clients=2, seconds=1)
        before = memory(pid)
        for name, ask in (("by id", ids), ("by vector", vectors)):
            taken = load(ask, address, clients=4, seconds=seconds)
            rate = len(taken) / seconds
            row(
                out,
                f"{name}, {items:,} items, {made.info()['engine']['structure']}",
                taken,
                seconds,
                verdict(rate, 500, at_least=True, unit="/s"),
            )
            half = load(ask, address, clients=4, seconds=seconds, pause=4 / rate)
            row(out, f"{name}, half load", half, seconds)
        out.add_row("memory", "", "", "", f"{memory(pid) / before:.2f} of what it was after a second")


def pictures(folder: Path, seconds: float, out) -> None:
    rng = np.random.default_rng(0)
    files = []
    for i in range(32):
        coarse = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        content = io.BytesIO()
        Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC).save(content, "JPEG", quality=90)
        place = folder / "photos" / f"{i}.jpg"
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(content.getvalue())
        files.append(content.getvalue())
    model = published("efficientnet-lite0", weights="random").eval()
    made = index.create(folder / "photos.index", model, str(folder / "photos"))
    batch = torch.randint(0, 256, (16, 3, model.size, model.size), dtype=torch.uint8)
    batch = batch.contiguous(memory_format=torch.channels_last)  # as decoded pictures are

    def bare() -> float:
        start, count = time.perf_counter(), 0
        with torch.no_grad():
            while time.perf_counter() < start + seconds:
                model(batch)
                count += 16
        return count / (time.perf_counter() - start)

    def ask(http: httpx.Client, turn: int) -> None:
        http.post("/api/search", files={"file": files[turn % 32]}, data={"k": "5"}).raise_for_status()

    def boxes(http: httpx.Client, turn: int) -> None:
        left = 0.1 + 0.01 * (turn % 30)
        body = {"id": turn % 32, "box": [left, 0.2, left + 0.4, 0.7], "k": 5}
        http.post("/api/search", json=body).raise_for_status()

    with served(made.path) as (address, pid):
        load(ask, address, clients=16, seconds=2 * seconds)  # fills what is kept
        before, ratios, rates, taken = memory(pid), [], [], []
        for _ in range(3):
            alone = bare()
            taken = load(ask, address, clients=16, seconds=seconds)
            rates.append(alone)
            ratios.append(len(taken) / seconds / alone)
        share = verdict(statistics.median(ratios), 0.85, at_least=True)
        note = f"{share} of the bare model's {statistics.median(rates):.0f}/s"
        row(out, "pictures, 16 clients", taken, seconds, note)
        load(boxes, address, clients=1, seconds=2)
        row(out, "a box on a kept picture", load(boxes, address, clients=1, seconds=seconds), seconds)
        out.add_row("memory", "", "", "", f"{memory(pid) / before:.2f} of what it was after the first load")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load")
    options = parser.parse_args()
    out = table(
        f"Serving, {os.environ.get('OMP_NUM_THREADS', 'all')} threads", "load", "requests/s", "p50 ms", "p99 ms", ""
    )
    with tempfile.TemporaryDirectory() as folder:
        by_id(Path(folder), options.items, options.seconds, out)
        pictures(Path(folder), options.seconds, out)
    console.print(out)


if __name__ == "__main__":
    main()
