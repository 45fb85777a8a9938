"""Duplicates in three tiers: the same bytes, the same picture again, the same subject.

    bytes      files with the same content
    picture    the same picture resized, re-encoded, mirrored or cropped: vectors that are nearly the same, and pixels
               that agree when one picture is laid over the other
    subject    vectors that are as similar as pictures of one subject are

Every item asks for its nearest neighbours, and pairs above the bar are joined: memory grows with the number of items,
not with its square. Groups are what is connected; pairs that were dismissed are not joined again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from secondsight.data.loading.decode import DecodeError
from secondsight.evaluate import calibration
from secondsight.index.snapshot import Snapshot
from secondsight.progress import track

if TYPE_CHECKING:
    from secondsight.index.collection import Index
    from secondsight.index.likeness import Picture

TIERS = ("bytes", "picture", "subject")
NEIGHBOURS = 8
"""Nearest neighbours that every item asks for."""

PAIR = np.dtype([("a", np.int64), ("b", np.int64), ("score", np.float32)])
"""Two items, by ascending id, and their cosine: 20 bytes."""

_COPIES = """
    SELECT first, id, 1.0
    FROM (SELECT hash, MIN(id) AS first FROM items WHERE hash IS NOT NULL GROUP BY hash HAVING COUNT(*) > 1)
    JOIN items USING (hash) WHERE id > first ORDER BY first, id
"""
_BATCH = 512
_DECODED, _READY = 8192, 64  # pictures that are held as pixels, and ready for comparing: 300 and 200 MB at most


@dataclass(frozen=True)
class Group:
    """Items that are one and the same in the way that ``tier`` says."""

    tier: str
    ids: tuple[int, ...]
    score: float  # the least cosine by which a member hangs on to the group


def duplicates(
    index: Index,
    *,
    tiers: Iterable[str] = ("bytes", "picture"),
    subject: float | None = None,
    similar: float | None = None,
) -> list[Group]:
    """Groups of duplicates, largest first within each tier.

    Args:
        tiers: Which of ``TIERS``.
        subject: Cosine from which two pictures show the same subject; None for the collection's own cut.
        similar: Cosine from which two pictures are compared pixel by pixel; None: one that few pairs reach.
    """
    wanted = [tier for tier in TIERS if tier in set(tiers)]
    with index.store.reading() as (database, snapshot):
        copies = np.array(database.execute(_COPIES).fetchall(), PAIR)
        dismissed = set(database.execute("SELECT a, b FROM dismissals"))
        ids = snapshot.ids[snapshot.alive]
    groups = []
    if "bytes" in wanted:
        groups += _groups("bytes", _undismissed(copies, dismissed))
    if "picture" in wanted or "subject" in wanted:
        similar = _rare(snapshot) if similar is None else similar
        cut = similar if "subject" not in wanted else min(similar, _subject(index, subject))
        pairs = _undismissed(_pairs(index, ids, cut, skip=copies["b"]), dismissed)
        if "picture" in wanted:
            near = pairs[pairs["score"] >= similar]
            groups += _groups("picture", near[_same(index, near[["a", "b"]].tolist())])
        if "subject" in wanted:
            groups += _groups("subject", pairs[pairs["score"] >= _subject(index, subject)])
    return groups


def _subject(index: Index, given: float | None) -> float:
    known = index.calibration()
    return given if given is not None else 1.01 if known is None else known.cut


def _rare(snapshot: Snapshot) -> float:
    """A cosine that few pairs of this collection reach; −1 where there are so few items that all can be compared."""
    alive = np.flatnonzero(snapshot.alive)
    some = np.random.default_rng(0).permutation(alive)[: calibration.GALLERY]
    known = calibration.from_chance(snapshot.vectors(np.sort(some)), len(alive))
    return -1.0 if known is None else min(known.cut, 0.9)


def _pairs(index: Index, ids: np.ndarray, cut: float, skip: np.ndarray) -> np.ndarray:
    """``PAIR``s (a < b) of near neighbours with a cosine of ``cut`` or more, each once; not of ``skip``, the copies."""
    ids = np.setdiff1d(ids, skip, assume_unique=True)
    found = [np.zeros(0, PAIR)]
    for start in track(range(0, len(ids), _BATCH), "looking for pairs"):
        some = ids[start : start + _BATCH]
        scores, near = index.searcher.neighbours(index.vectors(some), NEIGHBOURS + 1)
        close = (scores >= cut) & (near != some[:, None]) & (near >= 0)
        rows, columns = np.nonzero(close & ~np.isin(near, skip))
        made = np.zeros(len(rows), PAIR)
        ends = np.sort([some[rows], near[rows, columns]], axis=0)
        made["a"], made["b"], made["score"] = *ends, scores[rows, columns]
        found.append(made)
    pairs = np.concatenate(found)
    pairs = pairs[np.lexsort((pairs["b"], pairs["a"]))]
    again = (np.diff(pairs["a"], prepend=-1) == 0) & (np.diff(pairs["b"], prepend=-1) == 0)
    return pairs[~again]


def _undismissed(pairs: np.ndarray, dismissed: set[tuple[int, int]]) -> np.ndarray:
    if not dismissed:
        return pairs
    return pairs[np.array([pair not in dismissed for pair in pairs[["a", "b"]].tolist()], bool)]


def _same(index: Index, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """Which pairs are one picture: (m,) bool. Each picture is compared with several others, and decoded once."""
    from secondsight.index import likeness

    @lru_cache(_DECODED)
    def pixels(number: int) -> np.ndarray | None:  # None where the file is gone or cannot be read
        path = index.item(number).path
        try:
            return None if path is None else likeness.read(path).grey
        except DecodeError:
            return None

    @lru_cache(_READY)
    def picture(number: int) -> Picture | None:
        grey = pixels(number)
        return None if grey is None else likeness.Picture(grey)

    def same(a: Picture | None, b: Picture | None) -> bool:
        return a is not None and b is not None and likeness.likeness(a, b) >= likeness.AGREE

    laid = track(pairs, "laying pictures over each other")
    return np.array([same(picture(a), picture(b)) for a, b in laid], bool)


def _groups(tier: str, pairs: np.ndarray) -> list[Group]:
    """What ``pairs`` connect, the largest first."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ids, ends = np.unique([pairs["a"], pairs["b"]], return_inverse=True)
    a, b = ends.reshape(2, -1)
    count, group = connected_components(
        coo_array((np.ones(len(a)), (a, b)), shape=(len(ids), len(ids))), directed=False
    )
    least = np.ones(count)
    np.minimum.at(least, group[a], pairs["score"])
    order = np.argsort(group, kind="stable")
    members = np.split(ids[order], np.cumsum(np.bincount(group, minlength=1))[:-1])
    groups = [Group(tier, tuple(m.tolist()), round(s, 4)) for m, s in zip(members, least.tolist(), strict=False)]
    return sorted(groups, key=lambda g: (-len(g.ids), g.ids))


def dismiss(index: Index, ids: Sequence[int]) -> None:
    """Remember that these items are no duplicates of each other."""
    ordered = sorted({int(i) for i in ids})
    rows = [(a, b) for i, a in enumerate(ordered) for b in ordered[i + 1 :]]
    with index.store.writer(), index.store.catalogue.writing() as database:
        database.executemany("INSERT OR IGNORE INTO dismissals VALUES (?, ?)", rows)
