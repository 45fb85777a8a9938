"""HTML from jinja2's templates, which stand beside the code that fills them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jinja2


def environment(package: str, filters: Mapping[str, Callable[..., Any]] | None = None) -> jinja2.Environment:
    """The templates of a package; whatever a file is called, its name is text and never markup."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader(package, "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= filters or {}
    return made
