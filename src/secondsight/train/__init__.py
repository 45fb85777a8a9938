"""Training: ``train(recipe, out)`` teaches an embedder, resumes exactly, keeps the best model on held-out classes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from secondsight.train.reading import read
    from secondsight.train.recipe import Recipe
    from secondsight.train.running import Result, train

__all__ = ["Recipe", "Result", "read", "train"]

# Loaded when first asked for: `secondsight recipes` should not wait for torch.
_HOMES = {"Recipe": "recipe", "Result": "running", "read": "reading", "train": "running"}


def __getattr__(name: str):
    if name in _HOMES:
        return getattr(importlib.import_module(f"secondsight.train.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'secondsight.train' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
