"""What ``secondsight VERB --help`` prints: usage, the example to copy, what the verb does, its arguments and options.

Two columns, names and words: typer's own page gives a third of the width to types, and leaves the words 20 letters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand

from secondsight import terminal

NAMES = 26
"""Letters of the first column; what is longer has its words on the next line."""

WIDEST = 120
"""Columns at the most: longer lines are hard to read."""

VALUES = {int: "N", float: "X", Path: "PATH", list[Path]: "PATH"}
"""A type → the word for a value of it; any other is TEXT."""


class Verb(TyperCommand):
    """A verb whose help is ``page``."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        console = terminal.console(highlight=False)
        console.width = min(console.width, WIDEST)
        with console.capture() as captured:
            console.print(page(self, ctx), "")
        formatter.write(captured.get())


def page(command: TyperCommand, ctx: Any) -> RenderableType:
    params = [param for param in command.get_params(ctx) if not getattr(param, "hidden", False)]
    arguments = [param for param in params if param.param_type_name == "argument"]
    asked = [names(param) if param.required else f"[{names(param)}]" for param in arguments]
    parts: list[RenderableType] = [Text(" ".join(["Usage:", ctx.command_path, *asked, "[OPTIONS]"]))]
    parts += [Group("", Text.from_markup(part)) for part in paragraphs(command.help or "")]
    for title, kind in (("Arguments", "argument"), ("Options", "option")):
        rows = [(names(param), words(param)) for param in params if param.param_type_name == kind]
        if rows:
            parts += ["", Text(title, "bold"), *_rows(rows)]
    return Group(*parts)


def paragraphs(text: str) -> list[str]:
    """Lines of the source run on; one that begins with a command in bold stays a line of its own.

    >>> paragraphs("One\\nsentence.\\n\\n[bold]a[/] does this,\\nand more\\n[bold]b[/] that")
    ['One sentence.', '[bold]a[/] does this, and more\\n[bold]b[/] that']
    """
    return [re.sub(r"\n(?!\[bold\])", " ", part) for part in text.split("\n\n")]


def names(param: Any) -> str:
    """``-o, --out PATH``; of an argument its name."""
    if param.param_type_name == "argument":
        return (param.metavar or param.name).upper() + ("…" if param.nargs != 1 else "")
    if param.secondary_opts:
        return " / ".join([*param.opts, *param.secondary_opts])
    flags = ", ".join(sorted(param.opts, key=len))
    return (
        flags if _is_flag(param) else f"{flags} {param.metavar or VALUES.get(param.type_descriptor.annotation, 'TEXT')}"
    )


def words(param: Any) -> Text:
    """The help text, then what is allowed and what happens without."""
    limits = ""
    if param.min is not None:
        limits = f"at least {param.min}" if param.max is None else f"{param.min} to {param.max}"
    default = "" if _is_flag(param) or param.default in (None, "", (), []) else f"default: {param.default}"
    notes = [note for note in (limits, "required" if param.required else default) if note]
    text = Text.from_markup(param.help or "")
    return text.append(f" [{'; '.join(notes)}]", "dim") if notes else text


def _is_flag(param: Any) -> bool:
    return getattr(param, "is_flag", False)


def _rows(rows: Iterable[tuple[str, Text]]) -> Iterable[RenderableType]:
    for name, text in rows:
        if len(name) > NAMES:
            yield Padding(Text(name, "cyan"), (0, 0, 0, 2))
            yield Padding(text, (0, 0, 0, NAMES + 4))
        else:
            table = Table.grid(padding=(0, 2, 0, 0))
            table.add_column(width=NAMES)
            table.add_column(ratio=1)
            table.add_row(Text(name, "cyan"), text)
            yield Padding(table, (0, 0, 0, 2))
