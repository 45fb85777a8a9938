"""``--runtime`` of the verbs that embed images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from secondsight import terminal
from secondsight.cli import options
from secondsight.errors import ConfigError

if TYPE_CHECKING:
    from secondsight.index import Index
    from secondsight.inference import Runtime
    from secondsight.model import Embedder

OPTION_HELP = "torch, compile, onnx, onnx-int8, or auto: the faster of torch and onnx here, measured once."


def check_runtime(name: str, *, index: bool = False) -> None:
    """A known name; an index only takes runtimes whose vectors agree with those that it has or will get."""
    from secondsight.inference.runtimes import RUNTIMES

    options.known("runtime", [name], RUNTIMES)
    if index and name == "onnx-int8":
        raise ConfigError(
            "--runtime onnx-int8 makes other vectors than the model's own, and an index does not mix them: "
            "use torch, compile, onnx or auto; `secondsight embed` writes 8-bit vectors to a directory of their own"
        )


def use_runtime(index: Index, name: str, *, images: int | None = None) -> None:
    """Let an index embed by a runtime. What it needs is kept in the user's cache: an index knows all of its files."""
    check_runtime(name, index=True)
    if name != "torch":
        index.run = chosen_runtime(index.model(), name, device=index.device, images=images)


def chosen_runtime(
    model: Embedder,
    name: str,
    *,
    device: str = "cpu",
    beside: str | Path | None = None,
    images: int | None = None,
    say: bool = True,
) -> Runtime | None:
    """The runtime that a verb was asked for; None is the model itself. Says what ``auto`` chose."""
    if name == "torch":
        return None
    from secondsight import inference
    from secondsight.model.directory import model_folder

    folder = Path(beside) if beside is not None else None
    folder = model_folder(folder) if folder is not None and folder.is_dir() else None
    run = inference.runtime(model, name, device=device, beside=folder, images=images)
    if say and run.name != "torch":
        terminal.console(stderr=True, highlight=False).print(Text(f"runtime: {run.said()}"), soft_wrap=True)
    return run
