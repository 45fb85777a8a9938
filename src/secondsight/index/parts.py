"""Small things in large pictures: several vectors a picture, in a store of their own inside the index.

The whole of every picture stays where it is; its parts are kept by the *content* of its file, and their score is

    s(query, picture) = max(⟨q, whole⟩, max_p ⟨q, part_p⟩) .

Parts are committed before the items that have them, and removed after: an item of the catalogue has its parts, whenever
a process was killed. Parts whose content no item has are never found, and the next change removes them. Moving,
renaming and copying files changes nothing here.
"""

from __future__ import annotations

import shutil
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from secondsight import files
from secondsight.errors import ConfigError
from secondsight.index import engine as engines
from secondsight.index import facts
from secondsight.index.catalogue import fact
from secondsight.index.exact import Best, rescored
from secondsight.index.examination import Examination
from secondsight.index.hits import Hits
from secondsight.index.owners import Owners, read
from secondsight.index.snapshot import Snapshot
from secondsight.index.store import Change, Record, Store

FOLDER = "parts"
SIDES = ("left", "top", "right", "bottom")
MOST = 64
"""Vectors a picture: more are no longer parts of it, but its places."""


class Parts:
    """The parts of an index's pictures."""

    def __init__(self, owner: Store, kept: dict[str, Any]):
        from secondsight.index.answer import Searcher

        self.owner, self.kept = owner, kept  # what the catalogue says of it: count and folder
        self.store = Store(owner.folder / kept["folder"])
        self.searcher = Searcher(self.store)
        self._owners: Owners | None = None
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """Vectors a picture, its whole among them."""
        return self.kept["count"]

    def candidates(
        self,
        queries: np.ndarray,
        k: int,
        database: sqlite3.Connection,
        snapshot: Snapshot,
        allowed: np.ndarray | None,
        exact: bool,
    ) -> np.ndarray:
        """(q, m) ids of items: of the k or more whose parts are most similar; −1 where there are fewer.

        ``database``, ``snapshot`` and ``allowed`` (positions) are the index's own.
        """
        with self.store.reading() as (inside, parts):
            owners, known = self.owners(database, snapshot, inside, parts), self.searcher.known(inside, parts)
            ids = None if allowed is None else snapshot.ids[allowed]
            passing = owners.passing(ids)
            total = len(parts) if passing is None else len(passing)
            k, count = min(k, len(owners.items) if ids is None else len(ids)), 2 * k
            while True:
                count = min(count, total)
                best = self.searcher.candidates(known, queries, count, passing, exact)
                rows = [owners.content[parts.positions(row[row >= 0])] for row in best.ids]
                found = [np.concatenate([np.zeros(0, np.int64), *map(owners.holders, np.unique(r))]) for r in rows]
                if ids is not None:
                    found = [row[np.isin(row, ids)] for row in found]
                # The first parts may all be of a few pictures: then more are asked for, until k pictures are there.
                if count == total or min(map(len, found)) >= k:
                    return _padded(found)
                count *= 4

    def best(
        self, queries: np.ndarray, ids: np.ndarray, database: sqlite3.Connection, snapshot: Snapshot
    ) -> tuple[np.ndarray, np.ndarray]:
        """Of each query and item ``ids`` (q, m): the score of its most similar part, −inf without parts, and the ids of
        these parts.
        """
        scores, which = np.full(ids.shape, -np.inf), np.full(ids.shape, -1, np.int64)
        with self.store.reading() as (inside, parts):
            owners = self.owners(database, snapshot, inside, parts)
            for row, query in enumerate(queries.astype(np.float64)):
                content = np.where(ids[row] >= 0, owners.of(ids[row]), -1)
                columns = np.flatnonzero(content >= 0)
                if not len(columns):
                    continue
                held = [owners.parts(content[column]) for column in columns]
                positions = np.concatenate(held)
                # Row by row as `rescored`: the same numbers whatever was asked together.
                every = np.einsum("ij,j->i", parts.stored(positions).astype(np.float64), query)
                starts = np.cumsum([0, *map(len, held)])
                for column, start, stop in zip(columns, starts, starts[1:], strict=False):
                    top = start + int(every[start:stop].argmax())
                    scores[row, column], which[row, column] = every[top], parts.ids[positions[top]]
        return scores, which

    def widened(
        self,
        best: Best,
        queries: np.ndarray,
        k: int,
        database: sqlite3.Connection,
        snapshot: Snapshot,
        allowed: np.ndarray | None,
        exact: bool,
    ) -> Best:
        """Candidates by their wholes, and those by their parts; each item once."""
        more = self.candidates(queries, k, database, snapshot, allowed, exact) if k else best.ids
        rows = [np.unique(np.concatenate([a[a >= 0], b[b >= 0]])) for a, b in zip(best.ids, more, strict=True)]
        ids = _padded(rows)
        return Best(ids.shape[1], np.zeros(ids.shape, np.float32), ids)

    def located(self, hits: Hits, queries: np.ndarray, database: sqlite3.Connection, snapshot: Snapshot) -> Hits:
        """Where each hit is in its picture: the box of its most similar part, unless the whole is more so."""
        scores, which = self.best(queries, hits.ids, database, snapshot)
        whole = rescored(queries, hits.ids, snapshot)
        return replace(hits, boxes=self.boxes(np.where(scores > whole, which, -1)))

    def boxes(self, which: np.ndarray) -> np.ndarray:
        """(…, 4) left, top, right, bottom of parts by id, in fractions of the picture; NaN for −1."""
        out = np.full((*which.shape, 4), np.nan, np.float32)
        with self.store.reading() as (database, _):
            fields = ", ".join(dict(database.execute("SELECT name, field FROM columns")).get(s, "NULL") for s in SIDES)
            for place in np.argwhere(which >= 0):
                found = database.execute(f"SELECT {fields} FROM items WHERE id = ?", (int(which[tuple(place)]),))
                out[tuple(place)] = found.fetchone() or np.nan
        return out

    def owners(
        self, database: sqlite3.Connection, snapshot: Snapshot, inside: sqlite3.Connection, parts: Snapshot
    ) -> Owners:
        """Read once for each generation."""
        with self._lock:
            if self._owners is None or self._owners.generations != (snapshot.generation, parts.generation):
                self._owners = read(database, snapshot, inside, parts)
            return self._owners

    def current(self) -> Owners:
        """As ``owners``, now."""
        with self.owner.reading() as (database, snapshot), self.store.reading() as (inside, parts):
            return self.owners(database, snapshot, inside, parts)

    def vectors(self, ids: np.ndarray, wholes: np.ndarray) -> np.ndarray:
        """(count − 1, n, dim) the parts of items ``ids`` (n,), of unit length; their ``wholes`` where they lack."""
        out = np.repeat(wholes[None], self.count - 1, 0)
        owners = self.current()
        with self.store.reading() as (_, parts):
            for column, content in enumerate(owners.of(ids)):
                if content >= 0:
                    held = owners.parts(content)[: len(out)]
                    out[: len(held), column] = parts.vectors(held)
        return out

    def check(self, found: Examination, *, repair: bool) -> Examination:
        """``found`` together with what an examination of the parts finds."""
        from secondsight.index.collection import Index

        before = self._counts()
        here = Index(self.store.folder).check(repair=repair)
        if here.mended:  # a picture that keeps some of its parts would pass for one that has all
            torn = {digest for digest, count in self._counts().items() if count != before[digest]}
            with self.store.catalogue.reading() as database:
                rows = database.execute("SELECT id, hash FROM items").fetchall()
            self.store.commit(Change(removed=[number for number, digest in rows if digest in torn]))
        found.segments, found.vectors = found.segments + here.segments, found.vectors + here.vectors
        found.problems += [f"parts: {problem}" for problem in here.problems]
        if here.mended:
            found.mended.append(
                f"damaged parts were removed; make them again with: secondsight update {self.owner.folder}"
            )
        return found

    def _counts(self) -> dict[bytes, int]:
        """How many parts each content has."""
        with self.store.catalogue.reading() as database:
            return dict(database.execute("SELECT hash, COUNT(*) FROM items GROUP BY hash").fetchall())

    def info(self) -> dict[str, Any]:
        """For ``facts.info``."""
        owners, width = self.current(), 2 if self.store.fact("dtype") == "float16" else 4
        with self.store.reading() as (database, snapshot):
            engine = fact(database, "engine", {})
            return {
                "vectors a picture": self.count,
                "vectors of parts": len(snapshot),
                "bytes a picture": self.count * width * snapshot.dim,
                "pictures without parts": len(owners.missing),
                "engine": facts.engine_facts(engine, snapshot),
            }

    def known(self, hashes: Sequence[bytes]) -> set[bytes]:
        """Which of these contents have their parts here."""
        with self.store.catalogue.reading() as database:
            find = "SELECT 1 FROM items WHERE hash = ? LIMIT 1"
            return {digest for digest in hashes if database.execute(find, (digest,)).fetchone()}

    def keep(self, made: dict[bytes, tuple[np.ndarray, np.ndarray]]) -> None:
        """Commit the parts of contents: vectors (p, dim) and boxes (p, 4) each. Those that are here stay."""
        here = self.known(list(made))
        fresh = {digest: parts for digest, parts in made.items() if digest not in here and len(parts[0])}
        records = [
            Record(hash=digest, columns=dict(zip(SIDES, map(float, box), strict=True)))
            for digest, (_, boxes) in fresh.items()
            for box in boxes
        ]
        if records:
            self.store.commit(Change(records=records, vectors=np.concatenate([v for v, _ in fresh.values()])))

    def tidy(self) -> None:
        """Remove the parts of contents that no item has any more."""
        owners = self.current()
        with self.store.reading() as (_, parts):
            held = np.isin(owners.content, owners.item_content) | (owners.content < 0)
            stray = parts.ids[~held]
        if len(stray):
            self.store.commit(Change(removed=stray.tolist()))


def opened(owner: Store) -> Parts | None:
    """The parts of an index; None where it keeps one vector a picture."""
    kept = owner.fact("parts")
    return Parts(owner, kept) if kept else None


def checked_count(count: int) -> int:
    """0 and 1 keep the whole alone."""
    if not 0 <= count <= MOST:
        raise ConfigError(f"--parts {count}: an index keeps 1 to {MOST} vectors a picture, its whole among them")
    return count if count > 1 else 0


def set_count(owner: Store, count: int) -> None:
    """Keep ``count`` vectors a picture from now on; parts in another number are thrown away, and must be made again."""
    count = checked_count(count)
    with owner.writer():
        before = owner.fact("parts") or {}
        if count == before.get("count", 0):
            return
        kept = {}
        if count:
            number = 1 + max((int(place.name) for place in (owner.folder / FOLDER).glob("[0-9]*")), default=0)
            kept = {"count": count, "folder": f"{FOLDER}/{number:06d}"}
            with files.replacing_directory(owner.folder / kept["folder"]) as fresh:
                Store.create(fresh, dim=owner.fact("dim"), dtype=owner.fact("dtype"), facts={})
            each_engine(engines.wish, owner, Parts(owner, kept), **owner.fact("wish", {}))
        owner.set_fact("parts", kept)
        owner.set_fact("calibrated", 0)  # the best of several scores means something else
        for place in (owner.folder / FOLDER).glob("*"):
            if f"{FOLDER}/{place.name}" != kept.get("folder"):
                shutil.rmtree(place, ignore_errors=True)


def each_engine(do: Callable[..., Any], owner: Store, parts: Parts | None, **wanted: Any) -> Any:
    """``engine.build`` or ``engine.wish`` for wholes and parts: they share the memory, and each has its collection."""
    if parts is None:
        return do(owner, **wanted)
    theirs, memory, engine = dict(wanted), wanted.get("memory"), wanted.get("engine")
    if memory is not None:
        theirs["memory"], wanted["memory"] = memory - memory // parts.count, memory // parts.count
    if engine is not None and engine != "faiss":
        theirs["engine"] = f"{engine.removesuffix('.db')}_parts" + (".db" if engine.endswith(".db") else "")
    do(parts.store, **theirs)
    return do(owner, **wanted)


def _padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    out = np.full((len(rows), max(map(len, rows), default=0)), -1, np.int64)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out
