"""A process that is killed at any moment, again and again, ends with what one that was left alone ends with.

The moments come from a seed. ``make kills N=100`` kills each kind of work that often.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from cached_photos import make_photos

from secondsight.data.cache.feature_cache import FeatureCache
from secondsight.data.fetch.download import fetch
from secondsight.data.loading.transforms import Resize
from secondsight.data.readers.registry import Archive

KILLS = int(os.environ.get("KILLS", "5"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))


def started(work: Callable[[], object]) -> multiprocessing.process.BaseProcess:
    """``work`` in a process of its own, forked: importing torch anew takes seconds."""

    def run() -> None:
        torch.set_num_threads(1)  # the parent's threads are not there after a fork, and would be waited for
        os.close(2)
        work()
        os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=run, daemon=True)
    process.start()
    return process


def killed_again_and_again(work: Callable[[], object], *, seconds: float, kills: int, seed: str) -> int:
    """Start ``work``, kill it after some part of ``seconds``, ``kills`` times; how often it was killed at work.

    One that had ended before is not counted, and nothing is left to be killed then: ``work`` goes on where it stopped.
    """
    chance, hit = random.Random(f"{seed} {SEED}"), 0
    for _ in range(kills):
        process = started(work)
        process.join(chance.uniform(0, seconds))
        if process.exitcode is None and process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)
            hit += 1
        process.join(60)
        assert process.exitcode in (0, -signal.SIGKILL)
    process = started(work)
    process.join(300)
    assert process.exitcode == 0
    return hit


def alone(work: Callable[[], object]) -> float:
    """Run it undisturbed; how long it takes."""
    start = time.monotonic()
    process = started(work)
    process.join(300)
    assert process.exitcode == 0
    return time.monotonic() - start


def test_caching(tmp_path):
    photos = make_photos(tmp_path, 60)

    def compute(x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.01)
        return torch.nn.functional.avg_pool2d(x.float(), 2)

    def fill(directory: Path):
        cache = FeatureCache(directory, say=lambda line: None)
        return cache.features(photos, compute, transform=Resize(8), key={"p": "1"}, batch_size=4, workers=0)

    seconds = alone(lambda: fill(tmp_path / "alone"))
    rounds = [tmp_path / f"killed-{i}" for i in range(max(1, KILLS // 5))]  # each is filled once; then all is there
    hits = [
        killed_again_and_again(lambda d=d: fill(d), seconds=seconds, kills=5, seed=d.name)  # pyright: ignore
        for d in rounds
    ]
    assert sum(hits)
    right = fill(tmp_path / "alone")[:]
    for directory in rounds:
        features = fill(directory)
        np.testing.assert_array_equal(features[:], right)
        assert features.damaged == 0


class Slow(BaseHTTPRequestHandler):
    """A server with all the time in the world."""

    content = np.random.default_rng(0).bytes(200_000)

    def do_GET(self) -> None:
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(self.content) - start))
        self.send_header("Content-Range", f"bytes {start}-{len(self.content) - 1}/{len(self.content)}")
        self.send_header("ETag", '"one"')
        self.end_headers()
        for at in range(start, len(self.content), 20_000):
            self.wfile.write(self.content[at : at + 20_000])
            time.sleep(0.02)

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def log_message(self, *_) -> None:
        pass


def test_downloading(tmp_path):
    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/x"
        archive = Archive("x", size=len(Slow.content))

        def download(target: Path) -> None:
            if not target.exists():
                fetch(url, target, archive, pause=0.05)

        seconds, hits = alone(lambda: download(tmp_path / "alone")), 0
        targets = [tmp_path / f"killed-{i}" for i in range(max(1, KILLS // 5))]
        for target in targets:
            hits += killed_again_and_again(lambda t=target: download(t), seconds=seconds, kills=5, seed=target.name)
        assert hits
        for target in targets:
            assert target.read_bytes() == Slow.content
        server.shutdown()
    left = {path.name for path in tmp_path.iterdir()} - {"alone", *(t.name for t in targets)}
    assert not left


def test_embedding(tmp_path):
    import train_tiny
    from secondsight import Embedder, data
    from secondsight.embed.directory import embed_to, finish

    images = data.open(train_tiny.write_digits(tmp_path / "digits", images=20))
    model = Embedder.build(
        backbone="tiny", weights="random", pooling="average", dim=8, reduce=0, transform="resize"
    ).eval()

    def work(folder: Path) -> None:
        if not (folder / "vectors.npy").exists():
            embed_to(folder, model, images, block=8, batch_size=8, workers=0)
            finish(folder, images, block=8, batch_size=8)

    seconds, hits = alone(lambda: work(tmp_path / "alone")), 0
    folders = [tmp_path / f"killed-{i}" for i in range(max(1, KILLS // 5))]
    for folder in folders:
        hits += killed_again_and_again(lambda f=folder: work(f), seconds=seconds, kills=5, seed=folder.name)
    assert hits
    right = (tmp_path / "alone" / "vectors.npy").read_bytes()
    for folder in folders:
        assert (folder / "vectors.npy").read_bytes() == right
        assert (folder / "items.csv").read_bytes() == (tmp_path / "alone" / "items.csv").read_bytes()


@pytest.mark.skipif("KILLS" not in os.environ, reason="test_train_resume.py kills training; make kills does it here")
def test_training(tmp_path):
    import train_tiny
    from test_train_resume import OVERRIDES, assert_same_run

    digits, fork = train_tiny.write_digits(tmp_path / "digits"), train_tiny.processes()

    def start(out: Path):
        words = (str(digits), str(out), OVERRIDES, True)
        child = fork.Process(target=train_tiny.train_quietly, args=words, daemon=True)
        child.start()
        return child

    for name in ("warm", "alone"):  # the first one waits for torch to be imported
        begin = time.monotonic()
        child = start(tmp_path / name)
        child.join(300)
        assert child.exitcode == 0
    seconds, chance, kills, out = time.monotonic() - begin, random.Random(f"training {SEED}"), 0, tmp_path / "run-0"
    while kills < KILLS:
        child = start(out)
        child.join(chance.uniform(0.0, seconds))
        if child.exitcode is None:
            child.kill()
            kills += 1
        child.join(60)
        if child.exitcode == 0:  # it had reached the end: begin another one
            assert_same_run(out, tmp_path / "alone")
            out = tmp_path / f"run-{kills}"
    child = start(out)
    child.join(300)
    assert child.exitcode == 0
    assert_same_run(out, tmp_path / "alone")
