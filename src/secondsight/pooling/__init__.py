"""Poolings: a set of local features (B, L, d) becomes one vector (B, D). ``build("jcf-32-8")`` makes any of them."""

from secondsight.pooling.average import Average
from secondsight.pooling.bilinear import Bilinear
from secondsight.pooling.contract import Pooling
from secondsight.pooling.jcf import JCF
from secondsight.pooling.projection import Projected
from secondsight.pooling.registry import POOLINGS, build, family

__all__ = ["JCF", "POOLINGS", "Average", "Bilinear", "Pooling", "Projected", "build", "family"]
