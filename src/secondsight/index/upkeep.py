"""What follows a change by itself: the engine and the meaning of scores keep up with the items."""

from __future__ import annotations

import numpy as np

from secondsight.evaluate import calibration
from secondsight.index import engine, parts
from secondsight.index.catalogue import labels_of
from secondsight.index.store import Store
from secondsight.model.calibration import Calibration
from secondsight.model.calibration import read as read_calibration

MODEL = "model"
"""Where an index keeps its copy of the model."""


def maintain(store: Store) -> None:
    """Build the engine and learn what scores mean again, where enough has changed since."""
    engine.maintain(store)
    known = store.fact("calibrated", 0)
    with store.reading() as (_, snapshot):
        count = len(snapshot)
    if abs(count - known) > known // 10 or (count and not known):
        calibrate(store)


def calibrate(store: Store) -> Calibration | None:
    """Learn what scores mean from labels, where most items have one; else from the model's own; else from chance.

    With several vectors a picture a score is the best of many, of which a model's own calibration knows nothing.
    """
    rng, kept = np.random.default_rng(0), parts.opened(store)
    with store.reading() as (database, snapshot):
        alive = np.flatnonzero(snapshot.alive)
        most = calibration.GALLERY // (1 if kept is None else kept.count)
        chosen = np.sort(rng.permutation(alive)[:most])
        vectors, ids = snapshot.vectors(chosen), snapshot.ids[chosen]
        labels = np.array(labels_of(database, ids), object)
    several = None if kept is None else kept.vectors(ids, vectors)
    known = labels != None  # noqa: E711
    found = None
    if len(labels) and known.mean() >= 0.5:
        theirs = None if several is None else several[:, known]
        found = calibration.from_labels(vectors[known], labels[known].astype(str), parts=theirs)
    if found is None and kept is None:
        found = _of_model(store)
    found = found or calibration.from_chance(vectors, len(alive), parts=several)
    with store.writer():
        store.set_fact("calibration", None if found is None else found.to_dict())
        store.set_fact("calibrated", len(alive))
    return found


def _of_model(store: Store) -> Calibration | None:
    """What the index's own copy of its model says about its scores."""
    fingerprint = store.fact("model", {}).get("fingerprint")
    return None if fingerprint is None else read_calibration(store.folder / MODEL, fingerprint)
