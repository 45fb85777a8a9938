"""HTML from jinja2's templates, which stand beside the code that fills them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jinja2

from secondsight.terminal import plain


def environment(package: str, filters: Mapping[str, Callable[..., Any]] | None = None) -> jinja2.Environment:
    """The templates of a package; whatever a file is called, its name is text and never markup, and no control
    characters of it come into the page, which may be looked at in a terminal.
    """
    made = jinja2.Environment(
        loader=jinja2.PackageLoader(package, "."),
        autoescape=True,
        finalize=_harmless,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= filters or {}
    return made


def _harmless(value: Any) -> Any:
    return type(value)(plain(value)) if isinstance(value, str) else value  # a Markup stays one
