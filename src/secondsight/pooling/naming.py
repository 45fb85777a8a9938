"""Names as papers write them: a family, then whole numbers, joined by dashes (``jcf-32-8``, ``cbp-ts-8192``)."""

from __future__ import annotations

from collections.abc import Sequence

from secondsight.errors import ConfigError


def numbers(name: str, family: str, meaning: Sequence[str]) -> list[int]:
    """The numbers behind ``family`` in ``name``; ``meaning`` says what each would be, and how many there may be.

    >>> numbers("jcf-32-8", "jcf", ["codewords", "projectors"])
    [32, 8]
    >>> numbers("jcf", "jcf", ["codewords", "projectors"])
    []
    """
    parts = name.removeprefix(family).split("-")[1:]
    pattern = family + "".join(f"[-{word.upper()}]" for word in meaning)
    if len(parts) > len(meaning) or not all(part.isdecimal() for part in parts):
        raise ConfigError(f"{name!r} is not a name of the form {pattern}, with whole numbers")
    for part, word in zip(parts, meaning, strict=False):
        if int(part) < 1:
            raise ConfigError(f"{name!r}: {word} must be at least 1, got {part}")
    return [int(part) for part in parts]
