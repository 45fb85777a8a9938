"""``math`` fences, which GitHub draws by itself, as MathML, which browsers draw without a script."""

from __future__ import annotations

from typing import Any

from latex2mathml.converter import convert


def fence(source: str, *_: Any, **__: Any) -> str:
    return "".join(convert(line, display="block") for line in source.split("\n\n") if line.strip())
