"""How many mutations a fuzz test tries, and which: ``FUZZ=100000 FUZZ_SEED=7`` for more and others."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

SEED = int(os.environ.get("FUZZ_SEED", "0"))


@pytest.fixture
def mutations() -> Callable[[int], range]:
    """The seeds of a fuzz test that tries ``count`` mutations by itself, and its share of $FUZZ when that is given."""
    asked = os.environ.get("FUZZ")

    def seeds(count: int) -> range:
        first = SEED * 1_000_000_000
        return range(first, first + (count if asked is None else int(asked)))

    return seeds
