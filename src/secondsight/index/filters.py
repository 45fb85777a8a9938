"""Filters: what ``where=`` and ``--where`` mean, as SQL.

    {"label": "heron"}               equal
    {"label": ["heron", "egret"]}    any of these
    {"year": (2010, 2015)}           from … to, both included; None leaves an end open
    {"path": "2024/*"}               a pattern (* and ?), or a folder and all that is in it
    {"label": None}                  has none

Several keys must all hold. On the command line: label=heron, year>=2010, year<=2015, year!=2012, path=2024/*; several
``=`` for the same column are alternatives.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from secondsight.errors import ConfigError, UnknownName, nearest
from secondsight.index.catalogue import stored

Where = Mapping[str, Any]

BUILT_IN = {
    "id": "id",
    "path": "path",
    "label": "label",
    "width": "width",
    "height": "height",
    "size": "size",
}
"""Columns that every index has, and what they are called in the catalogue."""

NUMBERS = ("id", "width", "height", "size")
"""Those of them that hold numbers."""


@dataclass(frozen=True)
class Not:
    """Anything but this value."""

    value: Any


@dataclass(frozen=True)
class All:
    """Every one of these conditions."""

    conditions: tuple[Any, ...]


@dataclass(frozen=True)
class Filter:
    """A condition in SQL and its parameters; no condition is True for every item."""

    sql: str = "1"
    parameters: tuple[Any, ...] = ()

    def ids(self, database: sqlite3.Connection) -> list[int]:
        """The items that pass, ascending."""
        found = database.execute(f"SELECT id FROM items WHERE {self.sql} ORDER BY id", self.parameters)
        return [row[0] for row in found]

    def count(self, database: sqlite3.Connection) -> int:
        return database.execute(f"SELECT COUNT(*) FROM items WHERE {self.sql}", self.parameters).fetchone()[0]


def compiled(where: Where | None, database: sqlite3.Connection) -> Filter:
    """``where`` as SQL; a column that does not exist is an error that names the ones that do."""
    fields = {**BUILT_IN, **dict(database.execute("SELECT name, field FROM columns"))}
    conditions, parameters = [], []
    for key, value in (where or {}).items():
        if key not in fields:
            raise UnknownName("column", key, fields)
        sql, given = _condition(fields[key], key, value)
        conditions.append(sql)
        parameters += given
    return Filter(" AND ".join(conditions) or "1", tuple(parameters))


def _condition(field: str, key: str, value: Any) -> tuple[str, list[Any]]:
    if value is None:
        return f"{field} IS NULL", []
    if isinstance(value, Not):
        sql, given = _condition(field, key, value.value)
        return f"NOT ({sql}) IS TRUE", given
    if isinstance(value, All):
        parts = [_condition(field, key, one) for one in value.conditions]
        return " AND ".join(f"({sql})" for sql, _ in parts) or "1", [p for _, given in parts for p in given]
    if isinstance(value, tuple):
        if len(value) != 2:
            raise ConfigError(f"where {key!r}: a range is a pair (from, to), got {value!r}; a list means any of these")
        ends = [(sign, end) for sign, end in zip((">=", "<="), value, strict=True) if end is not None]
        return " AND ".join(f"{field} {sign} ?" for sign, _ in ends) or "1", [_plain(key, end) for _, end in ends]
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        parts = [_condition(field, key, one) for one in value]
        return f"({' OR '.join(sql for sql, _ in parts) or '0'})", [p for _, given in parts for p in given]
    if key == "path":
        return _path(str(value))
    return f"{field} = ?", [_plain(key, value)]


def _path(pattern: str) -> tuple[str, list[Any]]:
    """A pattern, or a folder (or file) by its name; [ and ] are letters here, for file names have them."""
    glob = pattern.replace("[", "[[]")
    if "*" in pattern or "?" in pattern:
        return "path GLOB ?", [stored(glob)]
    folder = pattern.rstrip("/")
    return "(path = ? OR path GLOB ?)", [stored(folder), stored(folder.replace("[", "[[]") + "/*")]


def _plain(key: str, value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, str) and key in NUMBERS:
        raise ConfigError(f"where {key!r}: holds numbers, and {value!r} is none")
    if isinstance(value, (str, int, float, bytes)):
        return stored(value) if isinstance(value, str) else value
    raise ConfigError(f"where {key!r}: compares with text or numbers, not with {type(value).__name__} {value!r}")


def words(where: Where) -> str:
    """A filter as it is written on the command line.

    >>> words({"label": ["heron", "egret"], "year": (2010, None), "by": Not("ann")})
    'label=heron or label=egret, year>=2010, by!=ann'
    """
    return ", ".join(_words(key, value) for key, value in where.items())


def _words(key: str, value: Any) -> str:
    if isinstance(value, Not):
        return _words(key, value.value).replace("=", "!=", 1)
    if isinstance(value, All):
        return ", ".join(_words(key, one) for one in value.conditions)
    if isinstance(value, tuple):
        return ", ".join(f"{key}{sign}{end}" for sign, end in zip((">=", "<="), value, strict=False) if end is not None)
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return " or ".join(_words(key, one) for one in value)
    return f"{key}={'' if value is None else value}"


def meant(where: Where, database: sqlite3.Connection) -> str:
    """What was perhaps meant by a text that no item has; "" where nothing is like it."""
    fields = {**BUILT_IN, **dict(database.execute("SELECT name, field FROM columns"))}
    for key, value in where.items():
        if key != "path" and isinstance(value, str) and (asked := value.strip("*").lower()):
            there = [row[0] for row in database.execute(f"SELECT DISTINCT {fields[key]} FROM items LIMIT 10000")]
            texts = [text for text in there if isinstance(text, str)]
            like = [text for text in texts if asked in text.lower()]
            if value not in texts and (found := like[0] if like else nearest(value, texts)):
                return f"did you mean {key}={found}?"
    return ""


_WORDS = re.compile(r"\s*([^<>=!]+?)\s*(!=|>=|<=|=|>|<)(.*)", re.DOTALL)


def parsed(texts: Sequence[str]) -> dict[str, Any]:
    """``--where`` options as a ``where``.

    >>> parsed(["label=heron", "label=egret", "year>=2010"])
    {'label': ['heron', 'egret'], 'year': (2010, None)}
    """
    equal: dict[str, list[Any]] = {}
    others: dict[str, list[Any]] = {}
    for text in texts:
        found = _WORDS.fullmatch(text)
        if not found:
            raise ConfigError(f"--where {text!r}: write COLUMN=VALUE, such as label=heron or, in quotes, 'year>=2010'")
        key, sign, words = found.group(1), found.group(2), found.group(3).strip()
        value = words if key in ("label", "path") else number(words)
        if sign in (">", "<"):
            raise ConfigError(f"--where {text!r}: ranges include their ends: use >= or <=")
        if sign == "=":
            equal.setdefault(key, []).append(value)
        else:
            others.setdefault(key, []).append({"!=": Not(value), ">=": (value, None), "<=": (None, value)}[sign])
    where = {}
    for key in dict.fromkeys([*equal, *others]):
        alternatives = equal.get(key, [])
        conditions = [alternatives[0] if len(alternatives) == 1 else alternatives] if alternatives else []
        conditions += others.get(key, [])
        where[key] = conditions[0] if len(conditions) == 1 else All(tuple(conditions))
    return where


def number(text: str) -> Any:
    """A number where the text is one, so that 9 comes before 10; the text otherwise.

    >>> number("12"), number("1.5"), number("12a"), number("007")
    (12, 1.5, '12a', '007')
    """
    if re.fullmatch(r"-?(0|[1-9][0-9]{0,17})", text):
        return int(text)
    if re.fullmatch(r"-?[0-9]+\.[0-9]+([eE][-+]?[0-9]+)?", text):
        return float(text)
    return text
