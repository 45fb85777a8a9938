"""The shipped table ``poolings`` with chosen poolings, and with its own budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from secondsight import shipped, strict_toml
from secondsight.pooling import family
from secondsight.reproduce import tables
from secondsight.reproduce.tables import Changes, Table


def pooling_table(
    names: Sequence[str] = (), *, seeds: Sequence[int] = (), changes: Changes | None = None, command: str = ""
) -> Table:
    """The shipped table where nothing is given.

    Args:
        names: The poolings; others than the table's work too.
        seeds: Instead of the table's.
        changes: Of every row's recipe.
        command: That the page names.
    """
    file = shipped.find("poolings", shipped.TABLES)
    content, text = strict_toml.read(file)
    (axis,) = content["axes"]
    if names:
        values = [value for name in dict.fromkeys(names) for value in _values(name, axis["values"])]
        content |= {"axes": [{**axis, "values": values}], "baseline": None}
    content |= {"seeds": list(seeds) or content["seeds"], "set": changes or {}}
    table = tables.make(content, file, text)
    return replace(table, command=command or table.command)


def _values(name: str, written: Sequence[Any]) -> list[Any]:
    """The table's own values for a pooling; another JCF is taken as ``jcf-32-8`` is, literally and with our start."""

    def named(like: str) -> list[Any]:
        return [v for v in written if (v if isinstance(v, str) else v["set"]["model"]["pooling"]) == like]

    if found := named(name):
        return found
    if family(name) != "jcf":
        return [name]
    like = "jcf-32-8"
    return [
        {"name": v["name"].replace(like, name), "set": {"model": {**v["set"]["model"], "pooling": name}}}
        for v in named(like)
    ]
