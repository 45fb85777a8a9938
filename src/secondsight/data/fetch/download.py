"""One file from the network, whatever the network does: resumed, retried, checked, and only then given its name."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from secondsight.data.fetch.addresses import AGENT, address, opener
from secondsight.data.readers.registry import Archive
from secondsight.errors import DataError
from secondsight.files import locked, write_text
from secondsight.terminal import console, marked

CHUNK = 1 << 18
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP answers that another try may improve; every other refusal is final."""


class _Passing(Exception):
    """A failure that may be gone at the next try."""

    def __init__(self, why: str, wait: float = 0.0):
        super().__init__(why)
        self.wait = wait


class ChecksumError(DataError):
    """A file that is not the one it should be."""


def fetch(
    url: str, target: Path, archive: Archive, *, tries: int = 6, pause: float = 1.0, timeout: float = 30.0
) -> Path:
    """Download ``url`` to ``target``; what an earlier, interrupted call left in ``target.part`` is continued.

    Gives up after ``tries`` attempts in a row without progress, waiting ``pause`` · 2ᵏ seconds before the k-th.
    """
    url = address(url)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    with _locked(part) as file, _bar() as progress:
        task = progress.add_task(f"downloading {marked(target.name)}", total=archive.size, note="")
        best, failures, damaged = -1, 0, False
        while True:
            try:
                _attempt(url, file, archive, timeout=timeout, progress=progress, task=task)
                check(part, archive, source=url, progress=progress)
                break
            except ChecksumError:
                file.truncate(0)
                if damaged:  # twice the wrong bytes are no accident of the line
                    _memory(part).unlink(missing_ok=True)
                    raise
                damaged, best, trouble = True, -1, _Passing("the file arrived damaged")
            except _Passing as error:
                trouble = error
            size = file.seek(0, os.SEEK_END)
            failures, best = (0, size) if size > best else (failures + 1, best)
            if failures >= tries:
                raise DataError(
                    f"{url}: gave up after {tries} tries without progress ({trouble}). {size:,} bytes are kept "
                    f"in {part}, and the same command continues from there; or try another address with --url"
                )
            wait = max(trouble.wait, min(pause * 2**failures, 60.0))
            again = f"{trouble}; trying again in {wait:.0f} s"
            progress.update(task, note=marked(again))
            if progress.disable:  # in a log file there is no bar to say it
                progress.console.print(f"{url}: {again}", markup=False, highlight=False, soft_wrap=True)
            time.sleep(wait)
        os.fsync(file.fileno())
    os.replace(part, target)
    _memory(part).unlink(missing_ok=True)
    for left in part.parent.glob(f".{glob.escape(_memory(part).name)}.*.tmp"):  # of a process that was killed
        left.unlink(missing_ok=True)
    return target


def _attempt(url: str, file: BinaryIO, archive: Archive, *, timeout: float, progress: Progress, task: TaskID) -> None:
    """Ask for what is still missing and append it; ``_Passing`` when the end was not reached."""
    memory = _memory(Path(file.name))
    start = file.seek(0, os.SEEK_END)
    validator = _recall(memory, url)
    if start and not validator and not archive.checksums:
        start = 0  # nothing could tell whether the file on the server is still the same one
    headers = {"User-Agent": AGENT, "Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-"} | ({"If-Range": validator} if validator else {})
    with _respond(urllib.request.Request(url, headers=headers), file, timeout=timeout) as response:
        if response is None:  # everything is here already
            return
        if response.status != 206:  # a server that ignores Range, or a file that has changed: from the beginning
            start = 0
        elif not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
            file.truncate(0)
            raise _Passing("the server continued at the wrong place")
        total = _total(response, start)
        _require_fit(Path(file.name), url, archive, start=start, total=total)
        _remember(memory, url, response)
        progress.update(task, total=total, completed=start, note="")
        file.truncate(start)
        file.seek(start)
        while chunk := response.read(CHUNK):
            _write(file, chunk)
            progress.advance(task, len(chunk))
        file.flush()
        if total is not None and file.tell() < total:  # http.client takes an early end for the end
            raise _Passing("the connection was dropped")


@contextlib.contextmanager
def _respond(
    request: urllib.request.Request, file: BinaryIO, *, timeout: float
) -> Iterator[http.client.HTTPResponse | None]:
    """The answer, or None for «there is nothing after that»; refusals and broken lines become our errors."""
    try:
        with opener().open(request, timeout=timeout) as response:
            _refuse_pages(request.full_url, response)
            yield response
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416:
                if error.headers.get("Content-Range", "").endswith(f"/{file.seek(0, os.SEEK_END)}"):
                    yield None
                    return
                file.truncate(0)
                raise _Passing("the file on the server has become shorter") from error
            if error.code in PASSING:
                raise _Passing(f"the server answered {error.code} {error.reason}", _retry_after(error)) from error
            raise DataError(
                f"{request.full_url}: the server answered {error.code} {error.reason}; try another address with --url, "
                "or pass a file you have with --from"
            ) from error
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise DataError(f"{request.full_url}: the server's certificate is not valid ({error.reason})") from error
        if _is_final(error.reason):
            raise DataError(
                f"{request.full_url}: no connection: {error.reason}; check the address, or pass a file you have with "
                "--from"
            ) from error
        raise _Passing(f"no connection: {error.reason}") from error
    except http.client.InvalidURL as error:
        raise DataError(f"{request.full_url}: not an address ({error}); check it") from error
    except (http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError) as error:
        if _is_final(error):
            raise DataError(f"{request.full_url}: no secure connection: {error}; check the address") from error
        raise _Passing(f"the connection was dropped ({type(error).__name__})") from error


def _is_final(reason: object) -> bool:
    """Whether another try cannot help: no such host, or no such protocol at the other end."""
    if isinstance(reason, socket.gaierror):
        return reason.errno != socket.EAI_AGAIN
    return isinstance(reason, ssl.SSLError) and reason.reason in _NOT_TLS


_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "UNSUPPORTED_PROTOCOL", "HTTP_REQUEST", "TLSV1_ALERT_PROTOCOL_VERSION"})


def _write(file: BinaryIO, chunk: bytes) -> None:
    left = memoryview(chunk)
    try:
        while left:  # the file has no buffer: what cannot be written fails here, and not again when it is closed
            left = left[file.write(left) :]
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise DataError(
                f"{file.name}: the disk is full; free some space and run the same command: it continues from here"
            ) from error
        raise


def _refuse_pages(url: str, response: http.client.HTTPResponse) -> None:
    """A web page instead of an archive is a log-in, a warning or a «moved» notice."""
    if response.headers.get_content_type() == "text/html":
        raise DataError(
            f"{url}: the server sent a web page instead of the file (a log-in or a confirmation, most likely); open it "
            "in a browser, download the file there, and pass it with --from"
        )


def _total(response: http.client.HTTPResponse, start: int) -> int | None:
    length = response.headers.get("Content-Length")
    return start + int(length) if length and re.fullmatch(r"[0-9]{1,18}", length) else None


def _retry_after(error: urllib.error.HTTPError) -> float:
    value = error.headers.get("Retry-After", "")
    return min(float(value), 60.0) if re.fullmatch(r"[0-9]{1,18}", value) else 0.0


def _require_fit(part: Path, url: str, archive: Archive, *, start: int, total: int | None) -> None:
    """Before the first byte: it must be the right file, and there must be room for it."""
    if total is None:
        return
    if archive.size is not None and total != archive.size:
        raise DataError(_wrong(url, f"has {total:,} bytes, not {archive.size:,}"))
    free = shutil.disk_usage(part.parent).free
    if total - start > free:
        raise DataError(
            f"{part.parent}: {(total - start) / 1e9:.1f} GB are still to come and {free / 1e9:.1f} GB are free; "
            "make room, or choose another place with --root"
        )


def _memory(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _remember(memory: Path, url: str, response: http.client.HTTPResponse) -> None:
    """Keep what identifies the file on the server, so that a later call does not glue two different files together."""
    etag = response.headers.get("ETag", "")
    validator = (
        etag if etag.startswith('"') else response.headers.get("Last-Modified", "")
    )  # W/ tags cannot be used here
    write_text(memory, json.dumps({"url": url, "validator": validator}))


def _recall(memory: Path, url: str) -> str:
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(memory.read_text(encoding="utf-8"))
        if isinstance(known, dict) and known.get("url") == url and isinstance(known.get("validator"), str):
            return known["validator"]
    return ""


def check(file: Path, archive: Archive, *, source: str = "", progress: Progress | None = None) -> None:
    """Compare size and checksums with what is known of the archive."""
    size = file.stat().st_size
    if archive.size is not None and size != archive.size:
        raise ChecksumError(_wrong(source or str(file), f"has {size:,} bytes, not {archive.size:,}"))
    digests = {c: hashlib.new(c.split(":")[0], usedforsecurity=False) for c in archive.checksums}
    with contextlib.nullcontext(progress) if progress else _bar() as bar, file.open("rb") as stream:
        task = bar.add_task(f"checking {marked(archive.name)}", total=size, note="")
        while digests and (chunk := stream.read(1 << 20)):
            for digest in digests.values():
                digest.update(chunk)
            bar.advance(task, len(chunk))
        bar.remove_task(task)
    for checksum, digest in digests.items():
        algorithm, expected = checksum.split(":")
        if digest.hexdigest() != expected:
            raise ChecksumError(_wrong(source or str(file), f"has {algorithm} {digest.hexdigest()}, not {expected}"))


def _wrong(source: str, how: str) -> str:
    return (
        f"{source}: not the official file: it {how}. It was damaged on the way or repacked; use another source with "
        "--url or --from, or pass --no-checksum to accept it and only count its images"
    )


@contextlib.contextmanager
def _locked(part: Path) -> Iterator[BinaryIO]:
    """The part file, open for us alone; two downloads into one file would ruin it."""
    lock = part.with_name(part.name + ".lock")
    try:
        with locked(lock), open(part, "r+b" if part.exists() else "w+b", buffering=0) as file:
            try:
                yield cast(BinaryIO, file)
            finally:
                lock.unlink(missing_ok=True)
    except BlockingIOError as error:
        raise DataError(f"{part}: another download of it is running; wait for it to finish") from error


def _bar() -> Progress:
    terminal = console(stderr=True)
    return Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[note]}"),
        console=terminal,
        transient=True,
        disable=not terminal.is_terminal,  # a log file wants no empty lines
    )
