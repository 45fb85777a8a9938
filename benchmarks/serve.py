"""How fast a collection is served: load from another process than the server, all in one run.

    python benchmarks/serve.py                    # 100,000 vectors by id; pictures against the bare model
    python benchmarks/serve.py --items 10000 --seconds 5
    python benchmarks/serve.py --minutes 10       # and whether memory stays what it is
    python benchmarks/serve.py --only pictures    # a part of it

``by id``, ``by vector``: 16 connections, each asks again as soon as it is answered. ``pictures``: 16 connections upload
JPEGs; beside it, in turns, the bare model on batches of 16 pictures, on as many threads as the server has. Half load:
half as many requests a second, evenly, each counted from when it was due. Where a millisecond goes: each step of one
request alone, in this process.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from PIL import Image

from measure import console, table, verdict
from secondsight import fit, index, inference
from secondsight.memory import keep_freed
from secondsight.model import Embedder

CLIENTS = 16
CLIP_RETRIEVAL = 20  # queries/s, at 50 ms: what its README says


@contextmanager
def served(path: Path, runtime: str = "torch") -> Iterator[tuple[int, int]]:
    """The server in a process of its own: its port and its number."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "secondsight", "serve", str(path), "--port", str(port), "--runtime", runtime],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/collections") as answer:  # the model is there
            answer.read()
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def request(line: str, body: bytes = b"", kind: str = "application/json") -> bytes:
    head = f"{line} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def posted(body: dict[str, Any]) -> bytes:
    return request("POST /api/search", json.dumps(body).encode())


def uploaded(picture: bytes) -> bytes:
    parts = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.jpg"\r\n\r\n' + picture
    fields = b'\r\n--x\r\nContent-Disposition: form-data; name="k"\r\n\r\n5\r\n--x--\r\n'
    return request("POST /api/search", parts + fields, "multipart/form-data; boundary=x")


def load(
    asked: Callable[[int], bytes], port: int, *, seconds: float, clients: int = CLIENTS, rate: float | None = None
) -> list[float]:
    """Seconds of every request, from ``clients`` connections that ask for ``seconds``.

    Each asks again as soon as it is answered; with ``rate``, that many requests a second are due, evenly, and each
    counts from when it is due, whether its connection was free by then or not.
    Bare sockets: http.client would take as much of the machine as the server does.
    """
    taken: list[float] = []
    begin = time.perf_counter()
    stop = begin + seconds

    def client(number: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            turn = number
            while (start := time.perf_counter()) < stop:
                if rate is not None:
                    due = begin + turn / rate
                    if due >= stop:
                        return
                    time.sleep(max(0.0, due - start))
                    start = due
                connection.sendall(asked(turn))
                answered(connection)
                taken.append(time.perf_counter() - start)
                turn += clients

    threads = [threading.Thread(target=client, args=(n,)) for n in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return taken


def answered(connection: socket.socket) -> bytes:
    """One answer, read to its end."""
    content = b""
    while b"\r\n\r\n" not in content:
        content += connection.recv(1 << 16)
    head, _, body = content.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split()[0])
    while len(body) < length:
        body += connection.recv(1 << 16)
    if b" 200 " not in head[:16]:
        raise RuntimeError(body.decode())
    return body


def memory(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) * 1024


def processor(pid: int) -> tuple[float, float]:
    """Seconds of the processor that the server and its decoders have taken."""

    def taken(number: int | str) -> float:
        fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    tasks = Path(f"/proc/{pid}/task").iterdir()
    return taken(pid), sum(taken(child) for task in tasks for child in (task / "children").read_text().split())


def row(out, name: str, taken: list[float], seconds: float, note: str = "") -> None:
    ordered = sorted(taken)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    cells = name, f"{len(taken) / seconds:.0f}", f"{1e3 * statistics.median(taken):.1f}", f"{1e3 * p99:.1f}", note
    out.add_row(*cells)
    console.print("  ".join(cells), style="dim")  # a long run shows how far it is


def network() -> Embedder:
    """What ``secondsight index`` makes, with random weights: what it has learned is no matter here."""
    torch.manual_seed(0)
    options = {"backbone": "efficientnet-lite0", "weights": None, "pooling": "jcf-32-8", "transform": "resize-crop"}
    made = Embedder.build(**options, **fit.JCF).eval()
    made.fit([torch.randn(40, 49, 1280).relu() for _ in range(2)], grid=(7, 7))
    return made


def filled(made: index.Index, items: int) -> index.Index:
    """``made`` with ``items`` vectors in clusters, as pictures make them, and its engine built."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(2000, made.dim)).astype(np.float32)
    while (missing := items - len(made)) > 0:
        n = min(20_000, missing)
        noise = rng.normal(size=(n, made.dim), scale=0.8).astype(np.float32)
        made.add_vectors(centres[rng.integers(0, len(centres), n)] + noise)
    made.build()
    return made


def questions(made: index.Index, seconds: float, out) -> None:
    items, dense = len(made), [posted({"vector": v.tolist(), "k": 10}) for v in made.vectors(range(64))]
    kinds: dict[str, Callable[[int], bytes]] = {
        "by id": lambda turn: posted({"id": turn % items, "k": 10}),
        "by vector": lambda turn: dense[turn % 64],
    }
    structure = made.info()["engine"]["structure"]
    with served(made.path) as (port, _):
        load(kinds["by id"], port, seconds=2)
        for name, asked in kinds.items():
            taken = load(asked, port, seconds=seconds)
            rate = len(taken) / seconds
            note = f"{verdict(rate, 500, at_least=True, unit='/s')}; {rate / CLIP_RETRIEVAL:.0f}× clip-retrieval's"
            row(out, f"{name}, {items:,} items, {structure}", taken, seconds, note)
            half = load(asked, port, seconds=seconds, rate=rate / 2)
            row(out, f"{name}, half load", half, seconds)
        row(out, "by id, one connection", load(kinds["by id"], port, seconds=seconds / 2, clients=1), seconds / 2)


def photos(folder: Path) -> list[bytes]:
    rng = np.random.default_rng(0)
    found = []
    (folder / "photos").mkdir()
    for i in range(32):
        coarse = rng.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        content = io.BytesIO()
        Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC).save(content, "JPEG", quality=90)
        (folder / "photos" / f"{i}.jpg").write_bytes(content.getvalue())
        found.append(content.getvalue())
    return found


def bare(run: Callable[[torch.Tensor], Any], side: int, seconds: float) -> float:
    """Pictures a second of the model alone."""
    batch = torch.randint(0, 256, (16, 3, side, side), dtype=torch.uint8)
    batch = batch.contiguous(memory_format=torch.channels_last)  # as decoded pictures are
    start, count = time.perf_counter(), 0
    with torch.no_grad():
        while time.perf_counter() < start + seconds:
            run(batch)
            count += 16
    return count / (time.perf_counter() - start)


def pictures(made: index.Index, files: list[bytes], name: str, seconds: float, minutes: float, out) -> None:
    """Uploads, embedded by the runtime of that name, against the runtime alone."""
    model, asked = made.model(), [uploaded(file) for file in files]
    run = inference.runtime(model, name)
    run(torch.zeros(16, 3, model.size, model.size, dtype=torch.uint8))

    def upload(turn: int) -> bytes:
        return asked[turn % len(asked)]

    with served(made.path, name) as (port, pid):
        load(upload, port, seconds=2 * seconds)  # fills what is kept
        ratios, rates, rounds, spent = [], [], [], np.zeros(2)
        for _ in range(3):
            alone = bare(run, model.size, seconds)
            before = processor(pid)
            rounds.append(load(upload, port, seconds=seconds))
            spent += np.subtract(processor(pid), before)
            rates.append(alone)
            ratios.append(len(rounds[-1]) / seconds / alone)
        share = verdict(statistics.median(ratios), 0.85, at_least=True)
        note = f"{share} of the bare model's {statistics.median(rates):.0f}/s"
        row(out, f"pictures, {name}", [one for taken in rounds for one in taken], 3 * seconds, note)
        server, decoders = 1e3 * spent / sum(map(len, rounds))
        cores = torch.get_num_threads()
        network = f"{1e3 * cores / statistics.median(rates):.1f} ms for the bare model on {cores} cores"
        out.add_row(
            "processor time an upload", "", "", "", f"server {server:.1f} ms, decoders {decoders:.1f}; {network}"
        )
        half = len(rounds[-1]) / seconds / 2
        row(out, f"pictures, {name}, half load", load(upload, port, seconds=seconds, rate=half), seconds)
        row(out, f"pictures, {name}, one connection", load(upload, port, seconds=seconds, clients=1), seconds)
        if minutes:
            uploads, held = 0, []
            for _ in range(10):
                uploads += len(load(upload, port, seconds=6 * minutes))
                held.append(memory(pid))
                console.print(f"{uploads:,} uploads: {held[-1] / 2**20:.0f} MB", style="dim")
            note = f"{verdict(held[-1] / held[0], 1.1, at_least=False)} of after a tenth, {held[0] / 2**20:.0f} MB"
            out.add_row(f"memory, {minutes:g} minutes, {uploads:,} uploads", "", "", "", note)


def boxes(made: index.Index, files: list[bytes], seconds: float, out) -> None:
    """Boxes on one upload, searched among the items of ``made``."""
    with served(made.path) as (port, _):
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(uploaded(files[0]))
            name = json.loads(answered(connection))["query"]

        def box(turn: int) -> bytes:
            left = 0.1 + 0.01 * (turn % 30)
            return posted({"query": name, "box": [left, 0.2, left + 0.4, 0.7], "k": 20})

        load(box, port, seconds=1, clients=1)
        taken = load(box, port, seconds=seconds, clients=1)
        note = verdict(1e3 * statistics.median(taken), 20, at_least=False, unit=" ms")
        row(out, f"a box, {len(made):,} items", taken, seconds, note)


def milliseconds(made: index.Index, files: list[bytes], out) -> None:
    """Each step of a request alone."""
    from fastapi.responses import JSONResponse

    from secondsight.serve.decoders import Decoders
    from secondsight.serve.request_limits import Limits
    from secondsight.serve.requests import SearchRequest
    from secondsight.serve.service import Service

    decoders = Decoders(Limits())
    service = Service(made, decoders, Limits())
    network = service.network()
    assert network.model is not None
    pixels = decoders.pixels(files[0], network.model.transform.target, "a").result()
    queries = made.vectors(range(16))
    faiss.omp_set_num_threads(1)  # as the server does
    hits = made.searcher.search(queries[:1], 10)
    (answer,) = service.answers(hits)
    with served(made.path) as (port, _):
        empty = load(lambda _: request("GET /healthz"), port, seconds=1, clients=1)
    out.add_row("HTTP: a request that asks for nothing", f"{1e3 * statistics.median(empty):.2f}")
    steps: dict[str, Callable[[], Any]] = {
        "reading the request": lambda: SearchRequest.model_validate_json(b'{"id": 3, "k": 10}'),
        "search, one question": lambda: made.searcher.search(queries[:1], 10),
        "search, each of 16 together": lambda: made.searcher.search(queries, 10),
        "what is known about 10 hits": lambda: service.answers(hits),
        "writing the answer": lambda: JSONResponse(answer),
        "a picture: decoding, in its process": lambda: decoders.pixels(files[0], 224, "a").result(),
        "a picture: network, alone": lambda: network.run([pixels], ["a"]),
        "a picture: network, each of 16": lambda: network.run([pixels] * 16, ["a"] * 16),
    }
    for name, step in steps.items():
        share = 16 if "16" in name else 1
        step()
        taken = []
        for _ in range(20):
            start = time.perf_counter()
            step()
            taken.append(time.perf_counter() - start)
        out.add_row(name, f"{1e3 * statistics.median(taken) / share:.2f}")
    service.close()
    decoders.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load")
    parser.add_argument("--minutes", type=float, default=0.0, help="of uploads, to see whether memory grows")
    parser.add_argument("--only", choices=("questions", "pictures", "boxes", "steps"), action="append")
    options = parser.parse_args()
    keep_freed()  # as every verb does, the server among them: the bare model shall have what the server has
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    out = table(f"Serving, {threads} threads", "load", "requests/s", "p50 ms", "p99 ms", "")
    spent = table("Where the milliseconds go", "step", "ms")
    with tempfile.TemporaryDirectory() as name:
        folder, files = Path(name), photos(Path(name))
        made = index.create(folder / "photos.index", network(), str(folder / "photos"))
        asked = options.only or ["questions", "pictures", "boxes", "steps"]
        if "pictures" in asked:
            for name in ("torch", "onnx"):
                pictures(made, files, name, options.seconds, options.minutes if name == "torch" else 0, out)
        if asked != ["pictures"]:
            filled(made, options.items)
        if "questions" in asked:
            questions(made, options.seconds, out)
        if "boxes" in asked:
            boxes(made, files, options.seconds, out)
        if "steps" in asked:
            milliseconds(made, files, spent)
    for one in (out, spent):
        if one.row_count:
            console.print(one)


if __name__ == "__main__":
    main()
