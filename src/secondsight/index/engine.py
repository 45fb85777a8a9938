"""The engine of an index: built from its vectors, named by its catalogue, and built again when it has fallen behind."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from secondsight.errors import UnknownName
from secondsight.index import approximate, milvus
from secondsight.index.catalogue import labels_of, set_fact
from secondsight.index.exact import ordered, rescored, scan
from secondsight.index.store import Store
from secondsight.index.structures import EXACT, KINDS, choose

RECALL = 0.99
"""Mean recall@10 that a search is tuned to, unless another is asked for."""

LATE = EXACT // 4
"""Numbers that may have been added since the engine was built and are compared one by one, before it is built again."""


def build(
    store: Store,
    *,
    memory: int | None = None,
    recall: float | None = None,
    structure: str | None = None,
    engine: str | None = None,
    say: Callable[[str], None] = lambda words: None,
) -> dict[str, Any]:
    """Build the engine that is asked for, or that fits; gives its facts. Readers go on with the old one meanwhile."""
    with store.writer():
        wanted = wish(store, memory=memory, recall=recall, structure=structure, engine=engine)
        number = store.fact("engine", {}).get("number", 0) + 1
        if wanted.get("engine", "faiss") != "faiss":
            return _publish(store, milvus.fill(store, wanted["engine"]), number)
        with store.reading() as (_, snapshot):
            chosen = choose(len(snapshot), snapshot.dim, memory=wanted.get("memory"), wanted=wanted.get("structure"))
        facts: dict[str, Any] = {"structure": chosen.name, "reason": chosen.reason}
        if chosen.name != "exact" and len(snapshot):
            made = approximate.build(snapshot, chosen, recall=wanted.get("recall", RECALL), say=say)
            made.facts["recall@1 on labels"] = _on_labels(store, made)
            folder = f"{approximate.FOLDER}/{number:06d}"
            facts = {**made.facts, "folder": folder, "checksum": approximate.save(made, store.folder / folder)}
        return _publish(store, facts, number)


def _on_labels(store: Store, made: approximate.Approximate, *, most: int = 1000) -> dict[str, float]:
    """Recall@1 of items that ask for others of their label, by every vector and by this engine; {} without labels."""
    with store.reading() as (database, snapshot):
        rows = database.execute("SELECT id FROM items WHERE label IS NOT NULL ORDER BY id")
        known = np.fromiter((row[0] for row in rows), np.int64)
        if len(known) < 2:
            return {}
        asking = np.sort(np.random.default_rng(1).permutation(known)[:most])
        queries, positions = snapshot.vectors(snapshot.positions(asking)), snapshot.positions(known)
        answers = {
            "exact": scan(queries, 2, snapshot, positions).ids,
            "engine": made.search(queries, 2, snapshot, None if len(known) == len(snapshot) else known).ids,
        }
        wanted, right = np.array(labels_of(database, asking), object), {}
        for name, ids in answers.items():
            ids = np.where(ids == asking[:, None], -1, ids)
            first = ordered(rescored(queries, ids, snapshot), ids, 1)[1][:, 0]
            right[name] = round(float((np.array(labels_of(database, first), object) == wanted).mean()), 4)
    return {**right, "queries": len(asking)}


def _publish(store: Store, facts: dict[str, Any], number: int) -> dict[str, Any]:
    with store.catalogue.writing() as database:
        set_fact(database, "engine", {**facts, "number": number})
    _clean(store, number)
    return facts


def wish(store: Store, **given: Any) -> dict[str, Any]:
    """Remember what is wanted: ``memory``, ``recall``, ``structure``, ``engine`` (None: as before); gives all of it."""
    before = store.fact("wish", {})
    wanted = before | {key: value for key, value in given.items() if value is not None}
    check_wish(wanted)
    if wanted != before:
        store.set_fact("wish", wanted)
    return wanted


def check_wish(wanted: Mapping[str, Any]) -> None:
    """Names that exist, an address that is one."""
    if wanted.get("structure") not in (None, "exact", *KINDS):
        raise UnknownName("structure", wanted["structure"], ["exact", *KINDS])
    if wanted.get("engine") not in (None, "faiss"):
        milvus.parse(wanted["engine"])


def maintain(store: Store) -> None:
    """Build the engine if there should be one, or again if too much has been added since."""
    facts, wanted = store.fact("engine", {}), store.fact("wish", {})
    with store.reading() as (_, snapshot):
        late = int((snapshot.ids > facts.get("last", -1)).sum())
        fits = choose(len(snapshot), snapshot.dim, memory=wanted.get("memory"), wanted=wanted.get("structure"))
    if wanted.get("engine", "faiss") != "faiss":
        if late or facts.get("address") != wanted["engine"]:
            build(store)
        return
    if fits.name == "exact" and "folder" not in facts:
        return
    if wanted.get("structure") == "exact":
        return
    if "folder" not in facts or late * snapshot.dim > max(LATE, len(snapshot) * snapshot.dim // 8):
        build(store)


def _clean(store: Store, number: int) -> None:
    """Remove engines before the last one: that may still be in use by a reader."""
    for folder in (store.folder / approximate.FOLDER).glob("*"):
        if folder.name < f"{number - 1:06d}":
            shutil.rmtree(folder, ignore_errors=True)
