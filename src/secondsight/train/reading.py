"""From a TOML file and ``--set`` words to a ``Recipe``; an error says where the mistake is and what was meant."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import BaseModel, ValidationError

from secondsight.errors import ConfigError, SecondsightError, nearest
from secondsight.train.recipe import Recipe


def read(path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """The recipe in a file, with ``key=value`` overrides such as ``train.epochs=5``."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid TOML: {error}") from error
    return make(content, overrides, source=str(file), text=text)


def make(
    content: Mapping[str, Any], overrides: Iterable[str] = (), *, source: str = "recipe", text: str = ""
) -> Recipe:
    """The recipe that a nested dictionary describes."""
    merged, given = _copy(content), {}
    for word in overrides:
        key, value = parse_override(word)
        given[key] = word
        _put(merged, key, value)
    try:
        return Recipe.model_validate(merged)
    except ValidationError as error:
        raise ConfigError(_describe(error, source, text, given)) from error


def dumps(recipe: Recipe) -> str:
    """The recipe as TOML with every choice written out, so that a later change of a default changes nothing."""
    return tomli_w.dumps(recipe.model_dump(mode="python", exclude_none=True))


def parse_override(word: str) -> tuple[str, Any]:
    """``key=value``, the value as TOML would read it; a bare word is a string, and ``none`` leaves the key out.

    >>> parse_override("train.epochs=5"), parse_override("loss.name=triplet")
    (('train.epochs', 5), ('loss.name', 'triplet'))
    """
    key, equals, value = word.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {word}: expected key=value, such as --set train.epochs=5")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), None if value.strip().lower() == "none" else value.strip()


def word(key: str, value: str) -> str:
    """``key=value`` as ``parse_override`` reads it, whatever quotes or backslashes the value has.

    >>> parse_override(word("data.path", "my 'photos'"))
    ('data.path', "my 'photos'")
    """
    return f"{key}={json.dumps(value, ensure_ascii=False)}"


def differences(one: Recipe, other: Recipe) -> list[str]:
    """The keys whose values differ, dotted, each with both values.

    >>> differences(make({"train": {"epochs": 1}}), make({"train": {"epochs": 2}}))
    ['train.epochs (1 → 2)']
    """
    mine, theirs = flat(one), flat(other)
    keys = [*mine, *(key for key in theirs if key not in mine)]
    return [f"{k} ({mine.get(k)!r} → {theirs.get(k)!r})" for k in keys if mine.get(k) != theirs.get(k)]


def flat(recipe: Recipe) -> dict[str, Any]:
    """Dotted key → value; option tables are taken apart too."""

    def walk(prefix: str, value: Any) -> Iterable[tuple[str, Any]]:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from walk(f"{prefix}.{key}" if prefix else key, inner)
        else:
            yield prefix, list(value) if isinstance(value, tuple) else value

    return dict(walk("", recipe.model_dump(mode="python")))


def _copy(content: Any) -> Any:
    return {key: _copy(value) for key, value in content.items()} if isinstance(content, Mapping) else content


def _put(content: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for part in path:
        content = content.setdefault(part, {})
        if not isinstance(content, dict):
            raise ConfigError(f"--set {key}: {part} is a value, not a section")
    content[last] = value


def _describe(error: ValidationError, source: str, text: str, given: Mapping[str, str]) -> str:
    problem = error.errors()[0]
    location = [str(part) for part in problem["loc"] if not str(part).startswith("function-")]
    # A type that offers alternatives (int or None) adds its own words to the place: keep what the recipe has.
    key = ".".join(location[: _depth(location)])
    word = next((word for name, word in given.items() if name == key or name.startswith(f"{key}.")), None)
    place = f"--set {word}" if word else f"{source}{_line(text, location[: _depth(location)])}"
    if problem["type"] == "extra_forbidden":
        return f"{place}: unknown key {key!r}{_suggest(location)}"
    cause = problem.get("ctx", {}).get("error")
    message = str(cause) if isinstance(cause, SecondsightError) else f"{problem['msg']}, got {problem['input']!r}"
    return f"{place}: {key}: {message}"


def _depth(location: list[str]) -> int:
    """How many parts of a place are keys: sections hold keys, and a key is as far as we look."""
    return min(len(location), 2)


def _suggest(location: list[str]) -> str:
    owner = Recipe.model_fields
    if len(location) > 1:
        section = Recipe.model_fields[location[0]].annotation
        owner = section.model_fields if isinstance(section, type) and issubclass(section, BaseModel) else {}
    if near := nearest(location[-1], owner):
        return f"; did you mean {near!r}?"
    elsewhere = [s for s, field in Recipe.model_fields.items() if location[-1] in _fields(field.annotation)]
    if elsewhere:
        return f"; it belongs in [{elsewhere[0]}]"
    return f"; valid here: {', '.join(owner)}"


def _fields(section: Any) -> Iterable[str]:
    return getattr(section, "model_fields", {})


def _line(text: str, location: list[str]) -> str:
    """``, line 12`` of the key, or nothing where it cannot be found."""
    section = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            section = header[1].replace(" ", "")
            if section.split(".") == location:
                return f", line {number}"
        elif match := re.match(r"\s*([\w.\-\"]+)\s*=", line):
            here = [part for part in f"{section}.{match[1]}".replace('"', "").split(".") if part]
            if here[: len(location)] == location:
                return f", line {number}"
    return ""
