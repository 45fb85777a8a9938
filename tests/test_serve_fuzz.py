"""No upload and no request, however broken, makes the server fault. FUZZ=100000 tries as many uploads as that."""

from __future__ import annotations

import io
import os
import random
import signal
import struct
import threading
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
import httpx
from PIL import Image

from secondsight.serve.request_limits import Limits
from secondsight.serve.routes import application
from serve_pictures import collection, content, pixels, running

MUTATIONS = int(os.environ.get("FUZZ", "120"))
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "JPEG2000", "ICO", "AVIF")
ANIMATED = ("GIF", "WEBP", "PNG", "TIFF")
LARGE = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x00", b"\x00\x01\x00\x00")


@pytest.fixture
def app(tmp_path):
    # A small network: it is the way to it that is tried.
    return application([collection(tmp_path, each=2, size=32)], limits=Limits(pixels=1_000_000))


def samples() -> list[bytes]:
    """Every format, still and animated; a bomb, and files that are two things at once."""
    made = [content(1, kind) for kind in FORMATS]
    for kind in ANIMATED:
        out = io.BytesIO()
        pixels(1).save(out, kind, save_all=True, append_images=[pixels(seed) for seed in (2, 3)])
        made.append(out.getvalue())
    made += [content(1, "JPEG", progressive=True), bomb(800, 900), bomb(30_000, 30_000)]
    return [*made, *(one + b"%PDF-1.4\nPK\x03\x04<script>alert(1)</script>" for one in made[:3]), heic()]


def bomb(width: int, height: int) -> bytes:
    """A small file of many pixels, all black."""
    rows = zlib.compress(bytes(min(1 << 24, (width + 1) * height)), 9)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def heic() -> bytes:
    try:
        import pillow_heif
    except ImportError:
        return content(2)
    out = io.BytesIO()
    pillow_heif.from_pillow(pixels(1)).save(out, quality=60)
    return out.getvalue()


def mutated(rng: random.Random, known: list[bytes]) -> bytes:
    """A picture that was cut, spliced, overwritten, made to claim another size, or grown."""
    data = bytearray(rng.choice(known))
    kind = rng.randrange(6)
    if kind == 0:
        del data[rng.randrange(len(data)) :]
    elif kind == 1:
        for _ in range(rng.randrange(1, 30)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif kind == 2:  # a header of one, a body of another
        other = rng.choice(known)
        data = data[: rng.randrange(1, 80)] + other[rng.randrange(len(other)) :]
    elif kind == 3:  # large numbers where sizes stand
        at = rng.randrange(min(60, len(data)))
        data[at : at + 4] = rng.choice(LARGE)
    elif kind == 4:  # a piece twice, or not at all
        at = rng.randrange(len(data))
        piece = data[at : at + rng.randrange(1, 200)]
        data = data[:at] + (piece * 2 if rng.random() < 0.5 else b"") + data[at + len(piece) :]
    else:
        data += b"<script>alert(1)</script>PK\x03\x04" + rng.randbytes(200)
    return bytes(data)


def test_mutated_uploads_are_answered_or_refused_and_decoders_may_die(app):
    known, seen, stop = samples(), Counter(), threading.Event()
    decoders = app.decoders

    def killer() -> None:  # as a picture would that takes its decoder with it
        rng = random.Random(1)
        while not stop.wait(rng.random() * (2 if MUTATIONS < 1000 else 30)):
            for decoder in rng.sample(list(decoders._all), min(1, len(decoders._all))):
                os.kill(decoder.process.pid, signal.SIGKILL)

    def attempts(numbers: range) -> None:
        with httpx.Client(base_url=address, timeout=120) as client:
            for number in numbers:
                picture = mutated(random.Random(number), known)
                answer = client.post("/api/search", files={"file": picture}, data={"k": "2"})
                assert answer.status_code in (200, 422), f"mutation {number}: {answer.status_code} {answer.text}"
                assert answer.status_code == 200 or answer.json()["cure"]
                seen[answer.status_code] += 1

    with running(app) as address, ThreadPoolExecutor(8) as clients:
        ending = threading.Thread(target=killer)
        ending.start()
        step, memory = max(1, MUTATIONS // 10), []
        try:
            for start in range(0, MUTATIONS, step):
                parts = [range(start + n, min(MUTATIONS, start + step), 8) for n in range(8)]
                list(clients.map(attempts, parts))
                memory.append(resident())
                print(start + step, dict(seen), f"{memory[-1] >> 20} MB, {decoders.deaths} deaths", flush=True)
        finally:
            stop.set()
            ending.join()
        assert sum(seen.values()) == MUTATIONS
        assert seen[200]
        assert seen[422]  # both kinds were tried
        assert httpx.post(f"{address}api/search", files={"file": content(1)}, timeout=60).status_code == 200
    if MUTATIONS >= 10_000:  # what is kept was full long before
        assert memory[-1] < memory[1] + (64 << 20), [m >> 20 for m in memory]


def resident() -> int:
    """Bytes that this process holds."""
    place = Path("/proc/self/statm")
    return int(place.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if place.exists() else 0


def test_a_bomb_is_refused_before_it_is_decoded(app):
    with running(app) as address:
        refused = httpx.post(f"{address}api/search", files={"file": bomb(30_000, 30_000)}, timeout=60)
    assert refused.status_code == 422
    assert "pixels" in refused.json()["error"]
    Image.open(io.BytesIO(bomb(80, 90))).load()  # it is a picture, only large


def test_whatever_the_description_allows_and_forbids_is_answered(app):
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, given, settings

    examples = max(4, min(2000, MUTATIONS // 20))

    with running(app) as address:
        schema = schemathesis.openapi.from_url(f"{address}openapi.json")
        for operation in schema.get_all_operations():
            made = operation.ok()

            @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
            @given(case=made.as_strategy())
            def no_fault(case):
                answer = case.call()
                assert answer.status_code < 500 or answer.status_code == 501, (case.method, case.path, answer.text)

            no_fault()
