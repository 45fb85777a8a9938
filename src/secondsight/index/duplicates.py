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
from secondsight.index import likeness
from secondsight.index.snapshot import Snapshot
from secondsight.progress import track

if TYPE_CHECKING:
    from secondsight.index.collection import Index

TIERS = ("bytes", "picture", "subject")
NEIGHBOURS = 8
"""Nearest neighbours that every item asks for."""

_BATCH = 512
_KEPT = 2048  # pictures that are held ready for comparing: about 200 MB


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
        hashes = database.execute("SELECT hash, id FROM items WHERE hash IS NOT NULL ORDER BY id").fetchall()
        dismissed = {(a, b) for a, b in database.execute("SELECT a, b FROM dismissals")}
        ids = snapshot.ids[snapshot.alive]
    groups = []
    first: dict[bytes, int] = {}
    copies = [(first.setdefault(digest, number), number, 1.0) for digest, number in hashes]
    copies = [(a, b, s) for a, b, s in copies if a != b]
    if "bytes" in wanted:
        groups += _groups("bytes", copies, dismissed)
    if "picture" in wanted or "subject" in wanted:
        similar = _rare(snapshot) if similar is None else similar
        cut = similar if "subject" not in wanted else min(similar, _subject(index, subject))
        pairs = _pairs(index, ids, cut, skip={number for a, number, _ in copies})
        pairs = [pair for pair in pairs if pair[:2] not in dismissed]
        same = [pair for pair in pairs if pair[2] >= similar and "picture" in wanted]
        picture = lru_cache(_KEPT)(lambda number: _picture(index, number))  # each is compared with several others
        laid = track(same, "laying pictures over each other")
        same = [(a, b, s) for a, b, s in laid if _same(picture(a), picture(b))]
        if "picture" in wanted:
            groups += _groups("picture", same, dismissed)
        if "subject" in wanted:
            least = _subject(index, subject)
            groups += _groups("subject", [pair for pair in pairs if pair[2] >= least], dismissed)
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


def _pairs(index: Index, ids: np.ndarray, cut: float, skip: set[int]) -> list[tuple[int, int, float]]:
    """Pairs (a < b) of near neighbours with a cosine of ``cut`` or more; not of ``skip``, the copies."""
    asking = np.array([i for i in ids.tolist() if i not in skip], np.int64)
    found: dict[tuple[int, int], float] = {}
    for start in track(range(0, len(asking), _BATCH), "looking for pairs"):
        some = asking[start : start + _BATCH]
        scores, near = index.searcher.neighbours(index.vectors(some), NEIGHBOURS + 1)
        close = (scores >= cut) & (near != some[:, None]) & (near >= 0)
        for row, column in np.argwhere(close):
            a, b = sorted((int(some[row]), int(near[row, column])))
            if b not in skip and a not in skip:
                found[a, b] = float(scores[row, column])
    return [(a, b, s) for (a, b), s in sorted(found.items())]


def _picture(index: Index, number: int) -> likeness.Picture | None:
    """An item made ready for comparing; None where its file is gone or cannot be read."""
    path = index.item(number).path
    try:
        return None if path is None else likeness.read(path)
    except DecodeError:
        return None


def _same(a: likeness.Picture | None, b: likeness.Picture | None) -> bool:
    return a is not None and b is not None and likeness.likeness(a, b) >= likeness.AGREE


def _groups(tier: str, pairs: Sequence[tuple[int, int, float]], dismissed: set[tuple[int, int]]) -> list[Group]:
    """What pairs connect, by joining sets (Tarjan 1975)."""
    parent: dict[int, int] = {}
    least: dict[int, float] = {}

    def root(i: int) -> int:
        parent.setdefault(i, i)
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for a, b, score in pairs:
        if (a, b) in dismissed:
            continue
        x, y = root(a), root(b)
        least[x] = min(score, least.get(x, 1.0), least.get(y, 1.0))
        parent[y] = x
    members: dict[int, list[int]] = {}
    for i in parent:
        members.setdefault(root(i), []).append(i)
    groups = [Group(tier, tuple(sorted(ids)), round(least[top], 4)) for top, ids in members.items()]
    return sorted(groups, key=lambda g: (-len(g.ids), g.ids))


def dismiss(index: Index, ids: Sequence[int]) -> None:
    """Remember that these items are no duplicates of each other."""
    ordered = sorted({int(i) for i in ids})
    rows = [(a, b) for i, a in enumerate(ordered) for b in ordered[i + 1 :]]
    with index.store.writer(), index.store.catalogue.writing() as database:
        database.executemany("INSERT OR IGNORE INTO dismissals VALUES (?, ?)", rows)
