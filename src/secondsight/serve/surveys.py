"""The collection as a whole: its map, its codewords, its duplicates. Each takes a while, once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI
from fastapi.responses import JSONResponse

from secondsight import explain
from secondsight.data.imageset import ImageSet
from secondsight.errors import ConfigError
from secondsight.index import Index
from secondsight.serve import answers, layout
from secondsight.serve.answers import Trouble
from secondsight.serve.requests import DismissRequest, Which
from secondsight.serve.service import Gone, Service, chosen, described
from secondsight.terminal import plain

SAMPLE = 150  # pictures that codewords are shown on
GROUPS = 200  # of duplicates that are sent

WAIT: dict[int | str, dict[str, Any]] = {
    202: {
        "description": "Being computed, `done` of `total` where that is known: come back after `Retry-After` seconds."
    },
    404: {"model": Trouble},
    422: {"model": Trouble},
}


class Once:
    """Something slow that is computed in the background and kept; who asks meanwhile is told to wait.

    Args:
        compute: Gives the value; told how to say what is done, and of how much.
    """

    def __init__(self, compute: Callable[[Callable[[int, int], None]], Any]):
        self.compute = compute
        self.progress: tuple[int, int] | None = None
        self.known: int | None = None  # what the value is of
        self.value: Any = None
        self._task: asyncio.Task[Any] | None = None

    async def get(self, service: Service) -> Any:
        """The value for the items that there are; None while it is being computed."""
        items = await service.run(lambda: hash(service.index.ids().tobytes()))
        if self._task is None and self.known != items:
            self._task = asyncio.create_task(self._run(items))
        if self._task is not None:
            done, _ = await asyncio.wait([self._task], timeout=0.5)
            if not done:
                return None
            task, self._task = self._task, None
            task.result()
        return self.value

    async def _run(self, items: int) -> None:
        # On a thread of its own: searches go on.
        self.progress = None
        self.value = await asyncio.to_thread(self.compute, self._said)
        self.known = items

    def _said(self, done: int, total: int) -> None:
        self.progress = done, total

    async def answer(self, service: Service) -> JSONResponse:
        """The value as it is sent; 202 and how far it is while it is computed."""
        return _answer(await self.get(service), self.progress)


def install(app: FastAPI, services: Sequence[Service]) -> None:
    """Add the addresses."""
    maps = [Once(lambda _, index=service.index: _map(index)) for service in services]
    words = [Once(lambda said, service=service: _codewords(service, said)) for service in services]
    groups = [Once(lambda _, index=service.index: index.duplicates()) for service in services]

    def which(number: int, every: Sequence[Once]) -> tuple[Service, Once]:
        return chosen(services, number), every[number]

    @app.get(
        "/api/map",
        response_model=answers.MapAnswer,
        responses=WAIT,
        summary="Where the map puts the items; 202 while it is computed",
    )
    async def map_(collection: Which = 0) -> JSONResponse:
        service, once = which(collection, maps)
        return await once.answer(service)

    @app.get(
        "/api/codewords",
        response_model=answers.CodewordsAnswer,
        responses=WAIT,
        summary="What each codeword looks at; 202 while it is computed",
    )
    async def codewords(collection: Which = 0) -> JSONResponse:
        service, once = which(collection, words)
        return await once.answer(service)

    @app.get(
        "/api/duplicates",
        response_model=answers.DuplicatesAnswer,
        responses=WAIT,
        summary="Groups of pictures that are the same; 202 while they are looked for",
    )
    async def duplicates(collection: Which = 0) -> JSONResponse:
        service, once = which(collection, groups)
        found = await once.get(service)
        return _answer(None if found is None else await service.run(_groups, service, found))

    @app.post(
        "/api/dismiss",
        response_model=answers.DismissAnswer,
        responses={404: {"model": Trouble}},
        summary="Remember that these items are no duplicates of each other",
    )
    async def dismiss(asked: DismissRequest) -> JSONResponse:
        service, once = which(asked.collection, groups)
        known = await service.run(service.items, asked.ids)
        if len(known) != len(set(asked.ids)):
            raise Gone(f"some of {sorted(asked.ids)[:5]} are no items")
        await service.run(service.index.dismiss, asked.ids)
        gone = set(asked.ids)
        once.value = [group for group in once.value or [] if set(group.ids) != gone]
        return JSONResponse({"dismissed": sorted(gone)})


def _answer(value: Any, progress: tuple[int, int] | None = None) -> JSONResponse:
    if value is None:
        far = {} if progress is None else {"done": progress[0], "total": progress[1]}
        return JSONResponse({"computing": True, **far}, 202, {"retry-after": "1"})
    return JSONResponse(value)


def _map(index: Index) -> dict[str, Any]:
    ids, places = layout.current(index) or layout.computed(index)
    known = {item.id: item.label for item in index.items()}
    labels = sorted({label for label in known.values() if label is not None})
    numbers = {label: i for i, label in enumerate(labels)}
    return {
        "ids": ids.tolist(),
        "places": np.round(places.astype(np.float64), 5).tolist(),
        "labels": [plain(label) for label in labels],
        "label": [numbers.get(known.get(id) or "", -1) for id in ids.tolist()],
    }


def _groups(service: Service, found: Sequence[Any]) -> dict[str, Any]:
    some = found[:GROUPS]
    items = service.items([id for group in some for id in group.ids])
    return {
        "total": len(found),
        "groups": [
            {
                "tier": group.tier,
                "score": float(group.score),
                "items": [described(items[id]) for id in group.ids if id in items],
            }
            for group in some
        ],
    }


def _codewords(service: Service, said: Callable[[int, int], None]) -> dict[str, Any]:
    from secondsight.serve.torch_cores import limited

    model = service.model()
    found = [item for item in service.index.items() if item.path is not None]
    if not found:
        raise ConfigError("no item has a picture to look at")
    step = max(1, len(found) // SAMPLE)
    chosen = found[::step][:SAMPLE]
    labels = sorted({item.label for item in chosen if item.label is not None})
    numbers = {label: i for i, label in enumerate(labels)}
    known = bool(labels) and all(item.label is not None for item in chosen)
    images = ImageSet(
        "items",
        Path("/"),
        tuple(str(Path(item.path or "").absolute()) for item in chosen),
        labels=np.array([numbers[str(item.label)] for item in chosen]) if known else None,
        classes=tuple(labels) if known else (),
    )
    with limited(service.network().cores):  # with all of them it waits for those that search
        survey = explain.codewords(model, images, sample=len(images), maps=0, looked=said)
    ids = {str(images.path(i)): item.id for i, item in enumerate(chosen)}
    return {
        "images": survey.images,
        "codewords": [
            {
                "number": word.number,
                "usage": round(word.usage, 5),
                "carried": round(word.carried, 5),
                "patches": [
                    {"jpeg": patch.jpeg, "weight": round(patch.weight, 4), "id": ids.get(patch.name)}
                    for patch in word.patches[:8]
                ],
            }
            for word in survey.words
        ],
    }
