"""The page of every key of a recipe: its default, and the comment beside it in the source, which says what moves it."""

from __future__ import annotations

import ast
import inspect
import io
import textwrap
import tokenize
import types
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from secondsight.train.recipe import FREE_KEYS, Recipe

INTRODUCTION = """# Recipe keys

Made from the code. A recipe is a TOML file with these sections; `secondsight recipes photos > mine.toml` starts one,
and `--set SECTION.KEY=VALUE` changes a key for one run (`none` leaves it out). Every key has a default. `[model]` takes
the same keys as `Embedder.build`.

Keys with a ° change no figure: a run may be resumed with other values of them.
"""


def page() -> str:
    lines = [INTRODUCTION]
    for section, field in Recipe.model_fields.items():
        kind: Any = field.annotation
        lines += [f"## {section}", "", _sentence(kind), "", "| key | default | takes | what it is, and what moves it |"]
        lines += ["| --- | --- | --- | --- |", *_rows(section, kind), ""]
    return "\n".join(lines)


def _sentence(kind: type[BaseModel]) -> str:
    return (kind.__doc__ or "").strip() if kind.__module__.endswith("recipe") else ""


def _rows(section: str, kind: type[BaseModel]) -> list[str]:
    words = comments(kind)
    rows = []
    for key, field in kind.model_fields.items():
        free = "°" if f"{section}.{key}" in FREE_KEYS else ""
        rows.append(f"| `{key}`{free} | `{_default(field)}` | {_takes(field.annotation)} | {words.get(key, '')} |")
    return rows


def comments(kind: type) -> dict[str, str]:
    """Field → the comment in its lines of source."""
    source = textwrap.dedent(inspect.getsource(kind))
    said: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            said[token.start[0]] = token.string.lstrip("# ").replace("|", "\\|")
    (body,) = ast.parse(source).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            found[node.target.id] = " ".join(said[line] for line in lines if line in said)
    return found


def _default(field: Any) -> str:
    value = field.default_factory() if field.default is PydanticUndefined else field.default
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else '""' if value == "" else str(list(value) if isinstance(value, tuple) else value)


def _takes(annotation: Any) -> str:
    """
    >>> _takes(Literal["a", "b"]), _takes(int | None), _takes(dict[str, Any])
    ('`a`, `b`', 'integer', 'table')
    """
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(annotation))
    if isinstance(annotation, types.UnionType):
        return " or ".join(_takes(part) for part in get_args(annotation) if part is not type(None))
    if hasattr(annotation, "__metadata__"):
        return _takes(get_args(annotation)[0])
    names = {int: "integer", float: "number", bool: "true or false", str: "text", tuple: "list", dict: "table"}
    return names.get(get_origin(annotation) or annotation, str(annotation))
