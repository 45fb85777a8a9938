"""The page of every verb, from the command line itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main
from typer.core import TyperArgument, TyperGroup

from secondsight.cli.main import VERBS, app


def page() -> str:
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    lines = ["# The command line", "", "Made from the code. `secondsight VERB --help` says the same.", ""]
    panels = {name: panel for panel, verbs in VERBS.items() for name in verbs}
    panel = ""
    for words, command in _verbs(root):
        if (now := panels.get(words[0], list(VERBS)[-1])) != panel:
            lines += [f"## {now}", ""]
            panel = now
        lines += [*_verb(words, command), ""]
    return "\n".join(lines)


def _verbs(group: TyperGroup, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from _verbs(command, (*words, name))
        else:
            yield (*words, name), command


def _verb(words: tuple[str, ...], command: Any) -> list[str]:
    example, _, text = (command.help or "").partition("\n\n")
    lines = [f"### {' '.join(words)}", "", "```", re.sub(r"\[[^\]]*\]", "", example), "```", "", markdown(text), ""]
    rows = [_row(param) for param in command.params if param.name != "help"]
    return [*lines, "| | default | |", "| --- | --- | --- |", *rows] if rows else lines


def _row(param: Any) -> str:
    if isinstance(param, TyperArgument):
        name = f"`{(param.metavar or param.name).upper()}`"
    else:
        name = " ".join(f"`{word}`" for word in (*param.opts, *param.secondary_opts))
    default = param.default
    shown = "required" if param.required else "" if default in (None, False, [], ()) else f"`{default}`"
    words = markdown(param.help or "").replace("|", "\\|")
    return f"| {name} | {shown} | {words} |"


def markdown(text: str) -> str:
    """Rich's markup as Markdown.

    >>> markdown("[bold]secondsight data[/] lists [bold]all[/]")
    '`secondsight data` lists **all**'
    """

    def bold(found: re.Match[str]) -> str:
        word = found[1]
        return f"`{word}`" if re.match(r"secondsight|--|torchrun|[\w./]*/", word) else f"**{word}**"

    text = re.sub(r"\[bold\](.*?)\[/\]", bold, text.replace("\\[", "["), flags=re.S)
    return re.sub(r"(?<=`)\n(?=`)", "  \n", text).replace("<", "&lt;")
