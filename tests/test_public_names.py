"""What users import is what is promised, and importing the package is free."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import secondsight

PUBLIC = {
    "secondsight": {"Embedder", "__version__", "load"},
    "secondsight.pooling": {"POOLINGS", "Pooling", "build", "family", "JCF", "Bilinear", "Average"},
    "secondsight.backbones": {"BACKBONES", "Backbone", "Preprocessing", "build"},
    "secondsight.losses": {"LOSSES", "build"},
    "secondsight.data": {"open"},
    "secondsight.evaluate": {"retrieval"},
    "secondsight.index": {"Growth", "Hits", "Index", "Item", "create", "open"},
    "secondsight.explain": {"pair", "places", "Explanation", "Places", "codewords", "agreement"},
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_all_there(module):
    found = importlib.import_module(module)
    assert set(found.__all__) >= PUBLIC[module]
    for name in found.__all__:
        assert getattr(found, name) is not None


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="No secondsight attribute nothing"):
        secondsight.nothing  # noqa: B018


def test_importing_the_package_does_not_import_torch():
    code = "import sys, secondsight, secondsight.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
