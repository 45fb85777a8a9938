"""``info``: what an index is, in facts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondsight.index import growth
from secondsight.index.catalogue import fact, restored
from secondsight.index.exact import bytes_a_number
from secondsight.index.runtime import made_by
from secondsight.index.snapshot import Snapshot

if TYPE_CHECKING:
    from secondsight.index.collection import Index
    from secondsight.model import Embedder


def info(index: Index) -> dict[str, Any]:
    """Size, model, bytes a vector, where the pictures came from, and what answers searches."""
    with index.store.reading() as (database, snapshot):
        labelled = database.execute("SELECT COUNT(label), COUNT(DISTINCT label) FROM items").fetchone()
        failures = database.execute("SELECT root, path, cause FROM failures ORDER BY root, path").fetchall()
        dtype, model = fact(database, "dtype"), fact(database, "model", {})
        origin = fact(database, "origin", "")
        engine = fact(database, "engine", {})
        meaning = fact(database, "calibration") or {}
        columns = [row[0] for row in database.execute("SELECT name FROM columns")]
    roots = {root.id: root for root in growth.roots(index.store)}
    width = 2 if dtype == "float16" else 4
    return {
        "kind": "index",
        "path": str(index.path),
        "items": len(snapshot),
        "dimension": snapshot.dim,
        "vectors": dtype,
        "bytes a vector": width * snapshot.dim,
        "segments": len(snapshot.segments),
        "removed, not yet compacted": len(snapshot.dead),
        "labels": {"items": labelled[0], "classes": labelled[1]},
        "columns": columns,
        "roots": [{"path": root.spec, "kind": root.kind} for root in roots.values()],
        "files set aside": len(failures),
        "why set aside": {roots[number].file(restored(name) or ""): cause for number, name, cause in failures},
        "model": {**model, "how it was made": origin} if origin else model,
        "runtime": made_by(index),
        "engine": engine_facts(engine, snapshot),
        "parts": None if (kept := index.parts) is None else kept.info(),
        "scores": _scores(meaning),
        "generation": snapshot.generation,
        "bytes on disk": _size(index.path),
    }


LEARNED = {
    "labels": "the labels of this collection",
    "chance": "chance in this collection, which has no labels",
    "validation": "the model's validation classes, for this collection has no labels",
}


def _scores(meaning: dict[str, Any]) -> dict[str, Any]:
    """What a probability means, where it was learned, and how far off it may be."""
    words = {key: meaning[key] for key in ("meaning", "cut", "pairs", "error") if meaning.get(key) is not None}
    return {"learned from": LEARNED[meaning["kind"]], **words} if meaning else {}


def engine_facts(facts: dict[str, Any], snapshot: Snapshot) -> dict[str, Any]:
    """What answers searches, and how good it is."""
    if "folder" not in facts and "address" not in facts:
        stored = max((segment.vectors.itemsize for segment in snapshot.segments), default=2)
        width = max(stored, bytes_a_number(int(snapshot.offsets[-1]) * snapshot.dim))
        return {"structure": "exact", "recall": 1.0, "bytes a vector": snapshot.dim * width}
    later = int((snapshot.ids > facts["last"]).sum())
    shown = {key: facts[key] for key in ("structure", "factory", "reason", "recall", "bytes a vector", "effort")}
    if facts.get("recall@1 on labels"):
        shown["recall@1 on labels"] = facts["recall@1 on labels"]
    shown |= {"address": facts["address"]} if "address" in facts else {}
    return shown | {"candidates a hit": facts["candidates"], "added since, compared one by one": later}


def _size(folder: Path) -> int:
    return sum(os.path.getsize(os.path.join(place, name)) for place, _, names in os.walk(folder) for name in names)


def description(model: Embedder) -> str:
    """The model in a few words."""
    return f"{model.backbone.name}, {model.config.pooling}, {model.dim} numbers an image"
