"""Downloads from a real local server that drops, truncates, corrupts, refuses and lies; and archives that attack."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import data_layouts as layouts
from secondsight import data
from secondsight.data.fetch.addresses import answers
from secondsight.data.fetch.archive import unpack
from secondsight.data.fetch.dataset import get
from secondsight.data.fetch.download import check, fetch
from secondsight.data.readers.registry import DATASETS, Archive, Count
from secondsight.errors import DataError, UnknownName

CONTENT = np.random.default_rng(0).bytes(300_000)


class Server(ThreadingHTTPServer):
    """Serves ``files``; ``script`` says how each request in turn is ill-treated, and ``seen`` keeps its headers."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.script: list[str] = []
        self.etag: str | None = '"one"'
        self.seen: list[dict[str, str]] = []
        self.resume = threading.Event()

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"

    def ranges(self) -> list[str | None]:
        return [headers.get("Range") for headers in self.seen]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_HEAD(self):
        self._head(200 if self.path[1:] in self.server.files else 404, 0, {})

    def do_GET(self):
        self.server.seen.append(dict(self.headers))
        content = self.server.files.get(self.path[1:].partition("?")[0])
        how, _, number = (self.server.script.pop(0) if self.server.script else "well").partition(" ")
        if content is None:
            how, number = "status", "404"
        if how == "status":
            self._head(int(number), 0, {"Retry-After": "0"})
            return
        start = self._start(content, ignore=how == "norange")
        if start is not None and start >= len(content):
            self._head(416, 0, {"Content-Range": f"bytes */{len(content)}"})
            return
        body = content[start or 0 :]
        headers = {} if start is None else {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
        if how == "lie":
            headers["Content-Range"] = f"bytes 0-{len(content) - 1}/{len(content)}"
        if how == "html":
            headers["Content-Type"] = "text/html; charset=utf-8"
        if how == "shorter":
            body = body[: len(body) // 2]
        if how == "corrupt":
            body = body[:1000] + b"X" * 10 + body[1010:]
        if how == "chunked":
            self._chunked(body)
            return
        self._head(200 if start is None else 206, len(body), headers)
        with contextlib.suppress(ConnectionError):
            if how in ("drop", "stall", "norange") and number:
                self.wfile.write(body[: int(number)])
                self.wfile.flush()
                if how == "stall":
                    self.server.resume.wait(10)
                self.close_connection = True
            else:
                self.wfile.write(body)

    def _start(self, content: bytes, *, ignore: bool) -> int | None:
        asked = self.headers.get("Range")
        if asked is None or ignore or self.headers.get("If-Range", self.server.etag) != self.server.etag:
            return None
        return int(asked.removeprefix("bytes=").removesuffix("-"))

    def _head(self, status: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/gzip", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        if self.server.etag:
            self.send_header("ETag", self.server.etag)
        self.end_headers()

    def _chunked(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(body) // 2, body[: len(body) // 2]))  # and no last chunk
        self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.files["a.bin"] = CONTENT
        yield running
        running.resume.set()
        running.shutdown()
        thread.join()


def _archive(content: bytes = CONTENT, **change) -> Archive:
    md5, sha = hashlib.md5(content).hexdigest(), hashlib.sha256(content).hexdigest()
    known = Archive("a.bin", size=len(content), checksums=(f"md5:{md5}", f"sha256:{sha}"))
    return dataclasses.replace(known, **change)


def _fetch(server: Server, target: Path, archive: Archive | None = None, **options) -> Path:
    options = {"tries": 3, "pause": 0.0, "timeout": 5.0} | options
    return fetch(server.url("a.bin"), target, archive or _archive(), **options)


# One file


def test_a_file_arrives_and_leaves_nothing_else(server, tmp_path):
    assert _fetch(server, tmp_path / "x" / "a.bin").read_bytes() == CONTENT
    assert os.listdir(tmp_path / "x") == ["a.bin"]


def test_a_dropped_connection_is_continued_where_it_broke(server, tmp_path):
    server.script = ["drop 100000", "drop 50000", "well"]
    assert _fetch(server, tmp_path / "a.bin").read_bytes() == CONTENT
    assert server.ranges() == [None, "bytes=100000-", "bytes=150000-"]


def test_any_number_of_drops_is_borne_as_long_as_something_arrives(server, tmp_path):
    server.script = ["drop 20000"] * 14
    assert _fetch(server, tmp_path / "a.bin", tries=2).read_bytes() == CONTENT


def test_a_server_that_stalls_is_asked_again(server, tmp_path):
    server.script = ["stall 1000", "well"]
    assert _fetch(server, tmp_path / "a.bin", timeout=1.0).read_bytes() == CONTENT


def test_a_chunked_answer_that_breaks_off_is_asked_for_again(server, tmp_path):
    server.script = ["chunked", "well"]
    assert _fetch(server, tmp_path / "a.bin").read_bytes() == CONTENT


def test_a_server_that_ignores_ranges_is_read_from_the_beginning(server, tmp_path):
    server.script = ["norange 90000", "norange"]
    assert _fetch(server, tmp_path / "a.bin").read_bytes() == CONTENT
    assert server.ranges() == [None, "bytes=90000-"]


def test_a_server_that_ignores_ranges_and_always_drops_is_given_up(server, tmp_path):
    server.script = ["norange 90000"] * 20
    with pytest.raises(DataError, match=r"gave up after 3 tries without progress \(the connection was dropped\)"):
        _fetch(server, tmp_path / "a.bin")
    assert len(server.seen) == 4


def test_a_server_that_continues_at_the_wrong_place_spoils_nothing(server, tmp_path):
    server.script = ["drop 90000", "lie", "well"]
    assert _fetch(server, tmp_path / "a.bin").read_bytes() == CONTENT


def test_what_one_call_left_the_next_one_continues(server, tmp_path):
    server.script = ["drop 120000", *["status 503"] * 3]
    with pytest.raises(DataError, match=r"120,000 bytes are kept in .*a.bin.part, and the same command continues"):
        _fetch(server, tmp_path / "a.bin")
    assert not (tmp_path / "a.bin").exists()
    assert _fetch(server, tmp_path / "a.bin").read_bytes() == CONTENT
    assert server.ranges()[-1] == "bytes=120000-"


def test_a_process_that_was_killed_is_continued_by_the_next(server, tmp_path):
    server.script = ["stall 150000"]
    code = (
        "import sys, pathlib\n"
        "from secondsight.data.fetch.download import fetch\n"
        "from secondsight.data.readers.registry import Archive\n"
        "fetch(sys.argv[1], pathlib.Path(sys.argv[2]), Archive('a.bin'))"
    )
    child = subprocess.Popen([sys.executable, "-c", code, server.url("a.bin"), str(tmp_path / "a.bin")])
    part = tmp_path / "a.bin.part"
    try:
        _wait_for(lambda: len(server.seen) == 1 and part.exists())
        with pytest.raises(DataError, match="another download of it is running"):
            _fetch(server, tmp_path / "a.bin")
    finally:
        child.kill()
        child.wait()
    server.resume.set()
    assert _fetch(server, tmp_path / "a.bin").read_bytes() == CONTENT


def _wait_for(condition) -> None:
    for _ in range(1000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never happened")


def test_a_file_that_changed_on_the_server_is_not_glued_to_the_old_part(server, tmp_path):
    server.script = ["drop 100000", *["status 503"] * 3]
    with pytest.raises(DataError):
        _fetch(server, tmp_path / "a.bin")
    server.files["a.bin"] = new = CONTENT[::-1]
    server.etag = '"two"'
    assert _fetch(server, tmp_path / "a.bin", _archive(new)).read_bytes() == new


def test_without_a_checksum_and_an_etag_nothing_is_continued(server, tmp_path):
    server.etag = None
    server.script = ["drop 100000", "well"]
    assert _fetch(server, tmp_path / "a.bin", Archive("a.bin")).read_bytes() == CONTENT
    assert server.ranges() == [None, None]


def test_a_part_that_was_whole_already_is_only_checked(server, tmp_path):
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    assert _fetch(server, tmp_path / "a.bin").read_bytes() == CONTENT
    assert server.ranges() == [f"bytes={len(CONTENT)}-"]


def test_a_part_longer_than_the_file_is_thrown_away(server, tmp_path):
    (tmp_path / "a.bin.part").write_bytes(CONTENT + b"more")
    assert _fetch(server, tmp_path / "a.bin").read_bytes() == CONTENT


def test_damage_on_the_way_is_noticed_and_mended(server, tmp_path):
    server.script = ["corrupt", "well"]
    assert _fetch(server, tmp_path / "a.bin").read_bytes() == CONTENT


def test_a_file_that_is_always_damaged_is_refused(server, tmp_path):
    server.script = ["corrupt"] * 5
    with pytest.raises(DataError, match=r"a.bin: not the official file: it has md5 [0-9a-f]{32}, not [0-9a-f]{32}"):
        _fetch(server, tmp_path / "a.bin")
    assert len(server.seen) == 2
    assert not (tmp_path / "a.bin").exists()


def test_a_truncated_file_is_refused_before_it_is_read(server, tmp_path):
    server.script = ["shorter"] * 5
    with pytest.raises(DataError, match=r"it has 150,000 bytes, not 300,000"):
        _fetch(server, tmp_path / "a.bin")


def test_a_busy_server_is_asked_again_and_a_refusal_is_final(server, tmp_path):
    server.script = ["status 503", "status 429", "well"]
    assert _fetch(server, tmp_path / "a.bin").read_bytes() == CONTENT
    server.seen.clear()
    with pytest.raises(
        DataError, match=r"nothing.bin: the server answered 404 Not Found; try another address with --url"
    ):
        fetch(server.url("nothing.bin"), tmp_path / "b.bin", Archive("b.bin"), pause=0.0)
    assert len(server.seen) == 1


def test_a_web_page_instead_of_the_file_is_recognised(server, tmp_path):
    server.script = ["html"]
    with pytest.raises(DataError, match="sent a web page instead of the file"):
        _fetch(server, tmp_path / "a.bin")


def test_nobody_at_the_other_end_is_reported_after_the_last_try(tmp_path):
    with pytest.raises(DataError, match=r"gave up after 2 tries .*no connection"):
        fetch("http://127.0.0.1:9/a.bin", tmp_path / "a.bin", Archive("a.bin"), tries=2, pause=0.0)


def test_other_protocols_are_for_other_programs(tmp_path):
    for url in ("ftp://example.org/a.tgz", "file:///etc/passwd", "a.tgz"):
        with pytest.raises(DataError, match="only http and https"):
            fetch(url, tmp_path / "a", Archive("a"))


def test_a_file_that_cannot_fit_is_not_begun(server, tmp_path):
    big = dataclasses.replace(_archive(), size=None)
    from secondsight.data.fetch.download import _require_fit

    with pytest.raises(DataError, match=r"GB are still to come and .* GB are free; make room"):
        _require_fit(tmp_path / "a.part", "http://x", big, start=0, total=10**18)


def test_links_can_be_asked_whether_they_answer(server):
    assert answers(server.url("a.bin"))
    assert not answers(server.url("nothing.bin"))
    assert not answers("http://127.0.0.1:9/")


# Archives


def _tar(path: Path, members: list[tarfile.TarInfo | tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return path


def _link(name: str, target: str, *, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


@pytest.mark.parametrize(
    "member",
    [
        ("../evil.txt", b"x"),
        ("a/../../evil.txt", b"x"),
        ("/tmp/evil.txt", b"x"),
        ("..\\evil.txt", b"x"),
        ("C:\\evil.txt", b"x"),
        _link("a/link", "../../etc/passwd"),
        _link("link", "/etc/passwd"),
        _link("link", "../outside", kind=tarfile.LNKTYPE),
        _link("device", "", kind=tarfile.CHRTYPE),
        _link("pipe", "", kind=tarfile.FIFOTYPE),
    ],
    ids=lambda m: m.name if isinstance(m, tarfile.TarInfo) else m[0],
)
def test_an_archive_that_reaches_outside_is_refused(tmp_path, member):
    archive = _tar(tmp_path / "a.tgz", [("good.txt", b"good"), member])
    into = tmp_path / "deep" / "into"
    into.mkdir(parents=True)
    with pytest.raises(DataError, match="refused"):
        unpack(archive, into)
    assert {p.name for p in (tmp_path / "deep").rglob("*")} <= {"into", "good.txt"}


def test_links_inside_an_archive_become_files(tmp_path):
    members = [
        ("a/one.txt", b"one"),
        _link("a/two.txt", "one.txt"),
        _link("b/three.txt", "a/one.txt", kind=tarfile.LNKTYPE),
    ]
    into = tmp_path / "into"
    into.mkdir()
    assert unpack(_tar(tmp_path / "a.tgz", members), into) == 3
    for name in ("a/two.txt", "b/three.txt"):
        assert (into / name).read_bytes() == b"one"
        assert not (into / name).is_symlink()


def test_a_zip_that_reaches_outside_or_holds_links_is_refused(tmp_path):
    for name, mode in (("../evil.txt", 0o100644), ("link", 0o120777)):
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr(info, "/etc/passwd")
        (tmp_path / "into").mkdir(exist_ok=True)
        with pytest.raises(DataError, match="refused"):
            unpack(tmp_path / "a.zip", tmp_path / "into")
    assert os.listdir(tmp_path / "into") == []


@pytest.mark.parametrize("kind", ["tgz", "zip"])
def test_a_damaged_archive_is_named(tmp_path, kind):
    file = tmp_path / f"a.{kind}"
    pictures = [(f"a/{i}.png", os.urandom(3000)) for i in range(5)]
    if kind == "tgz":
        _tar(file, pictures)
    else:
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in pictures:
                archive.writestr(name, content)
    whole = file.read_bytes()
    spoiled = whole[:4000] + b"X" * 200 + whole[4200:]
    for i, damaged in enumerate((whole[: len(whole) // 2], spoiled, b"hello", b"")):
        file.write_bytes(damaged)
        into = tmp_path / f"into{i}"
        into.mkdir()
        with pytest.raises(DataError, match=rf"a.{kind}: (cannot be unpacked|not a zip or tar)"):
            unpack(file, into)


def test_what_the_mac_adds_to_a_zip_stays_out(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("a/0.png", "a/._0.png", "__MACOSX/a/0.png", "a/.DS_Store"):
            archive.writestr(name, "x")
    (tmp_path / "into").mkdir()
    assert unpack(tmp_path / "a.zip", tmp_path / "into") == 1


# Whole datasets

SMALL = {1: 2, 2: 3, 101: 2, 102: 2}


def _small_cub(server: Server, tmp_path: Path, *, counts=SMALL, names=("small.tgz",)):
    """A dataset like CUB with two classes a side, served under ``names``."""
    layouts.cub(tmp_path / "made" / "CUB_200_2011", counts)
    with tarfile.open(tmp_path / "small.tgz", "w:gz") as archive:
        archive.add(tmp_path / "made" / "CUB_200_2011", "CUB_200_2011")
    content = (tmp_path / "small.tgz").read_bytes()
    server.files |= {name: content for name in names if name == "small.tgz"}
    archive = _archive(content, name="small.tgz", urls=tuple(server.url(name) for name in names))
    return dataclasses.replace(
        DATASETS["cub200"], archives=(archive,), parts={"train": Count(2, 5), "test": Count(2, 4)}
    )


def test_get_downloads_checks_unpacks_and_opens(server, tmp_path):
    dataset = _small_cub(server, tmp_path)
    server.script = ["drop 500", "well"]
    images = get(dataset, root=tmp_path / "data", pause=0.0)
    assert images.root == tmp_path / "data" / "cub200" / "CUB_200_2011"
    assert (len(images), images.path(0).is_file()) == (9, True)
    assert os.listdir(tmp_path / "data") == ["cub200"]
    assert data.splits(f"cub200:{tmp_path / 'data' / 'cub200'}", check=False).eval.classes[0] == "101.Bird_101"


def test_get_leaves_a_whole_dataset_alone(server, tmp_path):
    dataset = _small_cub(server, tmp_path)
    get(dataset, root=tmp_path / "data")
    (tmp_path / "data" / "cub200" / "mine.txt").write_text("mine")
    server.seen.clear()
    assert len(get(dataset, root=tmp_path / "data")) == 9
    assert not server.seen
    get(dataset, root=tmp_path / "data", force=True)
    assert not (tmp_path / "data" / "cub200" / "mine.txt").exists()


def test_get_replaces_a_broken_dataset_only_when_told_to(server, tmp_path):
    dataset = _small_cub(server, tmp_path)
    layouts.cub(tmp_path / "data" / "cub200", {1: 1})
    with pytest.raises(DataError, match=r"Move .*cub200 away, or pass --force to replace it"):
        get(dataset, root=tmp_path / "data")
    assert len(get(dataset, root=tmp_path / "data", force=True)) == 9


def test_get_tries_the_next_address_when_one_fails(server, tmp_path):
    dataset = _small_cub(server, tmp_path, names=("gone.tgz", "small.tgz"))
    assert len(get(dataset, root=tmp_path / "data", pause=0.0)) == 9
    nowhere = dataclasses.replace(dataset.archives[0], urls=(server.url("x.tgz"), server.url("y.tgz")))
    with pytest.raises(DataError, match=r"(?s)x.tgz: the server answered 404.*y.tgz: the server answered 404"):
        get(dataclasses.replace(dataset, archives=(nowhere,)), root=tmp_path / "other", pause=0.0)


def test_an_archive_without_the_dataset_installs_nothing(server, tmp_path):
    dataset = _small_cub(server, tmp_path, counts={1: 2, 2: 2, 101: 2, 102: 2})
    with pytest.raises(DataError, match=r"nothing was installed: .*has 5 images of 2 classes, but 4 images"):
        get(dataset, root=tmp_path / "data")
    assert not (tmp_path / "data" / "cub200").exists()
    half = dataclasses.replace(dataset, parts={"train": Count(2, 4), "test": Count(3, 7)})
    with pytest.raises(DataError, match="nothing was installed"):
        get(half, root=tmp_path / "data")


def test_get_from_a_file_and_from_a_mirror(server, tmp_path):
    dataset = _small_cub(server, tmp_path)
    assert len(get(dataset, root=tmp_path / "a", files=[tmp_path / "small.tgz"])) == 9
    assert (tmp_path / "small.tgz").exists()
    assert not server.seen
    server.files["mirror/cub.tgz"] = server.files["small.tgz"]
    assert len(get(dataset, root=tmp_path / "b", urls=[server.url("mirror/cub.tgz?token=1")])) == 9
    with pytest.raises(DataError, match=r"smal.tgz: no such file or folder; did you mean '.*small.tgz'"):
        get(dataset, root=tmp_path / "c", files=[tmp_path / "smal.tgz"])
    with pytest.raises(DataError, match="cannot be used together"):
        get(dataset, root=tmp_path / "c", files=[tmp_path / "small.tgz"], urls=["http://x"])


def test_a_repacked_archive_needs_no_checksum_to_be_judged_by_its_content(server, tmp_path):
    dataset = _small_cub(server, tmp_path)
    with zipfile.ZipFile(tmp_path / "again.zip", "w") as archive:
        for file in (tmp_path / "made").rglob("*"):
            if file.is_file():
                archive.write(file, file.relative_to(tmp_path / "made"))
    with pytest.raises(DataError, match=r"not the official file: .*--no-checksum"):
        get(dataset, root=tmp_path / "data", files=[tmp_path / "again.zip"])
    assert len(get(dataset, root=tmp_path / "data", files=[tmp_path / "again.zip"], checksum=False)) == 9


def test_an_unpacking_that_was_interrupted_does_not_download_again(server, tmp_path):
    dataset = _small_cub(server, tmp_path)
    (tmp_path / "data" / ".downloads").mkdir(parents=True)
    (tmp_path / "data" / ".downloads" / "small.tgz").write_bytes(server.files["small.tgz"])
    assert len(get(dataset, root=tmp_path / "data", keep=True)) == 9
    assert not server.seen
    assert (tmp_path / "data" / ".downloads" / "small.tgz").exists()


def test_a_kept_download_without_a_checksum_is_not_trusted(server, tmp_path):
    dataset = dataclasses.replace(_small_cub(server, tmp_path), archives=())
    (tmp_path / "data" / ".downloads").mkdir(parents=True)
    (tmp_path / "data" / ".downloads" / "small.tgz").write_bytes(b"of another day")
    assert len(get(dataset, root=tmp_path / "data", urls=[server.url("small.tgz")])) == 9


def test_cars_in_several_files_is_put_together(tmp_path):
    made = layouts.cars_single(tmp_path / "made", {1: 2, 99: 2})
    with tarfile.open(tmp_path / "ims.tgz", "w:gz") as archive:
        archive.add(made / "car_ims", "car_ims")
    dataset = dataclasses.replace(DATASETS["cars196"], parts={"train": Count(1, 2), "test": Count(1, 2)})
    files = [tmp_path / "ims.tgz", made / "cars_annos.mat"]
    assert len(get(dataset, root=tmp_path / "data", files=files, checksum=False)) == 4
    with pytest.raises(DataError, match=r"cars_annos.mat: not the official file"):
        get(dataset, root=tmp_path / "other", files=files)


def test_the_dead_link_of_cars_names_what_works_instead(tmp_path):
    with pytest.raises(DataError, match=r"(?s)official link is dead.*--url https://www.kaggle.com.*--from"):
        get("cars196", root=tmp_path)
    with pytest.raises(UnknownName, match=r"'folder'.*Valid: cars196, cub200, sop"):
        get("folder", root=tmp_path)


def test_known_checksums_have_the_length_of_their_kind():
    lengths = {"md5": 32, "sha256": 64}
    for archive in (a for d in DATASETS.values() for a in d.archives):
        assert archive.checksums
        for checksum in archive.checksums:
            kind, value = checksum.split(":")
            assert len(bytes.fromhex(value)) * 2 == lengths[kind]
    assert "md5:97eceeb196236b17998738112f37df78" in DATASETS["cub200"].archives[0].checksums


def test_a_file_is_checked_by_size_and_by_every_checksum(tmp_path):
    file = tmp_path / "a.bin"
    file.write_bytes(CONTENT)
    check(file, _archive())
    with pytest.raises(DataError, match="300,000 bytes, not 1"):
        check(file, _archive(size=1))
    good = _archive().checksums[0]
    with pytest.raises(DataError, match=f"has sha256 .*, not {'0' * 64}"):
        check(file, _archive(checksums=(good, f"sha256:{'0' * 64}")))
