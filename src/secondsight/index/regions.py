"""Parts of pictures as queries, hits re-ranked by their links, and why a hit matches: what ``explain`` brings here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from secondsight import explain
from secondsight.data.loading.decode import DecodeError
from secondsight.errors import ConfigError, DataError
from secondsight.index.hits import Hits
from secondsight.index.queries import Queries
from secondsight.progress import track

if TYPE_CHECKING:
    from secondsight.explain import Explanation, Places
    from secondsight.index.collection import Index

FIRST = 100
"""Hits whose links are looked at: the network runs once for each."""

FEW, OTHERS = 100, 500
"""Fewer other pictures than the one do not say what is usual; more than the other do not say it better."""


def places(index: Index, query: Any) -> Places:
    """The places of a query: a picture in any form, or the id of an item that has a file."""
    if isinstance(query, (int, np.integer)):
        path = index.item(int(query)).path
        if path is None:
            raise DataError(f"{index.path}: item {query} came without a file, so there are no places to look at")
        query = path
    return explain.places(index.model(), query, device=index.device)


def regions(index: Index, queries: Sequence[Any], where: Any) -> np.ndarray:
    """(q, dim): the vector of one part of every query, a box (left, top, right, bottom) in fractions or a mask."""
    return np.stack([places(index, query).region(where) for query in queries])


def queries(index: Index, query: Any, where: Any) -> Queries:
    """As ``vectors_of``, of one part of each picture."""
    every = list(query) if isinstance(query, (list, tuple)) else [query]
    if any(isinstance(one, np.ndarray) and one.dtype.kind == "f" for one in every):
        raise ConfigError("a region is of a picture; a query that is a vector has none")
    own = [[int(one)] if isinstance(one, (int, np.integer)) else [] for one in every]
    return Queries(regions(index, every, where), own)


def why(index: Index, query: Any, id: int, *, region: Any = None) -> Explanation:
    """Why an item matches a query, or its ``region``; of an item that was found by a part, it explains that part."""
    asked, item = places(index, query), places(index, id)
    if region is not None:
        asked = asked.within(region)
    if index.parts is not None:
        best = max(item.parts(index.parts.count - 1), key=lambda part: float(part.vector @ asked.vector))
        if best.vector @ asked.vector > item.vector @ asked.vector:
            item = item.only(best.mask)
    itself = int(query) if isinstance(query, (int, np.integer)) else _found(index, query)
    return explain.pair(index.model(), asked, item, others=others(index, [itself, id]), device=index.device)


def others(index: Index, but: Sequence[int | None]) -> np.ndarray | None:
    """(n, dim): pictures spread over the index, beside which a match can be set apart; None where there are too few.

    Args:
        index: The collection.
        but: The ids of the match itself.
    """
    ids = np.setdiff1d(index.ids(), [id for id in but if id is not None])
    if len(ids) < FEW:
        return None
    return index.vectors(ids[np.linspace(0, len(ids) - 1, min(len(ids), OTHERS)).astype(int)])


def _found(index: Index, query: Any) -> int | None:
    return index.find(os.fspath(query)) if isinstance(query, (str, os.PathLike)) else None


def by_links(index: Index, queries: Sequence[Any], hits: Hits, k: int) -> Hits:
    """Of ``FIRST`` hits a query, the k with the most similarity and agreement in space. Scores stay cosines.

    A hit whose file cannot be read is ranked by its similarity alone.
    """
    order = np.zeros((len(queries), min(k, hits.ids.shape[1])), np.int64)
    for row, query in enumerate(queries):
        here = places(index, query)
        score = np.where(hits.ids[row] < 0, -np.inf, hits.scores[row]).astype(np.float64)
        for column in track(np.flatnonzero(hits.ids[row] >= 0), "links"):
            path = hits.paths[row, column]
            if path is None:
                continue
            try:
                score[column] = explain.rerank_score(here, explain.places(here.model, path, device=index.device))
            except DecodeError:
                continue
        order[row] = np.argsort(-score, kind="stable")[: order.shape[1]]
    taken = {
        name: np.take_along_axis(getattr(hits, name), order, 1)
        for name in ("ids", "scores", "paths", "labels", "probability", "matches")
    }
    boxes = None if hits.boxes is None else np.take_along_axis(hits.boxes, order[..., None], 1)
    # With FIRST asked for and fewer there, ``hits`` says why; of these k perhaps none is missing.
    there = (taken["ids"] >= 0).sum(1).tolist()
    why = tuple("" if count >= k else said for count, said in zip(there, hits.why, strict=True))
    return replace(hits, **taken, boxes=boxes, why=why)
