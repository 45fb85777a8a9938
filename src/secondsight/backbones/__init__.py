"""An image becomes local features: ``build("vgg16")(images)`` is (B, L, d_in)."""

from __future__ import annotations

from secondsight.backbones.backbone import Backbone
from secondsight.backbones.preprocessing import Preprocessing
from secondsight.backbones.registry import BACKBONES, build

__all__ = ["BACKBONES", "Backbone", "Preprocessing", "build"]
