"""What users import is what is promised, and importing the package is free."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

import secondsight

PUBLIC = {
    "secondsight": "Embedder __version__ load",
    "secondsight.backbones": "BACKBONES Backbone Preprocessing build",
    "secondsight.data": "Batch BatchLoader BatchSampler CachedFeatures ClassBalanced DATASETS Dataset DecodeError "
    "Failures FeatureCache ImageSet Neighbours Pictures RandomResizedCrop Resize ResizeCrop Sequential Split "
    "TRANSFORMS Transform get open splits stats verify",
    "secondsight.demo": "ModelAnswers Subject VENDORS emoji evaluate_collection folder pictures side_by_side table",
    "secondsight.embed": "Block Embeddings Inputs activations blocks embed encode features join pictures stream",
    "secondsight.evaluate": "ClassFigures Evaluation Interval Items Report retrieval",
    "secondsight.explain": "Agreement Explanation KINDS Part Places agreement codewords "
    "from_features pair places refined rerank_score weighed",
    "secondsight.index": "Growth Hits Index Item create open",
    "secondsight.inference": "Exported Runtime agree load runtime",
    "secondsight.losses": "Expects LOSSES Loss LossPart build option_defaults",
    "secondsight.model": "Embedder ModelConfig Origin Reduction VIEWS load mean open_model published",
    "secondsight.pooling": "Average Bilinear JCF POOLINGS Pooling Projected build family",
    "secondsight.train": "Recipe Result read train",
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_these_and_no_others(module):
    found = importlib.import_module(module)
    assert sorted(found.__all__) == PUBLIC[module].split()
    for name in found.__all__:
        assert getattr(found, name) is not None


def test_every_package_with_public_names_is_listed():
    packages = [found.name for found in pkgutil.walk_packages(secondsight.__path__, "secondsight.") if found.ispkg]
    assert {name for name in packages if hasattr(importlib.import_module(name), "__all__")} == {*PUBLIC} - {
        "secondsight"
    }


def test_an_unknown_attribute_is_an_attribute_error():
    with pytest.raises(AttributeError, match="No secondsight attribute nothing"):
        secondsight.nothing  # noqa: B018


def test_importing_the_package_does_not_import_torch():
    code = "import sys, secondsight, secondsight.cli.main; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
