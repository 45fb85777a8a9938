"""Progress bars for whatever may take more than two seconds: on standard error, on a terminal, and gone when done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from secondsight.terminal import console

T = TypeVar("T")


def duration(seconds: float) -> str:
    """
    >>> duration(5), duration(150), duration(9000)
    ('5 s', '2.5 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def bar(*, unit: str = "") -> Progress:
    """A rich ``Progress`` with our columns; use it as a context manager and add tasks to it."""
    terminal = console(stderr=True)
    return Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(f"{unit} [dim]{{task.fields[note]}}" if unit else "[dim]{task.fields[note]}"),
        TimeRemainingColumn(),
        console=terminal,
        transient=True,
        disable=not terminal.is_terminal,  # a log file is no place for a bar
    )


def track(items: Iterable[T], what: str, *, total: int | None = None) -> Iterator[T]:
    """Yield ``items`` with a bar that says ``what`` is being done.

    >>> list(track([1, 2], "counting"))
    [1, 2]
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    with bar() as progress:
        task = progress.add_task(what, total=total, note="")
        for item in items:
            yield item
            progress.advance(task)
