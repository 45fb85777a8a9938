"""What the command line does with an error: one sentence with a cause and a cure, and an exit code.

2   a mistake that the user can fix: in the command, the data, the machine
70  a bug of ours; the traceback is in a file, for a report
"""

from __future__ import annotations

import difflib
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
KINDS = {int: "a whole number", float: "a number"}
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
    shown = type(error).__name__ == "MissingParameter" or "extra argument" in message
    example = _example(error) if shown else None
    cure = f"as in: {example}" if example else f"see: {where} --help"
    if hasattr(error.__cause__, "errors"):
        message = _wrong_value(error)
    elif type(error).__name__ == "NoSuchOption":
        message, cure = _no_option(error, where)
    elif ". Did you mean" in message:
        message, cure = (
            message.rstrip("?").split(". Did you mean")[0],
            "did you mean" + message.split("Did you mean")[1],
        )
    _say(f"{message[:1].lower()}{message[1:]}; {cure}")
    return error.exit_code


def _wrong_value(error: Any) -> str:
    """An option's value that is no number, or too small or large a one; pydantic's words for it are not ours."""
    from secondsight.cli.help_page import limits

    found = error.__cause__.errors()[0]
    kind = {"int": "a whole number", "float": "a number"}.get(found["type"].partition("_")[0])
    if error.param is None or not (kind or limits(error.param)):
        return error.format_message().rstrip(".")
    name = max(error.param.opts, key=len)
    wanted = kind or KINDS.get(error.param.type_descriptor.annotation, "a number")
    return f"{name} {found['input']!r}: must be {', '.join(filter(None, [wanted, limits(error.param)]))}"


def _no_option(error: Any, where: str) -> tuple[str, str]:
    """What is alike here, or whose option it is."""
    name, verb = error.option_name, error.ctx.command
    mine = {option for param in verb.params for option in (*param.opts, *param.secondary_opts)}
    others = getattr(error.ctx.find_root().command, "commands", {})
    owners = [other for other, command in others.items() if any(name in param.opts for param in command.params)]
    cure = f"see: {where} --help"
    if near := difflib.get_close_matches(name, sorted(mine), n=1, cutoff=0.75):
        cure = f"did you mean {near[0]!r}?"
    elif owners:
        cure = f"it is an option of {', '.join(owners)}; {cure}"
    return f"{where.removeprefix('secondsight ')} has no option {name}", cure


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
