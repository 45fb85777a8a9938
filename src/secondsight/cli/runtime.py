"""``--runtime`` of the verbs that embed images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from secondsight import terminal
from secondsight.errors import require_known
from secondsight.inference.description import RUNTIMES, agree

if TYPE_CHECKING:
    from secondsight.index import Index
    from secondsight.inference import Runtime
    from secondsight.model import Embedder

OPTION_HELP = "torch, compile, onnx, onnx-int8, or auto: the faster of torch and onnx here, measured once."


def check_runtime(name: str) -> None:
    """A known name."""
    require_known("runtime", name, RUNTIMES)


def use(index: Index, name: str, exported: Path | None = None, *, images: int | None = 1) -> None:
    """Let an index embed by an exported file, where one is given, else by a runtime, chosen when there is a picture to
    embed. Files that a runtime needs are kept in the user's cache: an index knows all of its own.
    """
    check_runtime(name)
    if exported is not None:
        from secondsight.inference.exported import load

        index.use(load(exported))
        return

    if name != "auto":
        index.check_runtime(name)

    def choose() -> None:
        own = made_by(index)
        if name == "auto" and index.parts is not None:
            return  # parts need the network's local features
        wanted = own if name == "auto" and len(index) and not agree(own, "torch") else name  # no other will do
        run = chosen_runtime(index.model(), wanted, device=index.device, images=images)
        if run is not None and run.name != "torch":
            index.use(run)

    from secondsight.index.runtime import made_by

    index.choose = choose


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
