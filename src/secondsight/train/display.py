"""What a person watching a run sees on standard error: a progress line, the last validation figures, and messages."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from secondsight import terminal


class Display:
    """Progress on a terminal; elsewhere a line for every validation and message. Silent where not ``enabled``."""

    def __init__(self, *, enabled: bool = True):
        self.enabled = enabled
        self.console = terminal.console(stderr=True, quiet=not enabled)
        self.progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[now]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("[dim]{task.fields[last]}"),
            console=self.console,
            transient=True,
            disable=not enabled or not self.console.is_terminal,
        )
        self.task = None
        self._drawn = 0.0

    def start(self, *, done: int, total: int, per_epoch: int) -> None:
        self.per_epoch = per_epoch
        self.task = self.progress.add_task("epoch 1", total=total, completed=done, now="", last="")
        self.progress.start()

    def step(self, *, step: int, loss: float, rate: float, lr: float) -> None:
        """After a step; drawn a few times a second at most."""
        now = time.monotonic()
        if self.task is None or now - self._drawn < 0.2:
            return
        self._drawn = now
        words = f"loss {loss:.4f}  {rate:.0f} images/s  lr {lr:.2g}"
        self.progress.update(
            self.task, completed=step, description=f"epoch {(step - 1) // self.per_epoch + 1}", now=words
        )

    def validated(self, *, epoch: int, figures: Mapping[str, float], best: bool) -> None:
        words = "  ".join(f"{name} {100 * value:.1f}" for name, value in figures.items())
        self.say(f"epoch {epoch}: {words}{'  ★ best' if best else ''}")
        if self.task is not None:
            name, value = next(iter(figures.items()))
            self.progress.update(self.task, last=f"{name} {100 * value:.1f}")

    def say(self, words: str) -> None:
        self.console.print(terminal.marked(words), highlight=False, soft_wrap=True)

    def warn(self, words: str) -> None:
        self.console.print(f"[bold yellow]warning:[/] {terminal.marked(words)}", highlight=False, soft_wrap=True)

    def close(self) -> None:
        self.progress.stop()
