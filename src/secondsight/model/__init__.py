"""The model: ``Embedder`` = backbone + reduction + pooling + normalisation, saved and loaded as one directory."""

from secondsight.model.config import ModelConfig
from secondsight.model.directory import load, open_model, published
from secondsight.model.embedder import Embedder
from secondsight.model.origin import Origin
from secondsight.model.reduction import Reduction
from secondsight.model.views import VIEWS, mean

__all__ = ["VIEWS", "Embedder", "ModelConfig", "Origin", "Reduction", "load", "mean", "open_model", "published"]
