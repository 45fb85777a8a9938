"""``train``: from a recipe to a run directory."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from lightning_fabric import Fabric

from secondsight.errors import RunError, SecondsightError, first_line
from secondsight.train import checkpoint
from secondsight.train.assembly import assemble, make_fabric
from secondsight.train.display import Display
from secondsight.train.loop import Loop
from secondsight.train.recipe import Recipe
from secondsight.train.run_directory import RunDirectory
from secondsight.train.run_report import write_report


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    directory: Path
    step: int
    complete: bool  # False when it was interrupted
    asked: bool  # to stop, by a signal; one that comes in the last validation finds the run complete
    figures: dict[str, float]  # of the last validation
    best: float | None  # the validation metric of best/


def train(recipe: Recipe, out: str | Path, *, resume: bool = False, quiet: bool = False) -> Result:
    """Train as ``recipe`` says and keep everything under ``out``; ``out/best`` is the model, for ``secondsight.load``.

    Under torchrun every process calls this; only the first writes and speaks.
    """
    fabric = make_fabric(recipe)
    directory = RunDirectory(out)
    with contextlib.ExitStack() as held:
        _first_alone(fabric, lambda: held.enter_context(directory.taken()))
        result = _train(recipe, directory, fabric, resume=resume, quiet=quiet)
    if fabric.world_size > 1:
        # DDP must be gone before the group is: as the last to hold it, it would wait for a thread that waits for us.
        gc.collect()
        torch.distributed.destroy_process_group()
    return result


def _train(recipe: Recipe, directory: RunDirectory, fabric: Fabric, *, resume: bool, quiet: bool) -> Result:
    display = Display(enabled=fabric.global_rank == 0 and not quiet)
    loop = None
    try:
        _first_alone(fabric, lambda: directory.start(recipe, resume=resume))
        fresh = not checkpoint.listing(directory.checkpoints)
        if resume and fresh:
            display.say(f"{directory.path} has no checkpoint yet: starting from the beginning")
        loop = Loop(assemble(recipe, fabric, fit=fresh, say=display.say), directory, display)
        complete = loop.run()
        if loop.first:
            with directory.writing():
                write_report(loop, complete=complete)
    except RuntimeError as error:
        if isinstance(error, SecondsightError) or fabric.world_size == 1:
            raise
        step = loop.progress.step if loop is not None else 0
        raise RunError(
            f"process {fabric.global_rank} of {fabric.world_size} lost the others at step {step} "
            f"({first_line(error)}): one of them died or hung; its own message says why. Continue from the last "
            f"checkpoint with: secondsight train {directory.path} --resume"
        ) from error
    p = loop.progress
    return Result(directory.path, p.step, complete, loop.interrupt.asked, p.figures, p.best)


def _first_alone(fabric: Fabric, action: Callable[[], object]) -> None:
    """Let the first process act, and every process fail if it fails."""
    message = None
    if fabric.global_rank == 0:
        try:
            action()
        except SecondsightError as error:
            if fabric.world_size == 1:
                raise
            message = str(error)
    if fabric.world_size > 1 and (message := fabric.broadcast(message)) is not None:
        raise RunError(message)
