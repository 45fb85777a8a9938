"""A few hundred mutations of every kind; ``make fuzz`` tries as many as you like."""

from __future__ import annotations

import pytest
from attempts import KINDS
from fuzz import attempts

COUNTS = {"pictures": 1500, "tables": 700, "archives": 400, "caches": 60, "servers": 300, "commands": 40}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_whatever_comes_from_outside_is_used_or_refused_with_a_sentence(kind, mutations, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    tally = attempts(kind, mutations(COUNTS[kind]), tmp_path / "work")
    assert not tally.faults
    assert tally.sound + tally.refused == tally.tried
    assert tally.sound, "nothing was sound: the mutations are too strong to reach anything"
    assert tally.refused, "nothing was refused: the mutations do nothing"
