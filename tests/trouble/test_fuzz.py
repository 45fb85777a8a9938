"""A few hundred mutations of every kind; ``make fuzz`` tries as many as you like."""

from __future__ import annotations

import pytest
from attempts import KINDS
from fuzz import attempts

COUNTS = {
    "pictures": 1200,
    "tables": 600,
    "archives": 300,
    "models": 200,
    "vectors": 200,
    "caches": 40,
    "embeddings": 40,
    "indexes": 60,
    "servers": 200,
    "commands": 40,
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_whatever_comes_from_outside_is_used_or_refused_with_a_sentence(kind, mutations, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    tally = attempts(kind, mutations(COUNTS[kind]), tmp_path / "work")
    assert not tally.faults
    assert tally.sound + tally.refused == tally.tried
    assert tally.sound, "nothing was sound: the mutations are too strong to reach anything"
    assert tally.refused, "nothing was refused: the mutations do nothing"
