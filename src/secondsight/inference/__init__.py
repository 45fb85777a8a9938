"""Running a finished model: an exported file without torch, or the fastest runtime of a machine.

    model = inference.load("model.onnx")                 # numpy, Pillow and onnxruntime; nothing else
    vectors = model.embed(["a.jpg", "b.png"])            # (2, D), unit length

    run = inference.runtime(model, "auto")               # of a model in memory: torch, compile, onnx, onnx-int8
    vectors = run(images)                                # uint8 (B, 3, S, S) to (B, D)

``load`` and all it needs import without torch, so that a server can do without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from secondsight.inference.description import agree
    from secondsight.inference.exported import Exported, load
    from secondsight.inference.runtimes import Runtime, runtime

__all__ = ["Exported", "Runtime", "agree", "load", "runtime"]

_PLACES = {
    "Exported": "secondsight.inference.exported",
    "load": "secondsight.inference.exported",
    "Runtime": "secondsight.inference.runtimes",
    "agree": "secondsight.inference.description",
    "runtime": "secondsight.inference.runtimes",
}


def __getattr__(name: str):
    # `runtime` needs torch, `load` must not: each is imported when it is first asked for.
    if name in _PLACES:
        import importlib

        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'secondsight.inference' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
