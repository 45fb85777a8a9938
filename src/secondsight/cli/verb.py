"""How a verb is added to the command line: its help starts with an example to copy."""

from __future__ import annotations

import inspect
from collections.abc import Callable
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
