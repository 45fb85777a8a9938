"""A process that is killed at any moment, again and again, ends with what one that was left alone ends with.

The moments come from a seed. ``make kills N=100`` kills each kind of work that often while it is at work.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
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


Work = Callable[[Path], object]


def started(work: Work, out: Path) -> multiprocessing.process.BaseProcess:
    """``work`` in a process of its own, forked: importing torch anew takes seconds."""

    def run() -> None:
        torch.set_num_threads(1)  # the parent's threads are not there after a fork, and would be waited for
        os.close(2)
        work(out)
        os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=run, daemon=True)
    process.start()
    return process


def finished(work: Work, out: Path) -> float:
    """Run it to its end; how many seconds that takes."""
    start, process = time.monotonic(), started(work, out)
    process.join(300)
    assert process.exitcode == 0
    return time.monotonic() - start


def survives(work: Work, same: Callable[[Path, Path], None], place: Path, *, kills: int = KILLS) -> None:
    """Kill ``work`` again and again until it was killed ``kills`` times while at work.

    It goes on where it was; each time it has reached its end, that must be the ``same`` as of work that was left alone,
    and it begins anew in another place.
    """
    right, out, hit = place / "alone", place / "killed-0", 0
    seconds, chance = finished(work, right), random.Random(f"{place.name} {SEED}")
    while hit < kills:
        process = started(work, out)
        process.join(chance.uniform(0, seconds))
        if process.exitcode is None and process.pid is not None:
            os.kill(process.pid, signal.SIGKILL)
        process.join(60)
        assert process.exitcode in (0, -signal.SIGKILL)
        hit += process.exitcode != 0
        if process.exitcode == 0:
            same(out, right)
            out = place / f"killed-{hit}"
    finished(work, out)
    same(out, right)


def test_caching(tmp_path):
    photos = make_photos(tmp_path, 60)

    def compute(x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.01)
        return torch.nn.functional.avg_pool2d(x.float(), 2)

    def fill(directory: Path):
        cache = FeatureCache(directory, say=lambda line: None)
        return cache.features(photos, compute, transform=Resize(8), key={"p": "1"}, batch_size=4, workers=0)

    def same(one: Path, other: Path) -> None:
        features = fill(one)
        np.testing.assert_array_equal(features[:], fill(other)[:])
        assert features.damaged == 0

    survives(fill, same, tmp_path)


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

        def same(one: Path, other: Path) -> None:
            assert one.read_bytes() == other.read_bytes() == Slow.content

        survives(download, same, tmp_path)
        server.shutdown()
    assert {path.name.partition("-")[0] for path in tmp_path.iterdir()} == {"alone", "killed"}
    assert all(path.name.partition("-")[2].isdigit() for path in tmp_path.glob("killed*")), "something is left over"


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

    def same(one: Path, other: Path) -> None:
        for name in ("vectors.npy", "items.csv", "embedding.json"):
            assert (one / name).read_bytes() == (other / name).read_bytes()

    survives(work, same, tmp_path)


def test_updating_an_index(tmp_path):
    """Pictures that came, went, moved and changed; then compacted. (test_index_survival.py: adding and removing.)"""
    import train_tiny
    from index_pictures import folder, picture
    from secondsight import Embedder, index

    photos = folder(tmp_path / "photos", classes="ab", each=12)
    model = Embedder.build(backbone="tiny", weights="random", pooling="average", dim=8, reduce=0, size=16).eval()
    index.create(tmp_path / "before", model, str(photos)).close()
    (photos / "a/0.png").rename(photos / "b/moved.png")
    for number in range(1, 5):
        (photos / f"a/{number}.png").unlink()
        picture(photos / f"b/{number}.png", 500 + number)
        picture(photos / f"c/{number}.png", 600 + number)
    assert train_tiny.Tiny  # the backbone of the model

    def work(place: Path) -> None:
        if not place.exists():
            shutil.rmtree(place.with_suffix(".copy"), ignore_errors=True)
            shutil.copytree(tmp_path / "before", place.with_suffix(".copy")).rename(place)
        made = index.open(place)
        made.update()
        made.compact()

    def same(one: Path, other: Path) -> None:
        found, right = index.open(one), index.open(other)
        assert found.check().problems == []
        items = [{(item.path, item.label): item.id for item in made.items()} for made in (found, right)]
        assert items[0].keys() == items[1].keys()
        vectors = [
            made.vectors([ids[key] for key in sorted(ids)]) for made, ids in zip((found, right), items, strict=True)
        ]
        np.testing.assert_array_equal(*vectors)
        assert found.info()["segments"] == right.info()["segments"]

    survives(work, same, tmp_path)


@pytest.mark.skipif("KILLS" not in os.environ, reason="test_train_resume.py kills training; make kills does it here")
def test_training(tmp_path):
    import train_tiny
    from test_train_resume import OVERRIDES, assert_same_run

    digits = train_tiny.write_digits(tmp_path / "digits")
    survives(lambda out: train_tiny.train_quietly(str(digits), str(out), OVERRIDES, True), assert_same_run, tmp_path)
