"""Milvus as the engine: candidates come from a collection on a server, everything else stays as it is.

    milvus://HOST:PORT/COLLECTION      a Milvus server or cluster
    milvus:///PATH/FILE.db             Milvus Lite, in this process

The index's own segments stay the truth: a collection is filled from them, can be dropped and filled again, and moving
there or back embeds nothing. Uploads go in batches by ascending id; how far they have come is in the catalogue, and
sending a batch twice changes nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from secondsight.errors import ConfigError, DataError
from secondsight.extras import require
from secondsight.index.exact import Best
from secondsight.index.snapshot import Snapshot
from secondsight.index.store import Store
from secondsight.progress import track

BATCH = 1000
"""Vectors in one request."""

MOST = 16_384
"""Hits that Milvus gives for one query at most."""


@dataclass(frozen=True)
class Address:
    """Where a collection is: what pymilvus connects to, and its name there."""

    uri: str
    collection: str
    lite: bool


def parse(text: str) -> Address:
    """An address from words.

    >>> parse("milvus://localhost:19530/birds")
    Address(uri='http://localhost:19530', collection='birds', lite=False)
    """
    server = re.fullmatch(r"milvus://([^/:]+)(?::(\d+))?/(\w+)", text)
    if server:
        return Address(f"http://{server.group(1)}:{server.group(2) or 19530}", server.group(3), False)
    lite = re.fullmatch(r"milvus://(/.+\.db)", text)
    if lite:
        return Address(lite.group(1), "vectors", True)
    raise ConfigError(f"--engine {text!r}: write milvus://HOST:PORT/COLLECTION (letters, digits, _), or faiss")


class Milvus:
    """A collection that covers the items up to ``last``."""

    def __init__(self, address: str, last: int = -1, *, create: int | None = None):
        """``create``: the dimension, if the collection should be made where it is not there."""
        pymilvus = require("pymilvus", extra="milvus", purpose="an engine on Milvus")
        self.address, self.where, self.last = address, parse(address), last
        try:
            self.client = pymilvus.MilvusClient(self.where.uri, timeout=20)
            there = self.client.has_collection(self.where.collection)
            if not there and create is not None:
                self._create(pymilvus, create)
            elif not there:
                raise DataError(
                    f"{address}: the collection is not there; fill it with: secondsight update INDEX --engine …"
                )
            elif create is not None:
                self._check(create)
        except pymilvus.exceptions.MilvusException as error:
            raise DataError(f"{address}: {error.message}; is the server running, and is this its address?") from error

    def _create(self, pymilvus: Any, dim: int) -> None:
        schema = self.client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", pymilvus.DataType.INT64, is_primary=True)
        schema.add_field("vector", pymilvus.DataType.FLOAT_VECTOR, dim=dim)
        structure = self.client.prepare_index_params()
        if self.where.lite:
            structure.add_index("vector", index_type="FLAT", metric_type="IP", params={})
        else:
            structure.add_index("vector", index_type="HNSW", metric_type="IP", params={"M": 32, "efConstruction": 200})
        self.client.create_collection(
            self.where.collection, schema=schema, index_params=structure, consistency_level="Strong"
        )

    def _check(self, dim: int) -> None:
        fields = self.client.describe_collection(self.where.collection)["fields"]
        sizes = [f["params"].get("dim") for f in fields if f["name"] == "vector"]
        if [int(size) for size in sizes if size is not None] != [dim]:
            raise DataError(f"{self.address}: a collection of other vectors ({sizes}, not {dim}); choose another name")

    def search(self, queries: np.ndarray, k: int, snapshot: Snapshot, allowed: np.ndarray | None = None) -> Best:
        """Candidates for the k best; ``allowed``: only these ids, ascending."""
        count = min(MOST, 2 * k if allowed is None else max(100, 20 * k))
        options = {"metric_type": "IP", "params": {} if self.where.lite else {"ef": max(count, 128)}}
        found = self.client.search(
            self.where.collection, data=queries.tolist(), limit=count, search_params=options, output_fields=["id"]
        )
        best = Best.empty(len(queries), count)
        for row, hits in enumerate(found):
            best.ids[row, : len(hits)] = [hit["id"] for hit in hits]
            best.scores[row, : len(hits)] = [hit["distance"] for hit in hits]
        living = snapshot.ids[snapshot.alive] if allowed is None else allowed
        gone = ~np.isin(best.ids, living)
        best.ids[gone], best.scores[gone] = -1, -np.inf
        return best

    def upload(self, ids: np.ndarray, vectors: np.ndarray) -> None:
        """Send some items; those that are there already are replaced by the same."""
        rows = [{"id": int(i), "vector": v.tolist()} for i, v in zip(ids, vectors, strict=True)]
        self.client.upsert(self.where.collection, rows)

    def forget(self, living: np.ndarray) -> int:
        """Remove what is there and does not live any more; gives how many."""
        removed, start = 0, -1
        while True:
            page = self.client.query(
                self.where.collection,
                filter=f"id > {start}",
                output_fields=["id"],
                limit=MOST,
                consistency_level="Strong",
            )
            ids = np.sort(np.array([row["id"] for row in page], np.int64))
            if not len(ids):
                return removed
            gone = ids[~np.isin(ids, living)]
            for part in np.array_split(gone, max(1, -(-len(gone) // BATCH))):
                if len(part):
                    self.client.delete(self.where.collection, ids=part.tolist())
            removed += len(gone)
            if len(ids) < MOST:
                return removed
            start = int(ids[-1])

    def count(self) -> int:
        """Items in the collection."""
        return self.client.query(self.where.collection, output_fields=["count(*)"])[0]["count(*)"]

    def drop(self) -> None:
        self.client.drop_collection(self.where.collection)


def fill(store: Store, address: str) -> dict[str, Any]:
    """Make the collection hold what the index holds; goes on from where an upload was stopped. Gives its facts."""
    with store.reading() as (_, snapshot):
        alive = snapshot.ids[snapshot.alive]
    engine = Milvus(address, create=snapshot.dim)
    before = store.fact("uploads", {}).get(address, -1)
    if engine.count() == 0:  # someone dropped it
        before = -1
    todo = alive[alive > before]
    for start in track(range(0, len(todo), BATCH), "uploading"):
        ids = todo[start : start + BATCH]
        engine.upload(ids, snapshot.vectors(snapshot.positions(ids)))
        store.set_fact("uploads", store.fact("uploads", {}) | {address: int(ids[-1])})
    removed = engine.forget(alive)
    last = int(alive[-1]) if len(alive) else -1
    return {
        "structure": "milvus",
        "factory": "FLAT" if engine.where.lite else "HNSW",
        "reason": "asked for",
        "address": address,
        "last": last,
        "count": len(alive),
        "bytes a vector": 0,
        "candidates": 2,
        "effort": 128,
        "recall": None,
        "uploaded": len(todo),
        "removed": removed,
    }
