"""TOML files that are read strictly: an unknown key, a wrong type or a value out of range is an error that says where
the mistake is and what was meant.

    class Shelf(Strict):
        width: Annotated[int, Field(ge=1, le=400)] = 80   # cm
        note: Annotated[str, NO_FIGURE] = ""              # changes nothing that is measured

    validate(Shelf, {"widht": 90}, source="shelf.toml")   # shelf.toml: unknown key 'widht'; did you mean 'width'?
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from secondsight.errors import ConfigError, SecondsightError, nearest

MOST_BYTES = 1 << 20
MOST_NESTING = 64  # of brackets, and of parts of a dotted key: tomllib takes quadratic time and recursion for more

Model = TypeVar("Model", bound=BaseModel)


class Strict(BaseModel):
    """A section of a file: no unknown keys, no silent conversions, no changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, populate_by_name=True)


class _NoFigure:
    def __repr__(self) -> str:
        return "NO_FIGURE"


NO_FIGURE = _NoFigure()
"""Marks a key that says where or how something runs, and that no figure depends on: ``Annotated[int, NO_FIGURE]``."""


def free_keys(schema: type[BaseModel], prefix: str = "") -> frozenset[str]:
    """The dotted keys of a schema that are marked ``NO_FIGURE``."""
    found = set()
    for name, field in schema.model_fields.items():
        if NO_FIGURE in field.metadata:
            found.add(prefix + name)
        if isinstance(inner := field.annotation, type) and issubclass(inner, BaseModel):
            found |= free_keys(inner, f"{prefix}{name}.")
    return frozenset(found)


def read(path: str | Path) -> tuple[dict[str, Any], str]:
    """What a TOML file holds, and its text; bounded in length and nesting, because files come from strangers too."""
    file = Path(path)
    try:
        with file.open("rb") as handle:
            content = handle.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ConfigError(f"{file}: more than {MOST_BYTES:,} bytes; this is not a configuration file")
        text = content.decode("utf-8")
        _check_nesting(text, file)
        return tomllib.loads(text), text
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        what = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise ConfigError(f"{file} is not valid TOML: {what}; correct it there, or name another file") from error


def validate(
    schema: type[Model], content: Mapping[str, Any], *, source: str, text: str = "", given: Mapping[str, str] = {}
) -> Model:
    """``content`` as a ``schema``.

    Args:
        source: Where it came from, for the message.
        text: The file's text, so that the message can name the line.
        given: Dotted key → the words on the command line that set it; a mistake there is not the file's.
    """
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        raise ConfigError(_describe(schema, error, source, text, given)) from error
    except SecondsightError as error:
        raise ConfigError(f"{source}: {error}") from error


def _check_nesting(text: str, file: Path) -> None:
    depth = deepest = 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth = max(0, depth - 1)
    dotted = max((line.count(".") for line in text.splitlines()), default=0)
    if deepest > MOST_NESTING or dotted > 16 * MOST_NESTING:
        raise ConfigError(f"{file}: nested {max(deepest, dotted):,} deep; this is not a configuration file")


def _describe(schema: type[BaseModel], error: ValidationError, source: str, text: str, given: Mapping[str, str]) -> str:
    problem = error.errors()[0]
    location = _keys(schema, problem["loc"])
    key = ".".join(location)
    word = next((word for name, word in given.items() if name == key or name.startswith(f"{key}.")), None)
    place = f"--set {word}" if word else f"{source}{_line(text, location)}"
    if problem["type"] == "extra_forbidden":
        return f"{place}: unknown key {key!r}{_suggest(schema, location)}"
    cause = problem.get("ctx", {}).get("error")
    message = str(cause) if isinstance(cause, SecondsightError) else f"{problem['msg']}, got {_short(problem['input'])}"
    return f"{place}: {key}: {message}" if key else f"{place}: {message}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _keys(schema: type[BaseModel] | None, location: tuple[Any, ...]) -> list[str]:
    """The part of a place that is keys of the file: types that offer alternatives add words of their own to it."""
    keys: list[str] = []
    for part in location:
        if isinstance(part, int):
            keys.append(str(part))
            continue
        fields = _fields(schema)
        known = part in fields
        if schema is None and keys:
            break
        keys.append(str(part))
        schema = _inner(fields[part].annotation) if known else None
    return keys


def _fields(schema: type[BaseModel] | None) -> dict[str, Any]:
    """Key of the file → field; an alias is what the file says."""
    if schema is None:
        return {}
    return {field.alias or name: field for name, field in schema.model_fields.items()}


def _inner(annotation: Any) -> type[BaseModel] | None:
    """The section that a field holds, alone, as an option or in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _inner(part)) is not None), None)


def _owner(schema: type[BaseModel] | None, location: list[str]) -> type[BaseModel] | None:
    for part in location[:-1]:
        if not part.isdigit():
            fields = _fields(schema)
            schema = _inner(fields[part].annotation) if part in fields else None
    return schema


def _suggest(schema: type[BaseModel], location: list[str]) -> str:
    wanted, here = location[-1], _fields(_owner(schema, location))
    if near := nearest(wanted, here):
        return f"; did you mean {near!r}?"
    for section, field in _fields(schema).items():
        if wanted in _fields(_inner(field.annotation)):
            return f"; it belongs in [{section}]"
    return f"; valid here: {', '.join(here)}" if here else ""


def _line(text: str, location: list[str]) -> str:
    """``, line 12`` of the key, or nothing where it cannot be found."""
    for number, key in _written(text):
        if key[: len(location)] == location:
            return f", line {number}"
    return ""


def _written(text: str) -> Iterator[tuple[int, list[str]]]:
    section: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            section = header[1].replace(" ", "").split(".")
            yield number, section
        elif match := re.match(r"\s*([\w.\-\"]+)\s*=", line):
            yield number, [*section, *match[1].replace('"', "").split(".")]
