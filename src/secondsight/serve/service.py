"""One collection as the server sees it: from what is asked to hits, explanations and pictures."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from secondsight import explain
from secondsight.data.loading.decode import DecodeError
from secondsight.errors import ConfigError, DataError, SecondsightError
from secondsight.explain.geometry import Box
from secondsight.index import Index, runtime
from secondsight.index.filters import Where
from secondsight.index.hits import Hits, Item
from secondsight.index.queries import checked, combined
from secondsight.index.regions import others
from secondsight.serve.decoders import Decoders
from secondsight.serve.matcher import Matcher, Question
from secondsight.serve.network import NetworkQueue
from secondsight.serve.request_limits import Limits
from secondsight.serve.requests import KnownPicture, SearchRequest, box_of, where_of
from secondsight.serve.shelf import PREVIEW, WITHOUT_FEATURES, Seen, Shelf, screen_size
from secondsight.terminal import plain

T = TypeVar("T")
CHUNK = 400  # items that one statement asks for


class Gone(SecondsightError):
    """An upload that is no longer kept, or an item that is not there."""


class Busy(SecondsightError):
    """More work waits than will be done soon."""


def chosen(services: Sequence[Service], number: int) -> Service:
    """The collection of that number."""
    if number >= len(services):
        raise Gone(f"there is no collection {number}; {len(services)} are served, from 0 on")
    return services[number]


class Service:
    """An index, its model, and what is kept of recent pictures."""

    def __init__(self, index: Index, decoders: Decoders, limits: Limits):
        self.index = index
        self.limits = limits
        self.decoders = decoders
        self.shelf = Shelf(limits.kept)
        self.waiting = 0
        self.matcher = Matcher(index, self.answers, self.missing)
        self._network: NetworkQueue | None = None
        self._threads = ThreadPoolExecutor(4, "search")
        self._making = threading.Lock()

    # The model

    def network(self) -> NetworkQueue:
        """The model behind its queue; an error that says why there is none."""
        with self._making:
            if self._network is None:
                self._network = self._made()
            return self._network

    def _made(self) -> NetworkQueue:
        runtime.ready(self.index)
        if self.index.exported is not None:
            from secondsight.serve.exported_file import ExportedFile

            return ExportedFile(self.index.exported, batch=self.limits.batch)
        from secondsight.serve.own_model import OwnModel

        model, device = self.index.model(), self.index.device
        return OwnModel(model, batch=self.limits.batch, device=device, runtime=self.index.run)

    def model(self) -> Any:
        """The model itself, which can explain; an error where an exported file runs in its place."""
        model = self.network().model
        if model is None:
            raise ConfigError(WITHOUT_FEATURES)
        return model

    def warm(self) -> None:
        """Load the model before someone waits for it."""
        if self.model_trouble() is None:
            network = self.network()
            network.run([np.zeros((network.size, network.size, 3), np.uint8)], ["nothing"])

    def model_trouble(self) -> str | None:
        """Why pictures cannot be embedded here; None if they can."""
        try:
            self.network()
        except (SecondsightError, OSError) as error:
            return str(error).replace(str(self.index.path), self.index.path.name)
        return None

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Away from the event loop, on one of a few threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: function(*arguments))

    # Pictures

    async def embedded(self, source: bytes | str, name: str, *, with_preview: bool = False) -> Seen:
        """Decode in another process, embed in the next batch."""
        if self.waiting >= self.limits.pictures:
            raise Busy("the server is busy with other pictures")
        self.waiting += 1
        try:
            network = self._network or await self.run(self.network)
            pixels = await asyncio.wrap_future(self.decoders.pixels(source, network.target, name))
            future = asyncio.wrap_future(network.submit(pixels, name))
            shown = await self.run(screen_size, pixels) if with_preview and max(pixels.shape) > PREVIEW else pixels
            kept = await future
            kept.pixels = shown if with_preview else None
            return kept
        finally:
            self.waiting -= 1

    async def upload(self, content: bytes) -> tuple[str, Seen]:
        kept = await self.embedded(content, "the upload", with_preview=True)
        return self.shelf.add(kept), kept

    async def kept(self, picture: KnownPicture) -> Seen:
        """A picture that the server knows, after the network: from the shelf, or embedded now."""
        if (picture.id is None) == (picture.query is None):
            raise ConfigError("a picture is an item (id) or an upload (query): give one of the two")
        if picture.query is not None:
            found = self.shelf.get(picture.query)
            if found is None:
                raise Gone("this upload is no longer kept; send the picture again")
            return found
        item = await self.run(self.item, picture.id)
        found = self.shelf.get(item.id)
        if found is None:
            if item.path is None:
                raise DataError(f"item {item.id} came as a vector without a picture")
            try:
                found = await self.embedded(item.path, f"item {item.id}")
            except DecodeError as error:
                raise Gone(f"{error}; was the file moved? Run: secondsight update") from error
            self.shelf.put(item.id, found)
        return found

    async def vector(self, picture: KnownPicture) -> np.ndarray:
        """(D,) of a picture or of a part of it."""
        if picture.box is None and picture.query is None and picture.id is not None:
            return (await self.run(self.vectors, [picture.id]))[0]
        kept, box = await self.kept(picture), box_of(picture.box)
        if box is None:
            return kept.vector
        return await self.run(kept.vector_of, box)

    # Questions

    async def search(self, asked: SearchRequest, upload: bytes | None = None) -> dict[str, Any]:
        """The answer of /api/search."""
        start, spent = time.perf_counter(), {}
        given = [asked.id is not None, asked.query is not None, asked.vector is not None, upload is not None]
        if sum(given) > 1 or (not any(given) and not asked.like and not asked.unlike):
            raise ConfigError("look for one of: a file, id, query or vector; or give examples in like and unlike")
        where, name, kept = where_of(asked.where), asked.query, None
        if upload is not None:
            name, kept = await self.upload(upload)
        elif asked.query is not None:
            kept = await self.kept(KnownPicture(query=asked.query))
        if asked.id is not None and not (asked.box or asked.like or asked.unlike or where):
            return await self.nearest(asked.id, asked.k, start)
        base = None
        if asked.vector is not None:
            base = np.asarray(asked.vector, np.float32)
        elif name is not None or asked.id is not None:
            base = await self.vector(KnownPicture(id=asked.id, query=name, box=asked.box))
        examples = [
            [KnownPicture(id=p) if isinstance(p, int) else p for p in group] for group in (asked.like, asked.unlike)
        ]
        liked, unliked = [[await self.vector(p) for p in group] for group in examples]
        spent["embed"] = _milliseconds(start)
        own = {id for id in (asked.id, *(p.id for group in examples for p in group)) if id is not None}
        query = self.query(base, liked, unliked)
        if where is None:
            hits = await self.matcher.ask(Question(asked.k, vector=query, out=sorted(own)))
        else:
            hits = await self.run(self._filtered, query, asked.k, where, sorted(own))
        spent["all"] = _milliseconds(start)
        seen = None if kept is None else [round(side, 6) for side in kept.frame.seen]
        return hits | {"query": name, "seen": seen, "milliseconds": spent}

    async def nearest(self, id: int, k: int, start: float) -> dict[str, Any]:
        """What is most like an item: the shortest way through the server."""
        hits = await self.matcher.ask(Question(k, id=id, out=[id]))
        return hits | {"query": None, "seen": None, "milliseconds": {"embed": 0.0, "all": _milliseconds(start)}}

    def query(self, base: np.ndarray | None, liked: list[np.ndarray], unliked: list[np.ndarray]) -> np.ndarray:
        """(D,) of unit length: what is looked for, moved towards the examples and away from the others."""
        if base is None:
            empty = np.zeros((0, self.index.dim), np.float32)
            return combined(np.array(liked) if liked else empty, np.array(unliked) if unliked else empty)
        query = checked(base.reshape(1, -1), self.index.dim, "query vectors")[0]
        if not liked and not unliked:
            return query
        return explain.refined(query, np.array(liked) if liked else None, np.array(unliked) if unliked else None)

    def _filtered(self, query: np.ndarray, k: int, where: Where, out: Sequence[int]) -> dict[str, Any]:
        k = min(k, max(1, len(self.index)))
        return self.answers(self.index.searcher.search(query[None], k, where=where, leave_out=[out], named=False))[0]

    def answers(self, hits: Hits) -> list[dict[str, Any]]:
        """What is answered to each query, with everything that the catalogue knows about its hits."""
        rows = [hits.row(query) for query in range(len(hits))]
        items = self.items(sorted({hit["id"] for row in rows for hit in row}))
        described_items = {id: described(item) for id, item in items.items()}
        return [
            {
                "hits": [hit | described_items[hit["id"]] for hit in row if hit["id"] in items],
                "meaning": hits.meaning,
                "why": hits.why[number] or None,
            }
            for number, row in enumerate(rows)
        ]

    def missing(self, id: int) -> Gone:
        return Gone(f"there is no item {id}; ids are what a search shows, and are not used again")

    async def explain(self, a: KnownPicture, b: KnownPicture, most: int) -> dict[str, Any]:
        """Both pictures, place by place. A part of a picture is explained as what it is: its places alone."""
        first, second = await self.kept(a), await self.kept(b)
        shown = (first, box_of(a.box)), (second, box_of(b.box))
        return await self.run(self._explain, shown, [a.id, b.id], most)

    def _explain(self, shown: Sequence[tuple[Seen, Box | None]], ids: list[int | None], most: int) -> dict[str, Any]:
        a, b = (seen.part(box) for seen, box in shown)
        why = explain.pair(self.model(), a, b, others=others(self.index, ids))
        return why.to_dict(most=most) | {"misses": why.misses}

    async def parts(self, picture: KnownPicture, count: int) -> list[dict[str, Any]]:
        kept = await self.kept(picture)
        found = await self.run(kept.places.parts, count)
        return [
            {"box": [round(min(max(s, 0.0), 1.0), 5) for s in p.box], "strength": round(p.strength, 4)} for p in found
        ]

    # Items

    def item(self, id: int | None) -> Item:
        found = self.items([int(id or 0)])
        if id not in found:
            raise self.missing(id or 0)
        return found[int(id or 0)]

    def items(self, ids: Sequence[int]) -> dict[int, Item]:
        """Those of ``ids`` that are there, a few hundred a statement."""
        starts = range(0, len(ids), CHUNK)
        return {item.id: item for i in starts for item in self.index.items(where={"id": list(ids[i : i + CHUNK])})}

    def vectors(self, ids: Sequence[int]) -> np.ndarray:
        try:
            return self.index.vectors(ids)
        except DataError as error:
            raise Gone(str(error).removeprefix(f"{self.index.path}: ")) from error

    async def picture(self, id: int, side: int, *, keep: bool) -> bytes:
        """A JPEG of an item, drawn by a decoder."""
        item = await self.run(self.item, id)
        if item.path is None:
            raise Gone(f"item {id} came as a vector without a picture")
        folder = str(self.index.path) if keep else None
        try:
            return await asyncio.wrap_future(self.decoders.thumbnail(item.path, id, side, folder, f"item {id}"))
        except DecodeError as error:
            raise Gone(f"item {id} cannot be shown: {error.cause}") from error

    def close(self) -> None:
        self.matcher.close()
        if self._network is not None:
            self._network.close()
        self._threads.shutdown(wait=False, cancel_futures=True)


def _milliseconds(start: float) -> float:
    return round(1000 * (time.perf_counter() - start), 2)


def described(item: Item) -> dict[str, Any]:
    """An item for JSON. Of its path only what stands in the collection: where that is, is nobody's business."""
    return {
        "id": item.id,
        "label": None if item.label is None else plain(item.label),
        "path": None if item.name is None else plain(_inside(item.name)),
        "width": item.width,
        "height": item.height,
        "columns": {plain(key): _for_json(value) for key, value in item.columns.items()},
    }


def _inside(name: str) -> str:
    """A path as it stands in the collection; of a whole one, which a table may give, the file and its folder."""
    return str(Path(*Path(name).parts[-2:])) if os.path.isabs(name) else name


def _for_json(value: Any) -> Any:
    """A value of the user's table for JSON, which knows no NaN."""
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, (int, float)) else plain(str(value))
