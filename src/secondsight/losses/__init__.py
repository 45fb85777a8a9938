"""Losses: a batch of embeddings and labels becomes one number. ``build("triplet", dim=512, classes=100)`` makes any."""

from secondsight.losses.contract import Expects, Loss, LossPart
from secondsight.losses.registry import LOSSES, build, option_defaults

__all__ = ["LOSSES", "Expects", "Loss", "LossPart", "build", "option_defaults"]
