"""What ``secondsight --help`` prints, and of a verb: usage, the example to copy, what it does, arguments and options.

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
from typer.core import TyperCommand, TyperGroup

from secondsight import terminal

NAMES = 26
"""Letters of the first column at the most; what is longer has its words on the next line."""

WIDEST = 120
"""Columns at the most: longer lines are hard to read."""

VALUES = {int: "N", float: "X", Path: "PATH", list[Path]: "PATH"}
"""A type → the word for a value of it; any other is TEXT."""


class Verb(TyperCommand):
    """A verb whose help is ``page``; of an option that is given twice it does not silently take the last."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(_printed(page(self, ctx)))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given = [] if ctx.resilient_parsing else self.make_parser(ctx).parse_args(list(args))[2]
        for param in given:
            if given.count(param) > 1 and param.param_type_name == "option" and not (param.multiple or _is_flag(param)):
                ctx.fail(f"{max(param.opts, key=len)} is given twice; give it once")
        return super().parse_args(ctx, args)


class VerbGroup(TyperGroup):
    """Verbs whose help is ``contents``."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        formatter.write(_printed(contents(self, ctx)))


def _printed(what: RenderableType) -> str:
    console = terminal.console(highlight=False)
    console.width = min(console.width, WIDEST)
    with console.capture() as captured:
        console.print(what, "")
    return captured.get()


def contents(group: TyperGroup, ctx: Any) -> RenderableType:
    """All verbs of a group, each with a sentence, under the purposes that they serve."""
    panels: dict[str, list[tuple[str, Text]]] = {}
    for name, command in group.commands.items():
        panel = getattr(command, "rich_help_panel", None)
        title = panel if isinstance(panel, str) else "Verbs"  # typer's default is an object
        panels.setdefault(title, []).append((name, Text.from_markup(command.get_short_help_str(300))))
    parts: list[RenderableType] = [Text(f"Usage: {ctx.command_path} VERB [OPTIONS]")]
    parts += [Group("", Text.from_markup(part)) for part in paragraphs(group.help or "")]
    parts += _tables(panels)
    parts += ["", Text(f"{ctx.command_path} VERB --help tells more, and begins with a line to copy.", "dim")]
    return Group(*parts)


def page(command: TyperCommand, ctx: Any) -> RenderableType:
    params = [param for param in command.get_params(ctx) if not getattr(param, "hidden", False)]
    arguments = [param for param in params if param.param_type_name == "argument"]
    asked = [names(param) if param.required else f"[{names(param)}]" for param in arguments]
    parts: list[RenderableType] = [Text(" ".join(["Usage:", ctx.command_path, *asked, "[OPTIONS]"]))]
    parts += [Group("", Text.from_markup(part)) for part in paragraphs(command.help or "")]
    tables = {
        title: [(names(param), words(param)) for param in params if param.param_type_name == kind]
        for title, kind in (("Arguments", "argument"), ("Options", "option"))
    }
    return Group(*parts, *_tables(tables))


def paragraphs(text: str) -> list[str]:
    """Lines of the source run on; one that begins with a command in bold stays a line of its own.

    >>> paragraphs("One\\nsentence.\\n\\n[bold]a[/] does this,\\nand more\\n[bold]b[/] that")
    ['One sentence.', '[bold]a[/] does this, and more\\n[bold]b[/] that']
    """
    return [re.sub(r"\n(?!\[bold( cyan)?\])", " ", part) for part in text.split("\n\n")]


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
    default = "" if _is_flag(param) or param.default in (None, "", (), []) else f"default: {param.default}"
    notes = [note for note in (limits(param), "required" if param.required else default) if note]
    text = Text.from_markup(param.help or "")
    return text.append(f" [{'; '.join(notes)}]", "dim") if notes else text


def limits(param: Any) -> str:
    if getattr(param, "min", None) is None:
        return ""
    return f"at least {param.min}" if param.max is None else f"{param.min} to {param.max}"


def _is_flag(param: Any) -> bool:
    return getattr(param, "is_flag", False)


def _tables(tables: dict[str, list[tuple[str, Text]]]) -> Iterable[RenderableType]:
    """Under each title its rows; the words of all begin in one column."""
    first = max(len(name) for rows in tables.values() for name, _ in rows if len(name) <= NAMES)
    for title, rows in tables.items():
        if rows:
            yield from ("", Text(title, "bold"))
        for name, text in rows:
            if len(name) > first:
                yield Padding(Text(name, "cyan"), (0, 0, 0, 2))
                yield Padding(text, (0, 0, 0, first + 4))
            else:
                table = Table.grid(padding=(0, 2, 0, 0))
                table.add_column(width=first)
                table.add_column(ratio=1)
                table.add_row(Text(name, "cyan"), text)
                yield Padding(table, (0, 0, 0, 2))
