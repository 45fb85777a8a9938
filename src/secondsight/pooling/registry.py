"""One visible dict of all poolings, and ``build``, which wires a name to a module."""

from __future__ import annotations

import re
from typing import Any

from secondsight.errors import ConfigError, UnknownName
from secondsight.pooling.average import Average
from secondsight.pooling.bilinear import Bilinear
from secondsight.pooling.contract import Pooling
from secondsight.pooling.jcf import JCF

POOLINGS: dict[str, type[Pooling]] = {
    "average": Average,
    "bp": Bilinear,
    "jcf": JCF,
}
"""Family → class. A name is a family and its numbers: ``jcf-32-8`` is of the family ``jcf``."""


def build(name: str, in_dim: int = 256, out_dim: int = 512, **options: Any) -> Pooling:
    """A pooling by name, e.g. ``build("jcf-32-8")``; ``options`` are the class's keywords.

    >>> build("jcf-4", in_dim=8, out_dim=16)(torch.randn(2, 49, 8)).shape
    torch.Size([2, 16])
    """
    cls = POOLINGS[family(name)]
    try:
        return cls.from_name(name, in_dim=in_dim, out_dim=out_dim, **options)
    except TypeError as error:
        raise ConfigError(f"pooling {name!r}: {error}; see help({cls.__module__}.{cls.__name__})") from error


def family(name: str) -> str:
    """The family that ``name`` belongs to: the longest one that starts it.

    >>> family("jcf-32-8")
    'jcf'
    """
    parts = name.split("-")
    for end in range(len(parts), 0, -1):
        if (found := "-".join(parts[:end])) in POOLINGS:
            return found
    raise UnknownName("pooling", re.sub(r"(-\d+)+$", "", name), POOLINGS)
