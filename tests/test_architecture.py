"""The rooms and their one-way doors: a room imports only what stands to its left."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import secondsight

SOURCE = Path(secondsight.__file__).parent

FOUNDATION = {
    "calibration",
    "errors",
    "evaluation_mode",
    "extras",
    "files",
    "memory",
    "progress",
    "shipped",
    "strict_toml",
    "templates",
    "terminal",
    "version",
}
"""Small modules that every room may use; they use each other only."""

ROOMS = {
    "functional": set(),
    "pooling": {"functional"},
    "backbones": set(),
    "data": set(),
    "model": {"backbones", "pooling", "functional", "data"},
    "losses": {"functional"},
    "embed": {"model", "data"},
    "evaluate": {"functional", "data", "model", "embed"},
    "explain": {"model", "data", "pooling", "functional", "embed"},
    "inference": {"model", "data", "functional"},
    "export": {"inference", "model", "data", "evaluate"},
    "train": {"model", "data", "losses", "evaluate", "embed", "backbones", "pooling", "functional"},
    "compress": {"model", "pooling", "functional", "data", "embed", "evaluate"},
    "reproduce": {"pooling", "model", "train", "evaluate"},
    "demo": {"model", "data", "embed", "train", "evaluate", "index"},
    "fit": {"model", "data", "embed", "pooling"},
    "index": {"model", "data", "embed", "evaluate", "explain", "inference"},
    "serve": {"index", "explain", "inference", "model", "data", "embed"},
    "cli": {"*"},
}
"""Room → the rooms that it may import, in the order in which an image passes through them."""


def rooms_imported_by(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").split(".")[0] == "secondsight":
            parts = (node.module or "").split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("secondsight.")}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide which room is entered"
    return found


def files() -> list[Path]:
    return sorted(p for p in SOURCE.rglob("*.py") if p.parent != SOURCE or p.stem not in ("__init__", "__main__"))


@pytest.mark.parametrize("path", files(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_arrows_point_one_way(path: Path):
    room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    allowed = FOUNDATION if room in FOUNDATION else FOUNDATION | {room} | ROOMS[room]
    if "*" not in allowed:
        assert rooms_imported_by(path) <= allowed, f"{room}/ may import {sorted(allowed)}"


def test_the_rooms_themselves_have_no_cycle():
    order: list[str] = []
    remaining = {room: {r for r in allowed if r != "*"} for room, allowed in ROOMS.items()}
    while remaining:
        free = [room for room, needs in remaining.items() if needs <= set(order)]
        assert free, f"a cycle among {sorted(remaining)}"
        order += free
        for room in free:
            del remaining[room]


def test_contributing_names_every_room_below_those_that_it_uses():
    text = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text("utf-8")
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    order = [name for row in rows for name in re.findall(r"`(\w+)(?:/|\.py)`", row)]
    assert set(order) == set(ROOMS)
    for room in order[:-1]:  # the last, the command line, uses all
        assert ROOMS[room] <= set(order[: order.index(room)]), room
    everyone = next(line for line in text.splitlines() if line.startswith("| what every room may use |"))
    assert set(re.findall(r"`(\w+)\.py`", everyone)) == FOUNDATION


def test_contributing_names_places_that_exist():
    text = (SOURCE.parents[1] / "CONTRIBUTING.md").read_text("utf-8")
    table = text[text.index("| I want to add…") : text.index("## A new pooling")]
    named = {name for row in table.splitlines() for name in re.findall(r"`([\w/]+/(?:\w+\.py)?)`", row)}
    assert len(named) > 30
    for name in named:
        places = (SOURCE / name, SOURCE.parents[1] / name)
        assert any(place.exists() for place in places), f"CONTRIBUTING.md names {name}, which is not there"


def test_no_room_is_called_after_nothing():
    vague = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not [p for p in SOURCE.rglob("*") if p.stem in vague]


def test_nothing_is_unpickled():
    """torch.load runs code unless it is told not to; pickle, always."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("torch.load", "pickle.load", "pickle.loads"):
                safe = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
                assert safe.get("weights_only") is True, f"{path.name}:{node.lineno}"
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("np.load", "numpy.load"):
                safe = {k.arg: getattr(k.value, "value", None) for k in node.keywords}
                assert safe.get("allow_pickle", False) is False, f"{path.name}:{node.lineno}"
