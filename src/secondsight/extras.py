"""Optional dependencies: imported where they are used, with an error that names the extra."""

from __future__ import annotations

import importlib
from types import ModuleType

from secondsight.errors import MissingExtra


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import ``module``, or say which extra of secondsight brings it.

    >>> require("math", extra="plots", purpose="drawing").__name__
    'math'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] != module.split(".")[0]:
            raise  # the package is there, and something it needs is not: its own message is the better one
        raise MissingExtra(
            f"{purpose} needs the package {module.split('.')[0]!r}: pip install 'secondsight[{extra}]'"
        ) from error
