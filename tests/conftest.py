"""Shapes are checked at run time in tests (jaxtyping + beartype), and real data is found or the test skips."""

from __future__ import annotations

import os
from pathlib import Path

# Before torch loads: see the Makefile.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import jaxtyping
from jaxtyping import install_import_hook

CHECKED = ["functional", "pooling", "losses", "model"]
install_import_hook([f"secondsight.{room}" for room in CHECKED], "beartype.beartype")

import pytest
import torch

SHARED = Path(__file__).parents[2] / "shared"


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory):
    """Features that tests compute stay out of the user's cache; processes that tests start inherit it."""
    os.environ["SECONDSIGHT_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def unchecked():
    """Run without the shape checks of the tests: as a user would, whom our own messages must help."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def traced():
    """Run a whole module without the shape checks: to an exporter sizes are symbols, not numbers."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with CUB's training half and ImageNet weights, which is not part of the repository."""
    if not SHARED.is_dir():
        pytest.skip("needs ../shared (CUB images and ImageNet weights), which is not here")
    return SHARED
