"""What is printed: text from outside (names of files and classes, words of servers) never speaks to the terminal.

Three ways in, and one rule for each:

    print through ``console()``        control characters become �, whatever the text and wherever it comes from
    put into rich's markup ``marked``  brackets are no markup
    print as JSON ``print_json``       escaped, so that a program reads back what was there
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Iterable
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.theme import Theme

# C0 and C1 (with ESC and CSI) but not the newline, surrogates (bytes of a file name that are no text), separators that
# act as newlines, and the marks that turn the direction of writing.
_ACTING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_UNPRINTABLE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


_COLOURS = {"cyan": "turquoise4", "yellow": "dark_orange3", "green": "green4"}
_LEGIBLE = Theme(
    {bold + name: bold + colour for name, colour in _COLOURS.items() for bold in ("", "bold ")}
    | dict.fromkeys(("progress.remaining", "progress.elapsed", "progress.download"), "turquoise4")
)
"""A terminal's own cyan, yellow and green are too pale on white; these have a contrast near 4 on white and on black."""


def plain(text: str) -> str:
    """``text`` with every character that would act on a terminal as �; newlines stay.

    >>> plain("a\\x1b[2Jb")
    'a�[2Jb'
    """
    return _ACTING.sub("�", text)


def marked(text: object) -> str:
    """Text from outside, to be put into rich's markup.

    >>> marked("[/red]")
    '\\\\[/red]'
    """
    return escape(plain(str(text)))


def named(path: object) -> str:
    """The name of a file, to be put into rich's markup: on one line, whatever it is.

    >>> named("a\\nb.jpg")
    'a�b.jpg'
    """
    return marked(str(path).replace("\n", "�"))


def from_here(path: str) -> str:
    """A path from the current folder, where that is shorter.

    >>> from_here(os.path.join(os.getcwd(), "photos", "a.jpg"))
    'photos/a.jpg'
    """
    try:
        return min(path, os.path.relpath(path), key=len) if path else path
    except ValueError:  # another drive on Windows
        return path


class _Console(Console):
    """Replaces what would act on the terminal in everything that it renders; rich's own codes come after that."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or not _ACTING.search(segment.text):
                yield segment
            else:
                yield Segment(plain(segment.text), segment.style)


def console(*, stderr: bool = False, **options: Any) -> Console:
    """The console that every verb prints through."""
    return _Console(stderr=stderr, theme=_LEGIBLE, **options)


def table_console() -> Console:
    """For tables of names and paths: in a file or a pipe, which have no width of their own, they get room."""
    found = console(highlight=False)
    return found if found.is_terminal else console(highlight=False, width=200)


def columns(*left: str, right: Iterable[str] = ()) -> Table:
    """An empty table: words first, then the headings that numbers stand under."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for heading in left:
        table.add_column(heading)
    for heading in right:
        table.add_column(heading, justify="right")
    return table


def warn(message: str) -> None:
    """A line on standard error that is not to be overlooked."""
    console(stderr=True, highlight=False).print(f"[bold yellow]{marked(message)}[/]", soft_wrap=True)


def json_text(content: Any, *, indent: int | None = 2) -> str:
    """JSON in which letters are themselves and everything that is not text is escaped.

    >>> json_text(["é", "\\udce9", "\\x1b"], indent=None)
    '["é", "\\\\udce9", "\\\\u001b"]'
    """
    text = json.dumps(content, indent=indent, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_json(content: Any) -> None:
    sys.stdout.write(json_text(content) + "\n")


def tolerate_encodings() -> None:
    """A terminal that cannot show a letter shows a substitute; it is no reason to stop."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
