"""Files that are either the old one or the new one, never half of one: temporary file, fsync, rename.

Also the lock by which processes that share a directory take turns.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock

from secondsight.errors import ConfigError

_SURROGATES = re.compile("[\ud800-\udfff]")


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
def replacing_directory(path: str | Path, *, one_sync: bool = False) -> Iterator[Path]:
    """Yield an empty temporary directory; on success it takes ``path``'s place as a whole.

    ``one_sync``: of the whole disk, instead of one for every file: 120,000 of them would take minutes.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp"))
    try:
        yield temporary
        mask = _umask()
        for file in temporary.rglob("*"):
            # Some writers (safetensors) make files that only the owner can read.
            file.chmod((0o777 if file.is_dir() else 0o666) & ~mask)
            if not one_sync:
                _sync(file)
        os.sync() if one_sync else _sync(temporary)
        temporary.chmod(0o777 & ~mask)
        if not target.exists():
            os.replace(temporary, target)
        elif target.is_symlink() or not target.is_dir() or not _swapped(temporary, target):
            # A directory cannot be renamed over a full one, or over a file: move the old one aside, then away.
            aside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".old"))
            os.replace(target, aside / target.name)
            os.replace(temporary, target)
            shutil.rmtree(aside, ignore_errors=True)
        _sync(target.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _swapped(one: Path, other: Path) -> bool:
    """Exchange two directories in one step, so that a process that is killed leaves one of them under each name. False,
    with nothing done, where the system (not Linux) or the file system cannot.
    """
    try:
        exchange = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return exchange(here, os.fsencode(one), here, os.fsencode(other), swap) == 0


def write_text(path: str | Path, text: str) -> None:
    """Replace the file at ``path`` by ``text``, atomically. Bytes of a file name that are no text become �."""
    write_bytes(path, _SURROGATES.sub("�", text).encode())


def write_bytes(path: str | Path, content: bytes) -> None:
    """Replace the file at ``path`` by ``content``, atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextlib.contextmanager
def locked(path: str | Path, *, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock file ``path``, whose directory is made; a process that ends in any way lets go of it.

    Args:
        path: The lock file. Whoever holds it may remove it, with its directory: those who wait then make a new one.
        waiting: Called once when another holds it, before waiting for that. None: then it is a ``BlockingIOError``.
    """
    target = Path(path)
    lock = filelock.FileLock(target, thread_local=False)
    blocking = False
    while not lock.is_locked:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=blocking)
        except FileNotFoundError:  # whoever held it removed the directory: once more
            continue
        except filelock.Timeout as error:
            if waiting is None:
                raise BlockingIOError(errno.EAGAIN, "held by another process", str(target)) from error
            waiting()
            blocking = True
    try:
        yield
    finally:
        lock.release()


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


def check_writable(path: str | Path, *, directory: bool = True, cure: str = "choose another place") -> Path:
    """``path``, where a folder of files (or one file) can be written: known now, and not after minutes of work.

    Nothing is made. A ``ConfigError`` says what is in the way.
    """
    target = Path(path)
    try:
        folder = next(place for place in (target.absolute(), *target.absolute().parents) if place.exists())
        if not directory and folder == target.absolute():
            if target.is_dir():
                raise IsADirectoryError(errno.EISDIR, "it is a folder, and a file is to be written")
            folder = folder.parent
        handle, name = tempfile.mkstemp(dir=folder, prefix=".writable.")
        os.close(handle)
        os.unlink(name)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"{target}: cannot be written to: {reason}; {cure}") from error
    return target
