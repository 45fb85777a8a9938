"""What the server refuses, and what it survives."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

from secondsight.errors import ConfigError
from secondsight.serve.request_limits import Limits
from secondsight.serve.routes import application
from secondsight.serve.server import check_token
from serve_pictures import collection, content, running

TOKEN = "0123456789abcdef"


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return collection(tmp_path_factory.mktemp("serve"), each=3)


@contextlib.contextmanager
def client(photos, *, base="http://localhost", **options):
    with TestClient(application([photos], **options), base_url=base, follow_redirects=False) as made:
        yield made


def test_an_address_that_others_reach_needs_a_token():
    check_token("127.0.0.1", None)
    check_token("::1", None)
    check_token("0.0.0.0", TOKEN)
    for host, token in (("0.0.0.0", None), ("192.168.1.5", None), ("example.org", None), ("127.0.0.1", "short")):
        with pytest.raises(ConfigError, match="token"):
            check_token(host, token)


def test_only_who_has_the_token_is_answered(photos):
    with client(photos, token=TOKEN) as http:
        assert http.get("/healthz").status_code == 200
        for address in ("/", "/api/items", "/metrics", "/openapi.json", "/app.js"):
            refused = http.get(address)
            assert refused.status_code == 401
            assert refused.json()["cure"]
        assert http.get("/api/items", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert http.get("/api/items", headers={"authorization": f"Bearer {TOKEN}x"}).status_code == 401
        assert http.get(f"/?token={TOKEN[:-1]}é").status_code == 401
        entered = http.get(f"/?token={TOKEN}")
        assert entered.status_code == 303
        assert entered.headers["location"] == "/"
        assert "HttpOnly" in entered.headers["set-cookie"]
        assert "SameSite=Strict" in entered.headers["set-cookie"]
        assert http.get("/api/items").status_code == 200  # by the cookie


def test_every_answer_carries_the_policy_that_the_page_keeps(photos):
    with client(photos) as http:
        for address in ("/", "/app.js", "/api/items", "/api/image/0", "/nowhere", "/api/image/99"):
            headers = http.get(address).headers
            assert "script-src 'self'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
        page = http.get("/").text
        assert "<style" not in page
        assert "style=" not in page
        assert "onclick" not in page
        assert "http" not in page.replace("http-equiv", "").replace("over HTTP", "")


def test_other_names_and_other_sites_are_turned_away(photos):
    with client(photos, hosts={"localhost"}, base="http://evil.example") as http:
        assert http.get("/api/items").status_code == 421
    with client(photos) as http:
        for site in ("cross-site", "same-site"):  # a neighbour's, too: another port of this machine
            assert http.get("/api/items", headers={"sec-fetch-site": site}).status_code == 403
        assert http.get("/api/items", headers={"sec-fetch-site": "same-origin"}).status_code == 200


def test_what_is_too_large_is_refused_by_its_length_and_by_its_bytes(photos):
    def drip():
        for _ in range(40):
            yield bytes(1 << 16)

    with client(photos, limits=Limits(upload=1 << 20)) as http:
        kind = {"content-type": "application/json"}
        assert http.post("/api/search", content=bytes(2 << 20), headers=kind).status_code == 413
        assert http.post("/api/search", content=drip(), headers=kind).status_code == 413
    with client(photos, limits=Limits(pixels=5000)) as http:
        answer = http.post("/api/search", files={"file": content(1)})
        assert answer.status_code == 422
        assert "pixels" in answer.json()["error"]
        assert answer.json()["cure"] == "make it smaller"


def asked(app, *, body=b"", more=False, path="/api/items", method="GET"):
    """One request straight to the application; ``more``: a client that never sends the rest."""
    sent = []

    async def run():
        async def receive():
            if not receive.given:
                receive.given = True
                return {"type": "http.request", "body": body, "more_body": more}
            return await asyncio.Event().wait()

        async def send(message):
            sent.append(message)

        receive.given = False
        head = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b""}
        await app({**head, "headers": [(b"host", b"localhost")], "root_path": "", "scheme": "http"}, receive, send)

    asyncio.run(run())
    return sent[0]["status"], dict(sent[0]["headers"])


def test_a_client_that_never_ends_its_request_is_cut_off(photos):
    app = application([photos], limits=Limits(arrival=0.2))
    status, headers = asked(app, body=b"{", more=True, path="/api/search", method="POST")
    assert status == 408
    assert headers[b"connection"] == b"close"


def closed(connection: socket.socket) -> bool:
    """Whether the other side hangs up, without an answer or after one."""
    connection.settimeout(30)
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(65_536):
            pass
    return True


def test_a_header_that_never_ends_is_cut_off_at_once_or_in_time(photos, monkeypatch):
    from secondsight.serve import connections

    monkeypatch.setattr(connections, "PATIENCE", 0.3)
    whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    with running(application([photos])) as address:
        place = ("127.0.0.1", int(address.rstrip("/").rpartition(":")[2]))
        for start in (b"", b"GET /healthz HTTP/1.1\r\nHo", whole + b"\r\n" + whole):  # silent, cut, cut the second time
            with socket.create_connection(place) as connection:
                connection.sendall(start)
                assert closed(connection)
        monkeypatch.setattr(connections, "PATIENCE", 600)
        with socket.create_connection(place) as connection:
            connection.sendall(whole + b"X: " + b"x" * (2 * connections.HEADER))
            assert closed(connection)
        with socket.create_connection(place) as connection:  # complete, and too large
            connection.sendall(whole + b"X: yyy\r\n" * connections.HEADER + b"\r\n")
            connection.settimeout(30)
            assert b" 400 " in connection.recv(100)
        with urllib.request.urlopen(f"{address}healthz") as answer:
            assert answer.status == 200


def ask(connection, request, times):
    for _ in range(times):
        connection.sendall(request)
        time.sleep(0.003)


def test_answers_that_are_not_taken_are_cut_off(photos, monkeypatch, caplog):
    from secondsight.serve import connections

    monkeypatch.setattr(connections, "TAKING", 0.3)
    with running(application([photos])) as address:
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", int(address.rstrip("/").rpartition(":")[2])))
            connection.settimeout(30)
            # Nothing is ever read, until the system holds no more for this client; then the server hangs up.
            with pytest.raises(ConnectionError):
                ask(connection, b"GET /app.js HTTP/1.1\r\nHost: localhost\r\n\r\n", 10_000)
        with urllib.request.urlopen(f"{address}healthz") as answer:
            assert answer.status == 200
        assert 'status="500"' not in urllib.request.urlopen(f"{address}metrics").read().decode()
    assert not caplog.records


def test_requests_that_do_not_wait_for_answers_are_not_kept_without_end(photos):
    with running(application([photos])) as address:
        place = ("127.0.0.1", int(address.rstrip("/").rpartition(":")[2]))
        with socket.create_connection(place) as connection:
            connection.settimeout(30)
            with contextlib.suppress(ConnectionError):
                connection.sendall(100_000 * b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert closed(connection)
        with urllib.request.urlopen(f"{address}healthz") as answer:
            assert answer.status == 200


def test_a_connection_too_many_is_told_when_to_come_back(photos, monkeypatch):
    from secondsight.serve import connections

    monkeypatch.setattr(connections, "CONNECTIONS", 2)
    with running(application([photos])) as address, contextlib.ExitStack() as held:
        place = ("127.0.0.1", int(address.rstrip("/").rpartition(":")[2]))
        for _ in range(2):
            held.enter_context(socket.create_connection(place))
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{address}healthz")
        assert refused.value.code == 503
        assert refused.value.headers["retry-after"]
        assert json.loads(refused.value.read())["cure"]


def test_a_full_server_says_when_to_come_back(photos):
    app = application([photos], limits=Limits(waiting=1, retry=7))
    app.working = 1
    status, headers = asked(app)
    assert status == 503
    assert headers[b"retry-after"] == b"7"
    assert asked(app, path="/healthz")[0] == 200
    with client(photos, limits=Limits(pictures=0)) as http:
        busy = http.post("/api/search", files={"file": content(1)})
        assert busy.status_code == 503
        assert busy.headers["retry-after"]
        assert http.post("/api/search", json={"id": 1}).status_code == 200


def test_a_decoder_that_dies_is_replaced_and_a_picture_is_refused_only_if_it_was_at_work(photos, monkeypatch):
    from secondsight.data.loading.decode import DecodeError
    from secondsight.serve.decoders import Decoder, Decoders

    asked, ask = threading.Event(), Decoder.ask
    monkeypatch.setattr(Decoder, "ask", lambda self, *question: asked.set() or ask(self, *question))
    decoders = Decoders(Limits(decoders=1))
    try:
        whole = decoders.pixels(content(1), None, "a").result()
        assert whole.shape == (100, 120, 3)
        (idle,) = decoders._all
        os.kill(idle.process.pid, signal.SIGKILL)
        idle.process.wait()
        assert (decoders.pixels(content(1), None, "b").result() == whole).all()
        assert decoders.deaths == 1
        (working,) = decoders._all
        os.kill(working.process.pid, signal.SIGSTOP)
        asked.clear()
        waiting = decoders.pixels(content(1), None, "c")
        assert asked.wait(30)
        os.kill(working.process.pid, signal.SIGKILL)
        with pytest.raises(DecodeError, match="died"):
            waiting.result()
        assert decoders.deaths == 2
        assert (decoders.pixels(content(1), None, "d").result() == whole).all()
    finally:
        decoders.close()


def test_a_picture_that_takes_too_long_costs_its_decoder_and_nothing_else(photos):
    with client(photos, limits=Limits(decoding=0.001, decoders=1)) as http:
        slow = http.post("/api/search", files={"file": content(1)})
        assert slow.status_code == 422
        assert "took more than" in slow.json()["error"]
        assert http.post("/api/search", json={"id": 1}).status_code == 200
        assert "secondsight_decoder_deaths 1.0" in http.get("/metrics").text


def test_a_file_that_went_away_and_an_index_without_a_model_are_said(photos, tmp_path):
    import numpy as np

    from secondsight import index

    bare = index.create(tmp_path / "bare.index", dim=4)
    bare.add_vectors(np.eye(4, dtype=np.float32))
    with client(bare) as http:
        assert http.get("/api/collections").json()["collections"][0]["trouble"]
        assert len(http.post("/api/search", json={"id": 0}).json()["hits"]) == 3
        assert http.post("/api/search", files={"file": content(1)}).status_code == 422
        assert http.get("/api/image/0").status_code == 404
    small = collection(tmp_path / "gone", each=2)
    os.unlink(small.item(0).path)
    with client(small) as http:
        assert http.get("/api/image/0").status_code == 404
        why = http.post("/api/explain", json={"a": {"id": 0}, "b": {"id": 1}})
        assert why.status_code == 404
        assert "update" in why.text


def test_the_command_serves_until_it_is_told_to_stop(photos):
    # A port that is free now; the command itself would take any with --port 0, but then nobody here knew it.
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "secondsight", "serve", str(photos.path), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert f":{port}/" in process.stdout.readline()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
            assert answer.status == 200
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/thumbnail/1") as answer:
            assert answer.read(3) == b"\xff\xd8\xff"
        children = _children(process.pid)
        process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=60)
        assert process.returncode == 0, error
        assert "Traceback" not in out + error
        for child in children:
            for _ in range(100):
                if not _alive(child):
                    break
                time.sleep(0.1)
            assert not _alive(child)
    finally:
        process.kill()
        process.wait()


def _children(pid: int) -> list[int]:
    place = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in place.read_text().split()] if place.exists() else []


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
