"""What follows a change by itself: the engine and the meaning of scores keep up with the items."""

from __future__ import annotations

import numpy as np

from secondsight.index import calibration, engine, parts
from secondsight.index.calibration import Calibration
from secondsight.index.store import Store


def maintain(store: Store) -> None:
    """Build the engine and learn what scores mean again, where enough has changed since."""
    engine.maintain(store)
    known = store.fact("calibrated", 0)
    with store.reading() as (_, snapshot):
        count = len(snapshot)
    if abs(count - known) > known // 10 or (count and not known):
        calibrate(store)


def calibrate(store: Store) -> Calibration | None:
    """Learn what scores mean from labels, where most items have one, or else from chance."""
    rng, kept = np.random.default_rng(0), parts.opened(store)
    with store.reading() as (database, snapshot):
        alive = np.flatnonzero(snapshot.alive)
        most = calibration.GALLERY // (1 if kept is None else kept.count)
        chosen = np.sort(rng.permutation(alive)[:most])
        vectors, ids = snapshot.vectors(chosen), snapshot.ids[chosen].tolist()
        rows = dict(database.execute("SELECT id, label FROM items WHERE label IS NOT NULL"))
    several = None if kept is None else kept.vectors(np.array(ids), vectors)
    labels = np.array([rows.get(i, "") for i in ids], object)
    known = labels != ""
    found = None
    if len(ids) and known.mean() >= 0.5:
        theirs = None if several is None else several[:, known]
        found = calibration.from_labels(vectors[known], labels[known].astype(str), parts=theirs)
    found = found or calibration.from_chance(vectors, len(alive), parts=several)
    with store.writer():
        store.set_fact("calibration", None if found is None else found.to_dict())
        store.set_fact("calibrated", len(alive))
    return found
