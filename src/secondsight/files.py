"""Files that are either the old one or the new one, never half of one: temporary file, fsync, rename."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from secondsight.errors import ConfigError


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it is synced and takes ``path``'s place, on failure it is
    removed.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        _sync(temporary)
        # mkstemp makes files that only the owner can read; give the result the mode a plain open() would.
        temporary.chmod(0o666 & ~_umask())
        os.replace(temporary, target)
        _sync(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_directory(path: str | Path) -> Iterator[Path]:
    """Yield an empty temporary directory; on success it takes ``path``'s place as a whole."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp"))
    try:
        yield temporary
        for file in temporary.rglob("*"):
            _sync(file)
        _sync(temporary)
        temporary.chmod(0o777 & ~_umask())
        if target.exists():
            # A directory cannot be renamed over a full one: move the old one aside, then away.
            aside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".old"))
            os.replace(target, aside / target.name)
            os.replace(temporary, target)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            os.replace(temporary, target)
        _sync(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write_text(path: str | Path, text: str) -> None:
    """Replace the file at ``path`` by ``text``, atomically."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_bytes(path: str | Path, content: bytes) -> None:
    """Replace the file at ``path`` by ``content``, atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def check_writable(directory: str | Path) -> None:
    """An error now instead of after minutes of work where ``directory`` could not be made or written to."""
    target = Path(directory)
    there = next(place for place in (target, *target.absolute().parents) if place.exists())
    try:
        handle, name = tempfile.mkstemp(dir=there, prefix=".writable.")
        os.close(handle)
        os.unlink(name)
    except OSError as error:
        raise ConfigError(f"{target}: cannot be written to: {error.strerror}; choose another place") from error
