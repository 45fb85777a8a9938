"""Addresses, servers and archives that are not what they should be: refused, with the reason, and nothing is left."""

from __future__ import annotations

import gzip
import io
import os
import resource
import signal
import socket
import tarfile
import threading
import time
import zipfile
from pathlib import Path

import pytest
from attempts import Liar

from secondsight.data.fetch import archive as unpacking
from secondsight.data.fetch.addresses import address
from secondsight.data.fetch.archive import unpack
from secondsight.data.fetch.dataset import get
from secondsight.data.fetch.download import fetch
from secondsight.data.readers.registry import Archive
from secondsight.errors import ConfigError, DataError


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("http://[::1", "not an address"),
        ("http://host:99999/x", "not an address"),
        ("http://host:abc/x", "not an address"),
        ("http:///x", "names no host"),
        ("http://a b/x", "names no host"),
        ("http://me:secret@host/x", "a name or a password"),
        ("ftp://host/x", "only http and https"),
        ("file:///etc/passwd", "only http and https"),
        ("x", "only http and https"),
        ("http://" + "a" * 300 + ".org/", "not an address"),
    ],
)
def test_what_is_no_address_is_not_asked(url, cause, tmp_path):
    start = time.monotonic()
    with pytest.raises(DataError, match=cause):
        get("cub200", root=tmp_path, urls=[url])
    assert time.monotonic() - start < 30  # no tries, no waiting
    assert list(tmp_path.iterdir()) == []


def test_a_redirection_to_what_is_no_address_is_refused(tmp_path):
    liar = Liar()
    liar.answer = b"HTTP/1.1 302 Found\r\nLocation: http://[::1/x\r\n\r\n"
    with pytest.raises(DataError, match=r"the server points to http://\[::1/x, which is not an address"):
        fetch(f"http://127.0.0.1:{liar.port}/x", tmp_path / "x", Archive("x", size=3), tries=1, pause=0.0, timeout=3)


def test_letters_and_spaces_in_an_address_are_written_as_they_must_be():
    assert address("http://host/é b?c=ü") == "http://host/%C3%A9%20b?c=%C3%BC"
    assert address("https://bücher.example:8080/x%20y") == "https://xn--bcher-kva.example:8080/x%20y"
    assert address("http://[::1]:80/x") == "http://[::1]:80/x"


def test_a_host_that_does_not_exist_is_asked_once(tmp_path, monkeypatch):
    def unknown(*_, **__):
        asked.append(1)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    asked: list[int] = []
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(DataError, match=r"no connection.*Name or service not known.*check the address"):
        fetch("http://nowhere.invalid/x", tmp_path / "x", Archive("x"))
    assert len(asked) == 1


@pytest.mark.parametrize("target", ["ftp://127.0.0.1/x", "file:///etc/passwd", "data:text/plain,x", "gopher://x"])
def test_a_server_cannot_send_us_to_another_protocol(tmp_path, target):
    liar = Liar()
    liar.answer = f"HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()
    with pytest.raises(DataError):
        fetch(f"http://127.0.0.1:{liar.port}/x", tmp_path / "x", Archive("x"), tries=2, pause=0.0)
    assert not (tmp_path / "x").exists()


def test_tries_are_shown_where_there_is_no_bar(tmp_path, capsys):
    liar = Liar()
    liar.answer = b"HTTP/1.1 503 Busy\x1b[2J\r\nContent-Length: 0\r\n\r\n"
    with pytest.raises(DataError, match="gave up after 2 tries"):
        fetch(f"http://127.0.0.1:{liar.port}/x", tmp_path / "x", Archive("x"), tries=2, pause=0.01)
    said = capsys.readouterr().err
    assert "the server answered 503 Busy�[2J; trying again in 0 s" in said
    assert "\x1b" not in said


def test_a_disk_that_fills_up_is_named_once(tmp_path):
    liar, (_, most) = Liar(), resource.getrlimit(resource.RLIMIT_FSIZE)
    liar.answer = b"HTTP/1.1 200 OK\r\n\r\n" + bytes(1 << 20)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing then fails as on a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, most))
    try:
        with pytest.raises(DataError, match="the disk is full"):
            fetch(f"http://127.0.0.1:{liar.port}/x", tmp_path / "x", Archive("x"), tries=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        signal.signal(signal.SIGXFSZ, before)


def test_two_downloads_of_one_file_are_told_so(tmp_path):
    waiting = threading.Event()
    server = socket.create_server(("127.0.0.1", 0))

    def slow() -> None:
        connection, _ = server.accept()
        waiting.wait(30)
        server.close()
        connection.close()

    threading.Thread(target=slow, daemon=True).start()
    url = f"http://127.0.0.1:{server.getsockname()[1]}/x"
    first = threading.Thread(target=lambda: _quietly(url, tmp_path / "x"), daemon=True)
    first.start()
    while not (tmp_path / "x.part").exists():
        time.sleep(0.01)
    with pytest.raises(DataError, match="another download of it is running"):
        fetch(url, tmp_path / "x", Archive("x"), tries=1)
    waiting.set()
    first.join(30)


def _quietly(url: str, target: Path) -> None:
    with pytest.raises(DataError):
        fetch(url, target, Archive("x"), tries=1, pause=0.0)


def test_a_root_that_is_a_file_is_known_before_anything_is_asked(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written to"):
        get("cub200", root=tmp_path / "file", urls=["http://127.0.0.1:1/x"])


# ---------------------------------------------------------------- archives


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return path


@pytest.mark.parametrize(
    ("name", "cause"),
    [("", "has no name"), (".", "has no name"), ("a" * 300 + ".png", "cannot be written"), ("a/../../b", "outside")],
)
def test_names_that_are_none_are_refused(tmp_path, name, cause):
    (tmp_path / "into").mkdir()
    with pytest.raises(DataError, match=cause):
        unpack(zipped(tmp_path / "a.zip", {name: b"x"}), tmp_path / "into")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.zip", "into"]


def test_a_file_where_a_folder_must_be_is_named(tmp_path):
    (tmp_path / "into").mkdir()
    with pytest.raises(DataError, match=r"'a/b' cannot be written"):
        unpack(zipped(tmp_path / "a.zip", {"a": b"x", "a/b": b"y"}), tmp_path / "into")


@pytest.mark.parametrize("keep", [10, 100, 150])
def test_an_archive_that_was_cut_off_says_so(tmp_path, keep):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as packed:
        info = tarfile.TarInfo("a.png")
        info.size = 5000
        packed.addfile(info, io.BytesIO(os.urandom(5000)))
    (tmp_path / "a.tgz").write_bytes(out.getvalue()[:keep])
    (tmp_path / "into").mkdir()
    with pytest.raises(DataError, match=r"a\.tgz: cannot be unpacked \(.*\); it is damaged or locked, get it again"):
        unpack(tmp_path / "a.tgz", tmp_path / "into")


def test_a_small_archive_cannot_fill_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(unpacking, "SLACK", 1 << 20)
    (tmp_path / "into").mkdir()
    bomb = zipped(tmp_path / "a.zip", {f"{i}.png": bytes(1 << 20) for i in range(8)})
    with pytest.raises(DataError, match="more than 20 times as large"):
        unpack(bomb, tmp_path / "into")
    assert sum(p.stat().st_size for p in (tmp_path / "into").iterdir()) <= 2 << 20
    with gzip.open(tmp_path / "b.tgz", "wb") as file, tarfile.open(fileobj=file, mode="w") as packed:
        info = tarfile.TarInfo("a.png")
        info.size = 8 << 20
        packed.addfile(info, io.BytesIO(bytes(8 << 20)))
    with pytest.raises(DataError, match="more than 20 times as large"):
        unpack(tmp_path / "b.tgz", tmp_path / "into")
