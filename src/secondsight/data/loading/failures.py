"""Files that could not be used: set aside, counted, and listed once."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from secondsight.data.loading.decode import DecodeError, ReadError
from secondsight.files import write_text

MANY = 0.02
"""The share of a set beyond which images that are set aside are no longer a detail."""


@dataclass(frozen=True)
class Failure:
    """One file: its number in the set, where it is, and what is wrong with it."""

    index: int
    path: str
    cause: str
    lasting: bool = True  # the content is at fault; otherwise the disk, the network or a permission: try again later

    def error(self) -> DecodeError:
        """What was raised when the file was set aside."""
        return (DecodeError if self.lasting else ReadError)(self.path, self.cause)


class Failures:
    """The files that were set aside, by number. Several threads may add to it; a file is listed once."""

    def __init__(self) -> None:
        self._found: dict[int, Failure] = {}
        self._lock = threading.Lock()

    def add(self, index: int, path: str, cause: str, *, lasting: bool = True) -> None:
        with self._lock:
            self._found.setdefault(index, Failure(index, path, cause, lasting))

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[Failure]:
        with self._lock:
            found = dict(self._found)
        return iter([found[index] for index in sorted(found)])

    def text(self, *, most: int = 20) -> str:
        """For people: how many, and the first of them with their cause; empty when there are none."""
        if not self:
            return ""
        lines = [f"{len(self):,} {'file was' if len(self) == 1 else 'files were'} set aside:"]
        lines += [f"  {failure.path}: {failure.cause}" for failure in list(self)[:most]]
        return "\n".join(lines + [f"  … and {len(self) - most:,} more"] * (len(self) > most))

    def warning(self, total: int) -> str:
        """Said loudly at the end when more than ``MANY`` of ``total`` images are missing from a result; else empty."""
        if len(self) <= MANY * total:
            return ""
        passing = sum(not failure.lasting for failure in self)
        share = f"WARNING: {len(self):,} of {total:,} images ({100 * len(self) / total:.1f} %) could not be used"
        cure = "look at them with: secondsight data verify DATA --decode"
        if passing:
            cure = f"{passing:,} of them could not be read (disk, network or permission) and may be next time; {cure}"
        return f"{share}: every figure is of the others only; {cure}"

    def write(self, path: str | Path) -> None:
        """For programs: one JSON object a line, with index, path and cause."""
        write_text(path, "".join(json.dumps(asdict(failure), ensure_ascii=False) + "\n" for failure in self))
