"""Archives, unpacked without trusting them: plain files inside the target folder, or nothing at all."""

from __future__ import annotations

import contextlib
import posixpath
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from secondsight.data.readers.paths import hidden
from secondsight.errors import DataError, SecondsightError
from secondsight.progress import bar
from secondsight.terminal import plain

Member = tuple[str, int, "IO[bytes]"]


MOST_FILES = 2_000_000
MOST_GROWTH, SLACK = 20, 1 << 26
"""Pictures hardly compress: an archive that becomes twenty times as large (and 64 MB) holds something else."""


def unpack(archive: Path, into: Path) -> int:
    """Write the files of a zip or tar archive below ``into``; returns how many. Anything else is copied as it is.

    No link, device or path that leads outside is ever made: links inside the archive become the file they point to.
    What would fill the disk is refused when it has grown beyond ``MOST_GROWTH`` times the archive.
    """
    with _readable(archive):
        members = _zip_members if zipfile.is_zipfile(archive) else _tar_members if tarfile.is_tarfile(archive) else None
    if members is None:
        _require_not_archive(archive)
        shutil.copyfile(archive, into / archive.name)
        return 1
    count, left = 0, SLACK + MOST_GROWTH * archive.stat().st_size
    with bar(unit="files") as progress, _readable(archive):
        task = progress.add_task(f"unpacking {plain(archive.name)}", total=None, note="")
        for name, size, stream in members(archive):
            path = into / _inside(archive, name)
            if any(hidden(part) for part in Path(name).parts):
                continue
            _require_space(into, size, archive)
            count, left = count + 1, left - size
            if left < 0 or count > MOST_FILES:
                raise DataError(
                    f"{archive}: refused: unpacked it is more than {MOST_GROWTH} times as large, or more than "
                    f"{MOST_FILES:,} files; unpack it by hand if you trust it, and open the folder"
                )
            _write(archive, name, path, stream)
            progress.advance(task)
    return count


def _write(archive: Path, name: str, path: Path, stream: IO[bytes]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as file:
            shutil.copyfileobj(stream, file, 1 << 20)
    except OSError as error:
        if error.filename is None:  # not the file that is written: the archive's own reader complains
            raise
        if isinstance(error, FileExistsError) and error.filename == str(path):
            raise DataError(f"{archive}: refused: it holds {name!r} twice") from error
        raise DataError(
            f"{archive}: {name[:200]!r} cannot be written ({error.strerror}); choose another --root"
        ) from error


def _zip_members(archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as content:
        for info in content.infolist():
            if info.filename and info.is_dir():
                continue
            if stat.S_ISLNK(info.external_attr >> 16):
                raise DataError(f"{archive}: refused: {info.filename!r} is a link; unpack it by hand if you trust it")
            with content.open(info) as stream:
                yield info.filename, info.file_size, stream


def _tar_members(archive: Path) -> Iterator[Member]:
    with tarfile.open(archive) as content:
        for info in content:
            if info.isdir():
                continue
            _require_target_inside(archive, info)
            stream = content.extractfile(info)  # follows a link to the member that it names
            if stream is None:
                raise DataError(f"{archive}: refused: {info.name!r} is neither a file nor a folder")
            with stream:
                yield info.name, info.size, stream
        while content.fileobj is not None and content.fileobj.read(1 << 20):
            pass  # gzip compares its checksum at the very end, which is after the end of the archive


def _require_target_inside(archive: Path, info: tarfile.TarInfo) -> None:
    if info.islnk():
        _inside(archive, info.linkname)
    elif info.issym():
        if info.linkname.startswith("/"):
            _inside(archive, info.linkname)
        _inside(archive, posixpath.normpath(posixpath.join(posixpath.dirname(info.name), info.linkname)))


def _inside(archive: Path, name: str) -> str:
    """``name`` if it stays below the folder that it is unpacked into."""
    unix = name.replace("\\", "/")
    if unix.startswith("/") or ".." in unix.split("/") or (len(unix) > 1 and unix[1] == ":") or "\0" in unix:
        raise DataError(f"{archive}: refused: {name!r} leads outside of the folder it is unpacked into")
    if not PurePosixPath(unix).parts:
        raise DataError(f"{archive}: refused: a file in it has no name")
    return unix


def _require_space(into: Path, size: int, archive: Path) -> None:
    if size > (1 << 26) and size > shutil.disk_usage(into).free:
        raise DataError(
            f"{into}: no room to unpack {archive.name}; free some space or choose another place with --root"
        )


def _require_not_archive(file: Path) -> None:
    """A truncated or damaged archive is not recognised as one; its name gives it away."""
    if file.name.lower().endswith((".tgz", ".tar", ".gz", ".zip", ".bz2", ".xz", ".rar", ".7z")):
        raise DataError(f"{file}: not a zip or tar archive that can be read; it is damaged or of another kind")


@contextlib.contextmanager
def _readable(archive: Path) -> Iterator[None]:
    """Say which archive it was, whatever its reader complains of."""
    try:
        yield
    except (SecondsightError, MemoryError):
        raise
    except OSError as error:
        if error.filename is not None:
            raise
        # gzip reports bad data as an OSError without a name
        raise DataError(f"{archive}: cannot be unpacked ({error}); it is damaged or the disk is full") from error
    except Exception as error:  # a damaged archive can make its reader raise anything
        cause = str(error) or type(error).__name__
        raise DataError(f"{archive}: cannot be unpacked ({cause}); it is damaged or locked, get it again") from error
