"""Losses: a batch of embeddings and labels becomes one number. ``build("triplet", dim=512, classes=100)`` makes any."""

from secondsight.losses.contract import Expects, Loss, Part
from secondsight.losses.registry import LOSSES, build, option_defaults

__all__ = ["LOSSES", "Expects", "Loss", "Part", "build", "option_defaults"]
