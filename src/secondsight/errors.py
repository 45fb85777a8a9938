"""Every error that secondsight raises on purpose. Each names the value, the place and the cure.

SecondsightError
├── UnknownName     a name that is in no registry; the nearest valid ones are suggested
├── ShapeError      a tensor whose shape does not fit the layer it was given to
├── ConfigError     an option, recipe or saved configuration that makes no sense
├── WeightsError    a weight file with missing, unexpected or unsafe content
├── DataError       a dataset, image or label set that cannot be used as asked
├── RunError        a training run that cannot start, go on or be resumed
└── MissingExtra    an optional dependency that is not installed
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable


class SecondsightError(Exception):
    """Base of all; catch it to catch everything that secondsight raises on purpose."""


class UnknownName(SecondsightError, ValueError):
    """A name that is in no registry.

    >>> raise UnknownName("pooling", "jfc", ["jcf", "average"])
    Traceback (most recent call last):
    secondsight.errors.UnknownName: unknown pooling 'jfc'; did you mean 'jcf'? Valid: average, jcf
    """

    def __init__(self, kind: str, name: str, valid: Iterable[str]):
        names = sorted(valid)
        near = nearest(name, names)
        hint = f"; did you mean {near!r}?" if near else ";"
        super().__init__(f"unknown {kind} {name!r}{hint} Valid: {', '.join(names)}")
        self.name = name
        self.nearest = near


class ShapeError(SecondsightError, ValueError):
    """A tensor whose shape does not fit the layer it was given to."""


class ConfigError(SecondsightError, ValueError):
    """An option, recipe or saved configuration that makes no sense."""


class WeightsError(SecondsightError, ValueError):
    """A weight file with missing, unexpected or unsafe content."""


class DataError(SecondsightError, ValueError):
    """A dataset, image or label set that cannot be used as asked."""


class RunError(SecondsightError, RuntimeError):
    """A training run that cannot start, go on or be resumed."""


class MissingExtra(SecondsightError, ImportError):
    """An optional dependency that is not installed."""


def require_known(kind: str, name: str, valid: Collection[str]) -> str:
    """``name``, if it is one of ``valid``; otherwise an ``UnknownName``."""
    if name not in valid:
        raise UnknownName(kind, str(name), valid)
    return name


def first_line(error: BaseException) -> str:
    """What an error says, in one line; its type where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def nearest(name: str, valid: Iterable[str]) -> str | None:
    """The valid name that looks most like ``name``, or None when nothing is close."""
    close = difflib.get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return close[0] if close else None
