"""No upload and no request, however broken, makes the server fault. FUZZ=100000 runs as many mutations as that."""

from __future__ import annotations

import os
import random

import pytest

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

from secondsight.serve.limits import Limits
from secondsight.serve.routes import application
from serve_pictures import collection, content, running

MUTATIONS = int(os.environ.get("FUZZ", "120"))
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "JPEG2000", "ICO")


@pytest.fixture
def app(tmp_path):
    return application([collection(tmp_path, each=2)], limits=Limits(pixels=1_000_000))


def mutated(rng: random.Random, samples: list[bytes]) -> bytes:
    """A picture that was cut, spliced, overwritten or grown."""
    data = bytearray(rng.choice(samples))
    kind = rng.randrange(5)
    if kind == 0:
        del data[rng.randrange(len(data)) :]
    elif kind == 1:
        for _ in range(rng.randrange(1, 30)):
            data[rng.randrange(len(data))] = rng.randrange(256)
    elif kind == 2:  # a header of one, a body of another
        other = rng.choice(samples)
        data = data[: rng.randrange(1, 80)] + other[rng.randrange(len(other)) :]
    elif kind == 3:  # large numbers where sizes stand
        at = rng.randrange(min(60, len(data)))
        data[at : at + 4] = rng.choice(
            [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x00", b"\x00\x01\x00\x00"]
        )
    else:
        data += b"<script>alert(1)</script>PK\x03\x04" + rng.randbytes(200)
    return bytes(data)


def test_mutated_uploads_are_answered_or_refused(app):
    rng = random.Random(0)
    samples = [content(1, kind) for kind in FORMATS]
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        seen = {200: 0, 422: 0}
        for number in range(MUTATIONS):
            picture = mutated(rng, samples)
            answer = client.post("/api/search", files={"file": picture}, data={"k": "2"})
            assert answer.status_code in (200, 422), f"mutation {number}: {answer.status_code} {answer.text}"
            assert answer.status_code == 200 or answer.json()["cure"]
            seen[answer.status_code] += 1
        assert all(seen.values())  # both kinds were tried
        assert client.post("/api/search", files={"file": content(1)}).status_code == 200


def test_whatever_the_description_allows_and_forbids_is_answered(app):
    schemathesis = pytest.importorskip("schemathesis")
    from hypothesis import HealthCheck, given, settings

    examples = max(4, MUTATIONS // 20)

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
