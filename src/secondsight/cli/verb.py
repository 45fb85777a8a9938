"""How a verb is added to the command line: its help starts with an example to copy."""

from __future__ import annotations

import inspect
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import typer

from secondsight.cli.help_page import Verb

Function = TypeVar("Function", bound=Callable[..., None])


def verb(
    app: typer.Typer, name: str, example: str, *, panel: str | None = None, cls: type[Verb] = Verb
) -> Callable[[Function], Function]:
    """Add a function to ``app``. Its docstring follows the example; the first paragraph stands in the list of verbs."""

    def add(function: Function) -> Function:
        words = inspect.getdoc(function) or ""
        app.command(
            name,
            help=f"[bold cyan]{example}[/]\n\n{words}",
            short_help=words.partition("\n\n")[0].replace("\n", " "),
            rich_help_panel=panel,
            cls=cls,
        )(function)
        return function

    return add


def command(*words: object) -> str:
    """A command line to copy, that works in the shell that this one was typed in: without an activated environment
    ``secondsight`` alone would not be found.
    """
    if shutil.which("secondsight") is not None:
        program = ["secondsight"]
    elif Path(sys.argv[0]).name == "secondsight":
        program = [sys.argv[0]]
    else:
        program = [os.path.relpath(sys.executable), "-m", "secondsight"]
    return shlex.join([*program, *map(str, words)])
