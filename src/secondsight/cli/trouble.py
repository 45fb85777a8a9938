"""What the command line does with an error: one sentence with a cause and a cure, and an exit code.

2   a mistake that the user can fix: in the command, the data, the machine
70  a bug of ours; the traceback is in a file, for a report
"""

from __future__ import annotations

import errno
import os
import platform
import re
import sys
import tempfile
import traceback
from typing import Any

from secondsight.errors import SecondsightError, first_line
from secondsight.terminal import console, marked, plain
from secondsight.version import __version__

MISTAKE, FAULT = 2, 70
ISSUES = "https://github.com/secondsight/secondsight/issues"

CURES = {
    errno.ENOSPC: "free some space, or choose another place",
    errno.EDQUOT: "free some space, or choose another place",
    errno.EACCES: "check who may read and write it, or choose another place",
    errno.EPERM: "check who may read and write it, or choose another place",
    errno.EROFS: "choose another place",
    errno.ENOENT: "check the name",
    errno.EEXIST: "choose another name",
    errno.ENOTDIR: "a file stands where a folder is needed; choose another place",
    errno.EISDIR: "a folder stands where a file is needed; choose another name",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "allow more open files: ulimit -n 4096",
    errno.EIO: "the disk is failing: save what is on it",
}
WITHOUT_TORCH = "search, update and serve do without it, with an exported model: --model FILE.onnx"
MEMORY = "there is not enough memory; use a smaller --size or --batch-size, or fewer workers"


def is_usage(error: BaseException) -> bool:
    """Whether click does not understand the command; typer brings a click of its own, whose classes have no name."""
    return hasattr(error, "format_message")


def report(error: BaseException) -> int:
    """Print what went wrong; the exit code."""
    if is_usage(error):
        return _usage(error)
    if isinstance(error, SecondsightError):
        return _say(str(error))
    if isinstance(error, OSError) and (error.errno is not None or error.filename is not None):
        return _say(_sentence(error))
    if isinstance(error, ModuleNotFoundError) and error.name == "torch":
        return _say("this needs torch, which is not installed here: pip install torch; " + WITHOUT_TORCH)
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error) or "out of memory" in str(error):
        return _say(MEMORY)
    _say(f"this is a fault of secondsight: {_with_type(error)}")
    console(stderr=True, highlight=False).print(
        f"Please report it, with {marked(_written(error))}, at {ISSUES}", soft_wrap=True
    )
    return FAULT


def _say(message: str) -> int:
    # Escaped: an error that names an extra, secondsight[lite], would lose its brackets to rich's markup.
    console(stderr=True, highlight=False).print(f"[bold red]error:[/] {marked(message)}", soft_wrap=True)
    return MISTAKE


def _usage(error: Any) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(error.format_message())
        return error.exit_code
    where = error.ctx.command_path if getattr(error, "ctx", None) is not None else "secondsight"
    message = " ".join(error.format_message().split()).rstrip(".")
    value = error.__cause__.errors()[0]["input"] if hasattr(error.__cause__, "errors") else None  # pydantic's, unsaid
    given = "" if value is None else f" (given: {value!r})"
    shown = type(error).__name__ == "MissingParameter" or "extra argument" in message
    example = _example(error) if shown else None
    cure = f"as in: {example}" if example else f"see: {where} --help"
    _say(f"{message[:1].lower()}{message[1:]}{given}; {cure}")
    return error.exit_code


def _example(error: Any) -> str | None:
    """The line to copy that a verb's help begins with."""
    found = re.match(r"\[bold cyan\](.*)\[/\]", getattr(error.ctx.command, "help", None) or "")
    return found and found[1]


def _sentence(error: OSError) -> str:
    names = [os.fsdecode(n) for n in (error.filename, error.filename2) if isinstance(n, (str, bytes, os.PathLike))]
    where = " → ".join(names) or "writing the output" * (error.errno == errno.ENOSPC) or "the system says"
    cure = CURES.get(error.errno or 0)
    return f"{where}: {error.strerror or error}" + (f"; {cure}" if cure else "")


def _with_type(error: BaseException) -> str:
    name, text = type(error).__name__, first_line(error)
    return text if text == name else f"{name}: {text}"


def _written(error: BaseException) -> str:
    """Where the traceback is now."""
    lines = [
        f"secondsight {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"command: {sys.argv!r}",
        "".join(traceback.format_exception(error)),
    ]
    try:
        handle, name = tempfile.mkstemp(prefix="secondsight-error-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write("\n".join(lines))
        return name
    except OSError:
        sys.stderr.write(plain("\n".join(lines)) + "\n")
        return "the lines above"
