"""Every example in a docstring does what it says."""

from __future__ import annotations

import doctest
import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import secondsight

SOURCE = Path(secondsight.__file__).parent
HOOKS = Path(__file__).parents[1] / "docs" / "hooks"


def with_examples(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*.py") if re.search(r"^\s*>>> ", p.read_text("utf-8"), flags=re.M))


@pytest.mark.parametrize("path", with_examples(SOURCE), ids=lambda p: str(p.relative_to(SOURCE)))
def test_the_examples_of_a_module(path: Path):
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    check(importlib.import_module(".".join(part for part in parts if part != "__init__")))


@pytest.mark.parametrize("path", with_examples(HOOKS), ids=lambda p: p.name)
def test_the_examples_of_what_writes_the_reference(path: Path, monkeypatch):
    monkeypatch.syspath_prepend(str(HOOKS))
    check(importlib.import_module(path.stem))
    del sys.modules[path.stem]


def check(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0
