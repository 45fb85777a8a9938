"""A small collection behind a server, for the tests of serving."""

from __future__ import annotations

import contextlib
import csv
import io
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from secondsight import Embedder, index

SIZE = 96


def serve_model(pooling: str = "jcf-4", size: int = SIZE) -> Embedder:
    """A network with random weights and a codebook: explanations are exact, what is similar is no matter here."""
    torch.manual_seed(3)
    options = {"backbone": "efficientnet-lite0", "weights": None, "pooling": pooling, "size": size}
    made = Embedder.build(**options, dim=16, reduce=8, norm_exponent=0.5, transform="resize-crop").eval()
    made.fit([torch.randn(20, 9, 1280).relu() for _ in range(2)], grid=(3, 3))
    return made


def pixels(seed: int, *, size: tuple[int, int] = (120, 100)) -> Image.Image:
    coarse = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


def content(seed: int, kind: str = "PNG", **options) -> bytes:
    out = io.BytesIO()
    pixels(seed).save(out, kind, **options)
    return out.getvalue()


def collection(root: Path, *, each: int = 8, size: int = SIZE) -> index.Index:
    """Labels, a column, a copy, and names that would be markup if anyone let them."""
    rows = []
    for c, label in enumerate(("heron", "<img src=x onerror=alert(1)>", "gull")):
        for i in range(each):
            place = root / "photos" / f"{'hgx'[c]}{i}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            pixels(100 * c + i, size=(120, 100) if i % 2 else (90, 130)).save(place)
            rows.append([str(place), label, 2000 + i])
    copy = root / "photos" / "copy.png"
    copy.write_bytes((root / "photos" / "h1.png").read_bytes())
    rows.append([str(copy), "heron", 2020])
    with (root / "photos.csv").open("w", newline="", encoding="utf-8") as handle:
        csv.writer(handle).writerows([["path", "label", "year"], *rows])
    return index.create(root / "photos.index", serve_model(size=size), str(root / "photos.csv"))


@contextlib.contextmanager
def running(app: Any) -> Iterator[str]:
    """The application on a port of its own, in a thread of its own; gives its address."""
    import uvicorn

    from secondsight.serve.connections import Patient
    from secondsight.serve.server import listen

    bound = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, http=Patient, ws="none", log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{bound.getsockname()[1]}/"
    server.should_exit = True
    thread.join(30)
