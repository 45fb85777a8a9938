"""Names as papers write them: a family, then whole numbers, joined by dashes (``jcf-32-8``, ``cbp-ts-8192``)."""

from __future__ import annotations

from collections.abc import Container, Sequence

from secondsight.errors import ConfigError


def options_in(name: str, family: str, options: Sequence[str]) -> dict[str, int]:
    """The numbers behind ``family`` in ``name``, as the options they stand for; later ones may be left out.

    >>> options_in("jcf-32-8", "jcf", ["codewords", "projectors"])
    {'codewords': 32, 'projectors': 8}
    >>> options_in("jcf", "jcf", ["codewords", "projectors"])
    {}
    """
    parts = name.removeprefix(family).split("-")[1:]
    pattern = family + "".join(f"[-{option.upper()}]" for option in options)
    if len(parts) > len(options) or not all(part.isdecimal() for part in parts):
        raise ConfigError(f"{name!r} is not a name of the form {pattern}, with whole numbers")
    numbers = dict(zip(options, map(int, parts), strict=False))
    for option, number in numbers.items():
        if number < 1:
            raise ConfigError(f"{name!r}: {option} must be at least 1, got {number}")
    return numbers


def saved_name(name: str, weights: Container[str]) -> str:
    """Today's name of what a saved model calls ``name``, by the ``weights`` it has: ``mlb`` was once ``hadamard``.

    >>> saved_name("mlb-4", {"pooling.u_attention", "pooling.p"}), saved_name("mlb-4", {"pooling.map_weight"})
    ('hadamard-4', 'mlb-4')
    """
    was_hadamard = name.split("-")[0] == "mlb" and "pooling.u_attention" in weights
    return "hadamard" + name.removeprefix("mlb") if was_hadamard else name
