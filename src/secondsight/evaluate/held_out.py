"""Which classes a model may honestly be judged on: not those that taught it.

A model directory records the classes that taught the model and those it was chosen on (``model.origin``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from secondsight.data import ImageSet
from secondsight.model import Origin


@dataclass(frozen=True)
class EvaluationSet:
    """The images to evaluate on, a line about the choice, and a warning where one is due."""

    images: ImageSet
    note: str = ""
    warnings: tuple[str, ...] = ()


def held_out(images: ImageSet, origin: Origin | None) -> EvaluationSet:
    """Of labelled images, those of classes that the model did not learn from."""
    if origin is None or images.labels is None or not (taught := origin.taught_among(images.classes)):
        return EvaluationSet(images)
    chosen = origin.held_out_among(images.classes)
    others = chosen or [name for name in images.classes if name not in set(taught)]
    if len(others) < 2:
        return doubted(images, origin)
    why = "held out when the model was chosen" if chosen else "that did not teach the model"
    note = f"evaluated on the {len(others)} classes {why}, of {len(images.classes)} here (--split all: on all of them)"
    return EvaluationSet(images.select_classes(others), note)


def doubted(images: ImageSet, origin: Origin | None) -> EvaluationSet:
    """All of the images, with a warning where some of their classes taught the model."""
    return EvaluationSet(images, warnings=() if images.labels is None else doubt(images.classes, origin))


def doubt(classes: Sequence[str], origin: Origin | None) -> tuple[str, ...]:
    """A warning where some of these classes taught the model."""
    taught = [] if origin is None else origin.taught_among(classes)
    if not taught:
        return ()
    count = "all" if len(taught) == len(classes) else f"{len(taught)} of {len(classes)}"
    return (f"{count} classes taught this model: the figures flatter it.",)
