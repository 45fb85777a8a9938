"""``check``: whether everything an index says is true, and what can be mended."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from secondsight.errors import DataError, SecondsightError
from secondsight.index import segments
from secondsight.index.approximate import load
from secondsight.index.catalogue import item_checksum
from secondsight.index.segments import Segment
from secondsight.progress import track

if TYPE_CHECKING:
    from secondsight.index.collection import Index


@dataclass
class Examination:
    """What was looked at, what is wrong, and what was mended."""

    segments: int = 0
    vectors: int = 0
    problems: list[str] = field(default_factory=list)
    mended: list[str] = field(default_factory=list)
    mendable: bool = False  # what is wrong, or some of it, by ``repair``

    @property
    def sound(self) -> bool:
        return not self.problems or bool(self.mended)


def check(index: Index, *, repair: bool = False) -> Examination:
    """Read every checksum, compare the catalogue with the vectors, load the model; with ``repair`` mend what is wrong.

    Vectors that are damaged cannot be restored from nothing: with those that share their checksum they are taken out,
    their items are removed from the catalogue, and the next ``update`` embeds their files again. Engines are thrown
    away and built again from the vectors.
    """
    found = Examination()
    store = index.store
    with store.catalogue.reading() as database:
        for (answer,) in database.execute("PRAGMA integrity_check").fetchall():
            if answer != "ok":
                found.problems.append(f"{store.catalogue.file}: {answer}")
        listed = database.execute("SELECT id, rows, checksum FROM segments ORDER BY first").fetchall()
        items = np.fromiter((r[0] for r in database.execute("SELECT id FROM items ORDER BY id")), np.int64)
        wrong = database.execute(f"SELECT id FROM items WHERE own IS NOT {item_checksum(database)} ORDER BY id")
        rotten = np.fromiter((r[0] for r in wrong), np.int64)
        dead = np.fromiter((r[0] for r in database.execute("SELECT id FROM dead ORDER BY id")), np.int64)
    broken: dict[Segment, np.ndarray] = {}  # and which of its vectors are intact
    held = []
    for number, rows, checksum in track(listed, "checking vectors"):
        segment = Segment(number, segments.path(index.path, number), rows, checksum)
        found.segments += 1
        try:
            intact = segment.intact()
        except DataError as error:
            broken[segment] = np.zeros(0, bool)
            found.problems.append(str(error))
            continue
        held.append(segment.ids[intact])
        found.vectors += int(intact.sum())
        if not intact.all():
            broken[segment] = intact
            found.problems.append(
                f"{segment.path}: damaged: {int((~intact).sum()):,} of its {rows:,} vectors, in blocks of "
                f"{segments.BLOCK:,}, do not fit their checksums"
            )
    present = np.concatenate([np.zeros(0, np.int64), *held])
    lost = np.setdiff1d(items, present)
    stray = np.setdiff1d(np.setdiff1d(present, items), dead)
    if len(lost):
        found.problems.append(f"{len(lost):,} items have no vector (the first: {lost[0]})")
    if len(stray):
        found.problems.append(f"{len(stray):,} vectors belong to no item (the first: {stray[0]})")
    if len(rotten):
        found.problems.append(f"{len(rotten):,} items are damaged in the catalogue (the first: {rotten[0]})")
    _check_model(index, found)
    facts = index.store.fact("engine", {})
    if facts.get("folder") and not load(index.path / facts["folder"], facts.get("checksum", ""), most=sys.maxsize):
        found.problems.append(f"{index.path / facts['folder']}: the engine is damaged; searches compare every vector")
        found.mendable = True
    damaged = bool(broken or len(lost) or len(stray) or len(rotten))
    found.mendable |= damaged
    if repair and damaged:
        gone = np.union1d(lost, rotten)
        _mend(index, broken, gone, np.union1d(stray, np.setdiff1d(rotten, lost)), np.setdiff1d(dead, present))
        found.mended.append(
            f"{len(gone):,} items were removed; get them back from their files with: secondsight update {index.path}"
        )
    if repair and index.store.fact("engine") is not None:
        index.build()
        found.mended.append("the engine was built again from the vectors")
    return found


def _check_model(index: Index, found: Examination) -> None:
    if index.fingerprint is not None:
        try:
            index._model = None
            index.model()
        except SecondsightError as error:
            found.problems.append(str(error))


def _mend(
    index: Index, broken: Mapping[Segment, np.ndarray], lost: np.ndarray, stray: np.ndarray, buried: np.ndarray
) -> None:
    """``buried``: dead ids that are in no segment any more."""
    with index.store.writer():
        with index.store.catalogue.writing() as database:
            database.execute("REINDEX")  # or a row that no longer fits its index could not be deleted
            beyond = [(segment.id,) for segment, intact in broken.items() if not intact.any()]
            database.executemany("DELETE FROM segments WHERE id = ?", beyond)
            database.executemany("DELETE FROM items WHERE id = ?", [(int(i),) for i in lost])
            database.executemany("INSERT OR IGNORE INTO dead VALUES (?)", [(int(i),) for i in stray])
            database.executemany("DELETE FROM dead WHERE id = ?", [(int(i),) for i in buried])
        for segment, intact in broken.items():
            if intact.any():
                index.store.rewrite([segment], [intact])
