"""From a TOML file and ``--set`` words to a ``Recipe``; an error says where the mistake is and what was meant."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from secondsight import strict_toml
from secondsight.errors import ConfigError
from secondsight.train.recipe import Recipe


def read(path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """The recipe in a file, with ``key=value`` overrides such as ``train.epochs=5``."""
    content, text = strict_toml.read(path)
    return make(content, overrides, source=str(path), text=text)


def make(
    content: Mapping[str, Any], overrides: Iterable[str] = (), *, source: str = "recipe", text: str = ""
) -> Recipe:
    """The recipe that a nested dictionary describes."""
    merged, given = _copy(content), {}
    for word in overrides:
        key, value = parse_override(word)
        given[key] = word
        _put(merged, key, value)
    return strict_toml.validate(Recipe, merged, source=source, text=text, given=given)


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
