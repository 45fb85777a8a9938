"""secondsight: compact second-order image representations.

An image becomes a set of local features, a pooling turns the set into one vector, and everything else either teaches
that vector or uses it. Reading order: ``backbones``, ``pooling``, ``model``, then ``data``, ``losses``, ``train``,
``evaluate``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from secondsight.version import __version__

if TYPE_CHECKING:
    from secondsight.model import Embedder, load

__all__ = ["Embedder", "__version__", "load"]


def __getattr__(name: str):
    # torch takes seconds to import; `secondsight --help` and `secondsight.__version__` should not wait for it.
    if name in ("Embedder", "load"):
        from secondsight import model

        return getattr(model, name)
    raise AttributeError(f"module 'secondsight' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
