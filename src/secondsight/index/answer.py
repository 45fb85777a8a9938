"""How a search is answered: filter, candidates from an engine, exact scores, and why there are fewer than k."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from secondsight.calibration import Calibration
from secondsight.errors import ConfigError, UnknownName
from secondsight.index.approximate import load
from secondsight.index.catalogue import damaged, fact, item_checksum, restored, roots_of
from secondsight.index.exact import Best, Exact, ordered, rescored, scan
from secondsight.index.filters import Where, compiled, meant, words
from secondsight.index.hits import Hits
from secondsight.index.milvus import Milvus
from secondsight.index.parts import Parts
from secondsight.index.rerank import FIRST, expanded, k_reciprocal
from secondsight.index.scan import Root
from secondsight.index.snapshot import Snapshot
from secondsight.index.store import Store

SCANNED = 20_000_000
"""Numbers (vectors × dimension) that are compared one by one rather than through an engine's filter: ~10 ms."""


EXPANDED = 5
"""Nearest items that a query is expanded by."""


class Engine(Protocol):
    """Whoever proposes candidates: ``Approximate`` (faiss) and ``Milvus``. Their scores are not used."""

    @property
    def last(self) -> int:
        """The largest id that it may know; later items are compared one by one."""
        ...

    def search(self, queries: np.ndarray, k: int, snapshot: Snapshot, allowed: np.ndarray | None = None) -> Best:
        """Candidates for the k best of each query (q, dim): living items; ``allowed``: of these ids, ascending."""
        ...


@dataclass(frozen=True, eq=False)
class Known:
    """What a search needs of one generation."""

    number: int | None  # of the engine
    engine: Engine | None
    exact: Exact  # of the items that the engine does not know, or of all
    calibration: Calibration | None
    roots: dict[int, str]  # the folders that paths are relative to
    own: str  # in SQL: what the checksum of an item has to be
    parts: Parts | None  # where several vectors a picture are kept


class Searcher:
    """Answers queries about a store; several threads may ask at once."""

    def __init__(self, store: Store):
        self.store = store
        self._last: Known | None = None
        self._parts: Parts | None = None
        self._lock = threading.Lock()

    def search(
        self,
        queries: np.ndarray,
        k: int,
        *,
        where: Where | None = None,
        leave_out: Sequence[Sequence[int]] = (),
        exact: bool = False,
        rerank: str | None = None,
        named: bool = True,
    ) -> Hits:
        """The k best items of each row of ``queries`` (q, dim); query i leaves out the items ``leave_out[i]``.

        ``named``: with paths and labels; False for whoever looks the items up anyway.
        """
        if k < 1:
            raise ConfigError(f"k is how many hits are wanted, 1 or more; got {k}")
        with self.store.reading() as (database, snapshot):
            allowed = None
            if where:
                passing = np.array(compiled(where, database).ids(database), np.int64)
                allowed = snapshot.positions(passing)
            count = len(snapshot) if allowed is None else len(allowed)
            out = [list(ids) for ids in leave_out] or [[] for _ in queries]
            if rerank not in (None, "alpha-qe", "k-reciprocal"):
                raise UnknownName("re-ranking of a search", rerank, ["alpha-qe", "k-reciprocal"])
            extra = max((len(ids) for ids in out), default=0)
            known = self.known(database, snapshot)
            parts = known.parts
            if parts is not None and rerank is not None:
                raise ConfigError(f"--rerank {rerank} compares whole pictures, but this index also finds their parts")

            def found(queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
                best = self.candidates(known, queries, min(count, k + extra), allowed, exact)
                if parts is not None:
                    best = parts.widened(best, queries, min(count, k + extra), database, snapshot, allowed, exact)
                return self._judged(queries, best, out, snapshot, k, parts, database)

            if rerank == "alpha-qe":
                queries = _expanded(queries, *found(queries, EXPANDED), snapshot)
            scores, ids = found(queries, k if rerank != "k-reciprocal" else max(k, FIRST))
            if rerank == "k-reciprocal":
                scores, ids = _reciprocal(queries, scores, ids, snapshot, k)
            hits = self._hits(database, scores, ids, k, count, out, where, known, named)
            if where and not count and (hint := meant(where, database)):
                hits = replace(hits, why=tuple(f"{why}; {hint}" for why in hits.why))
            return hits if parts is None else parts.located(hits, queries, database, snapshot)

    @property
    def approximate(self) -> bool:
        """Whether the last search asked an engine, not every vector."""
        return self._last is not None and self._last.engine is not None

    def candidates(
        self,
        known: Known,
        queries: np.ndarray,
        count: int,
        allowed: np.ndarray | None = None,
        exact: bool = False,
    ) -> Best:
        """At least the ``count`` best; an engine may give more, to be judged by their exact scores."""
        snapshot = known.exact.snapshot
        if count == 0:
            return Best.empty(len(queries), 0)
        if allowed is not None and len(allowed) * snapshot.dim <= SCANNED:
            return scan(queries, count, snapshot, allowed)
        if known.engine is None:
            return known.exact.search(queries, count, allowed)
        if exact:
            return scan(queries, count, snapshot, np.flatnonzero(snapshot.alive) if allowed is None else allowed)
        found = known.engine.search(queries, count, snapshot, None if allowed is None else snapshot.ids[allowed])
        if known.exact.blocks:
            found = found.beside(known.exact.search(queries, count, allowed))
        if found.full:
            return found
        # A search through few cells may miss what a filter leaves: then everything that passes is compared.
        here = found.ids >= 0
        if not here.all() and (short := np.flatnonzero(here.sum(1) < count)).size:
            positions = np.flatnonzero(snapshot.alive) if allowed is None else allowed
            every = scan(queries[short], count, snapshot, positions)
            found = found.beside(Best.empty(len(queries), every.k))
            found.ids[short] = -1
            found.ids[short, : every.k] = every.ids
        return found

    def parts(self, kept: dict[str, Any]) -> Parts | None:
        """Where several vectors a picture are kept, as the catalogue says; opened once."""
        if (self._parts.kept if self._parts else {}) != kept:
            self._parts = Parts(self.store, kept) if kept else None
        return self._parts

    def known(self, database: sqlite3.Connection, snapshot: Snapshot) -> Known:
        """What a generation needs beside its vectors; read once for each."""
        with self._lock:
            if self._last is None or self._last.exact.snapshot is not snapshot:
                self._last = self._read(database, snapshot)
            return self._last

    def _read(self, database: sqlite3.Connection, snapshot: Snapshot) -> Known:
        before, facts = self._last, fact(database, "engine", {})
        if before is not None and before.number == facts.get("number"):
            engine = before.engine
        else:
            engine = _opened(facts, self.store)
        given = fact(database, "calibration")
        roots = roots_of(database)
        exact = Exact(snapshot) if before is None else before.exact
        return Known(
            facts.get("number"),
            engine,
            exact.refreshed(snapshot, 0 if engine is None else engine.last + 1),
            Calibration.from_dict(given) if given else None,
            {number: Root(number, restored(spec) or "", kind, False).base for number, spec, kind, _ in roots},
            item_checksum(database),
            self.parts(fact(database, "parts") or {}),
        )

    def neighbours(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Scores and ids (q, k) of the k best, and nothing else: for whoever asks about every item."""
        known = self._now()
        snapshot = known.exact.snapshot
        best = self.candidates(known, queries, min(k, len(snapshot)))
        return ordered(rescored(queries, best.ids, snapshot, sure=best.full), best.ids, k)

    def _now(self) -> Known:
        """What the last commit left. Where nothing has changed, asking for its number is all: vectors of a generation
        stay what they are, so no transaction has to be held while they are searched."""
        last = self._last
        if last is not None and last.exact.snapshot.generation == self.store.catalogue.generation():
            return last
        with self.store.reading() as (database, snapshot):
            return self.known(database, snapshot)

    @staticmethod
    def _judged(
        queries: np.ndarray,
        best: Best,
        out: list[list[int]],
        snapshot: Snapshot,
        k: int,
        parts: Parts | None = None,
        database: sqlite3.Connection | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        ids, sure = best.ids, best.full
        if any(out):
            ids, sure = ids.copy(), False
            for row, gone in zip(ids, out, strict=True):
                row[np.isin(row, gone)] = -1
        scores = rescored(queries, ids, snapshot, sure=sure)
        if parts is not None and database is not None:
            scores = np.maximum(scores, parts.best(queries, ids, database, snapshot)[0])
        return ordered(scores, ids, k)

    def _hits(self, database, scores, ids, k, count, out, where, known, named) -> Hits:
        full, cosines = _padded(ids, k, -1), _padded(np.clip(scores, -1, 1).astype(np.float32), k, np.nan)
        here = full >= 0
        cosines[~here] = np.nan
        table = np.full((*full.shape, 2), None, object)
        if named:
            rows = _rows(database, full, known)
            table = np.array([rows[i] for i in full.ravel().tolist()], object).reshape(table.shape)
        meaning = known.calibration
        chance = np.full(full.shape, np.nan, np.float32) if meaning is None else meaning(cosines)
        matches = here if meaning is None else here & (cosines >= meaning.cut)
        why = tuple(
            _why(n, k, count, len(gone), where, len(known.exact.snapshot))
            for n, gone in zip(here.sum(1).tolist(), out, strict=True)
        )
        said = "" if meaning is None else meaning.meaning
        return Hits(full, cosines, table[..., 0], table[..., 1], chance, matches, why, said)


def _opened(facts: dict[str, Any], store: Store) -> Engine | None:
    """The engine that the catalogue describes; None: every vector is compared."""
    if "address" in facts:
        return Milvus(facts["address"], facts["last"])
    return load(store.folder / facts["folder"], facts.get("checksum", "")) if "folder" in facts else None


def _expanded(queries: np.ndarray, scores: np.ndarray, ids: np.ndarray, snapshot: Snapshot) -> np.ndarray:
    near = np.zeros((*ids.shape, snapshot.dim), np.float32)
    near[ids >= 0] = snapshot.vectors(snapshot.positions(ids[ids >= 0]))
    return expanded(queries, near, np.where(ids >= 0, scores, 0.0))


def _reciprocal(
    queries: np.ndarray, scores: np.ndarray, ids: np.ndarray, snapshot: Snapshot, k: int
) -> tuple[np.ndarray, np.ndarray]:
    for query, score, row in zip(queries, scores, ids, strict=True):
        there = np.flatnonzero(row >= 0)[:FIRST]
        if len(there):
            order = there[k_reciprocal(query, snapshot.vectors(snapshot.positions(row[there])))]
            row[there], score[there] = row[order], score[order]
    return scores[:, :k], ids[:, :k]


def _padded(found: np.ndarray, k: int, nothing: float) -> np.ndarray:
    """(q, k) from (q, ≤ k)."""
    out = np.full((len(found), k), nothing, found.dtype)
    out[:, : found.shape[1]] = found
    return out


def _rows(database: sqlite3.Connection, ids: np.ndarray, known: Known) -> dict[int, tuple]:
    """Where items are and their labels; −1 is nobody."""
    found: dict[int, tuple] = {-1: (None, None)}
    wanted = list(set(ids.ravel().tolist()))
    for start in range(0, len(wanted), 500):
        some = wanted[start : start + 500]
        marks = ",".join("?" * len(some))
        for number, root, path, label, sound in database.execute(
            f"SELECT id, root, path, label, own IS {known.own} FROM items WHERE id IN ({marks})", some
        ):
            if not sound:
                raise damaged(f"item {number} of the index")
            name = restored(path)
            place = name if root is None or name is None else os.path.join(known.roots[root], name)
            found[number] = place, restored(label)
    return found


def _why(found: int, k: int, count: int, left_out: int, where: Where | None, total: int) -> str:
    """Why there are fewer than k hits; nothing to say when there are k."""
    if found >= k:
        return ""
    if total == 0:
        return "the index is empty; fill it: secondsight index FOLDER -o INDEX"
    if where and count == 0:
        return f"no item passes the filter {words(where)}"
    held = f"{count:,} of {total:,} items pass the filter" if where else f"the index has {total:,} items"
    return held + (f", {left_out} of them the examples themselves" if left_out else "")
