"""An engine of faiss: candidates from a structure that can be thrown away and built again from the vectors."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from xxhash import xxh3_128

from secondsight import files
from secondsight.errors import DataError
from secondsight.index.exact import Best, bitmap, rescored, scan, search_arrays
from secondsight.index.segments import CHECKED
from secondsight.index.snapshot import Snapshot
from secondsight.index.structures import Structure

FOLDER = "engine"
HELD_OUT = 400
"""Vectors that are kept apart while the search is tuned: half to tune it on, half to say how good it is."""

_PIECE = 65536
_TAUGHT = 10_000  # vectors that codes are learned from, at least, where there are so many


@dataclass(frozen=True, eq=False)
class Approximate:
    """A faiss index over the items ``ids``, and how it is asked."""

    index: faiss.Index
    ids: np.ndarray  # (m,) int64: the item of every row of the index
    facts: dict[str, Any]

    @property
    def last(self) -> int:
        """The largest id it may cover; later items are compared one by one."""
        return self.facts["last"]

    def search(self, queries: np.ndarray, k: int, snapshot: Snapshot, allowed: np.ndarray | None = None) -> Best:
        """Candidates for the k best: living items it covers; ``allowed``: only these ids, ascending."""
        mask = self._living(snapshot)
        if allowed is not None:
            chosen = np.zeros(len(self.ids), bool)
            chosen[self.rows(allowed)] = True
            mask = chosen if mask is None else chosen & mask
        # Where a filter leaves one in ten, ten times as many cells or nodes must be seen to meet as many that pass.
        share = 1.0 if mask is None else max(float(mask.mean()), 1e-3)
        effort = math.ceil(self.facts["effort"] / share)
        least = self.facts["recall"]["k"]  # fewer candidates than it was tuned with would miss the first hit more often
        return self._candidates(queries, max(k, least) * self.facts["candidates"], effort, mask)

    def _living(self, snapshot: Snapshot) -> np.ndarray | None:
        """Which rows belong to items that live; None for all. Kept for as long as the snapshot stays the same."""
        kept = self.__dict__.get("_kept")
        if kept is None or kept[0] != snapshot.generation:
            gone = self.rows(snapshot.dead)
            # An item that is in no segment any more is gone, too: it was removed and its segment compacted.
            gone = np.union1d(gone, np.flatnonzero(~np.isin(self.ids, snapshot.ids)))
            mask = None
            if len(gone):
                mask = np.ones(len(self.ids), bool)
                mask[gone] = False
            kept = self.__dict__["_kept"] = snapshot.generation, mask
        return kept[1]

    @cached_property
    def _order(self) -> np.ndarray:
        return np.argsort(self.ids, kind="stable")

    def rows(self, wanted: np.ndarray) -> np.ndarray:
        """The rows of the items ``wanted``; those it does not cover are left out."""
        if not len(self.ids) or not len(wanted):
            return np.zeros(0, np.int64)
        found = np.searchsorted(self.ids, wanted, sorter=self._order)
        found = self._order[np.minimum(found, len(self.ids) - 1)]
        return found[self.ids[found] == wanted]

    def _candidates(self, queries: np.ndarray, count: int, effort: int, mask: np.ndarray | None = None) -> Best:
        if self.facts["structure"] == "hnsw":
            effort = max(effort, count)
        parameters = self._plain(effort) if mask is None else self._parameters(effort, sel=bitmap(mask))
        count = min(count, len(self.ids))
        scores, rows = search_arrays(self.index, np.ascontiguousarray(queries, np.float32), count, parameters)
        ids = self.ids[rows]
        full = rows[:, -1].min(initial=0) >= 0  # where there are fewer, the last places are empty
        if not full:
            ids[rows < 0] = -1
        if mask is not None:  # whatever faiss does with a selector, only allowed ones come out
            ids[~mask[rows]] = -1
        return Best(count, scores, ids, full and mask is None)

    def _parameters(self, effort: int, **chosen: Any) -> faiss.SearchParameters:
        if self.facts["structure"] == "hnsw":
            return faiss.SearchParametersHNSW(efSearch=effort, **chosen)  # pyright: ignore
        return faiss.SearchParametersIVF(nprobe=effort, **chosen)  # pyright: ignore[reportCallIssue]

    @cached_property
    def _plain(self) -> Callable[[int], faiss.SearchParameters]:
        return lru_cache(maxsize=16)(self._parameters)


def build(
    snapshot: Snapshot, structure: Structure, *, recall: float, k: int = 10, say: Callable[[str], None] = print
) -> Approximate:
    """Build the structure over all living vectors and tune its search to ``recall`` on vectors kept apart."""
    alive = np.flatnonzero(snapshot.alive)
    rng = np.random.default_rng(0)
    apart = np.sort(rng.permutation(len(alive))[: min(HELD_OUT, len(alive) // 10)])
    rest = np.delete(alive, apart)
    start = time.monotonic()
    index = faiss.index_factory(snapshot.dim, structure.factory, faiss.METRIC_INNER_PRODUCT)
    if not index.is_trained:
        sample = np.sort(rng.permutation(rest)[: max(_TAUGHT, 40 * getattr(index, "nlist", 0))])
        _quieten(index)
        index.train(snapshot.stored(sample))
    _add(index, snapshot, rest)
    _halve(index)
    facts: dict[str, Any] = {"structure": structure.name, "factory": structure.factory, "reason": structure.reason}
    made = Approximate(index, snapshot.ids[rest], facts)
    queries = snapshot.vectors(alive[apart])
    tuning = time.process_time()
    facts |= _tuned(made, queries, snapshot, rest, structure, recall, k)
    facts["tuning seconds"] = round(time.process_time() - tuning, 1)  # of the processor
    _add(index, snapshot, alive[apart])
    ids = snapshot.ids[np.concatenate([rest, alive[apart]])]
    facts |= {
        "last": int(snapshot.ids[-1]),
        "count": len(ids),
        "bytes a vector": structure.bytes,
        "seconds": round(time.monotonic() - start, 1),
    }
    say(
        f"{structure.name} built in {facts['seconds']:.0f} s; recall@{k} {facts['recall']['mean']:.3f}, "
        f"worst percentile {facts['recall']['worst percentile']:.2f}"
    )
    return Approximate(index, ids, facts)


def _quieten(index: faiss.Index) -> None:
    """A small collection has few vectors a cell; faiss would say so on the terminal, once for every part of a code."""
    for taught in (index, getattr(index, "pq", None)):
        if hasattr(taught, "cp"):
            taught.cp.min_points_per_centroid = 1  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]


def _halve(index: faiss.Index) -> None:
    """Keep the centres of cells in float16: a question reads all of them, which is most of what it takes."""
    if (cells := faiss.try_extract_index_ivf(index)) is None:
        return
    before = cells.quantizer
    half = faiss.IndexScalarQuantizer(index.d, faiss.ScalarQuantizer.QT_fp16, index.metric_type)
    half.is_trained = True  # there is nothing to train: the codes are the numbers
    half.add(before.reconstruct_n(0, cells.nlist))
    cells.quantizer = half
    half.this.disown()  # the index frees this one now,  # pyright: ignore[reportAttributeAccessIssue]
    before.this.own(True)  # and Python the other  # pyright: ignore[reportAttributeAccessIssue]


def _add(index: faiss.Index, snapshot: Snapshot, positions: np.ndarray) -> None:
    for start in range(0, len(positions), _PIECE):
        index.add(snapshot.stored(positions[start : start + _PIECE]))


def _tuned(
    made: Approximate,
    queries: np.ndarray,
    snapshot: Snapshot,
    rest: np.ndarray,
    structure: Structure,
    goal: float,
    k: int,
) -> dict[str, Any]:
    """The quickest setting that reaches the goal on half of the queries; how good it is on the other half."""
    truth = scan(queries, k, snapshot, rest)
    exact = np.take_along_axis(truth.scores, np.argsort(-truth.scores, axis=1), 1)[:, k - 1 : k]
    half = max(1, len(queries) // 2)
    best: tuple[float, int, int] | None = None
    efforts = _efforts(made)
    for times in structure.candidates:
        for effort in efforts:
            start = time.perf_counter()
            reached = _recall(made, queries[:half], exact[:half], snapshot, k, times, effort)
            seconds = time.perf_counter() - start
            if reached.mean() >= goal:
                if best is None or seconds < best[0]:
                    best = seconds, times, effort
                break
    _, times, effort = best or (0.0, structure.candidates[-1], efforts[-1])
    reached = _recall(made, queries[half:], exact[half:], snapshot, k, times, effort)
    return {
        "candidates": times,
        "effort": effort,
        "recall": {
            "goal": goal,
            "k": k,
            "mean": round(float(reached.mean()), 4),
            "worst percentile": round(float(np.percentile(reached, 1, method="inverted_cdf")), 3),
            "least": round(float(reached.min()), 3),
            "queries": len(reached),
        },
    }


def _recall(
    made: Approximate, queries: np.ndarray, kth: np.ndarray, snapshot: Snapshot, k: int, times: int, effort: int
) -> np.ndarray:
    """The share of the true k best that is found, for each query: how many of those found are as good as the k-th."""
    found = made._candidates(queries, k * times, effort)
    scores = -np.sort(-rescored(queries, found.ids, snapshot), axis=1)[:, :k]
    return (scores >= kth - 1e-6).sum(1) / k


def _efforts(made: Approximate) -> list[int]:
    """Cells to look into, or nodes to keep in view: from little to all that makes sense."""
    if made.facts["structure"] == "hnsw":
        return [16, 32, 64, 128, 256, 512, 1024]
    nlist = faiss.extract_index_ivf(made.index).nlist
    return [2**i for i in range(nlist.bit_length()) if 2**i <= nlist]


FILES = "structure.faiss", "ids.npy", "facts.json"


def save(made: Approximate, folder: Path) -> str:
    """Write an engine into ``folder``, which is new; it counts when the catalogue names it. Gives its checksum."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with files.replacing(folder / "structure.faiss") as temporary:
            faiss.write_index(made.index, str(temporary))
        with files.replacing(folder / "ids.npy") as temporary, temporary.open("wb") as handle:
            np.save(handle, made.ids, allow_pickle=False)
        files.write_text(folder / "facts.json", json.dumps(made.facts))
        return checksum(folder)
    except (OSError, RuntimeError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise DataError(f"{folder}: {error}; the index is as it was, without this engine: make room") from error


def load(folder: Path, known: str = "", *, most: int = CHECKED) -> Approximate | None:
    """The engine in ``folder``, mapped into memory; None where it is not whole: it is only a cache.

    ``known`` is its checksum, compared where there are no more than ``most`` bytes to read.
    """
    try:
        if known and sum((folder / name).stat().st_size for name in FILES) <= most and known != checksum(folder):
            return None
        facts = json.loads((folder / "facts.json").read_text("utf-8"))
        ids = np.asarray(np.load(folder / "ids.npy", mmap_mode="r", allow_pickle=False))
        index = faiss.read_index(str(folder / "structure.faiss"), faiss.IO_FLAG_MMAP_IFC)
        if index.ntotal != len(ids):
            return None
        return Approximate(index, ids, facts)
    except (OSError, RuntimeError, ValueError, KeyError):
        return None


def checksum(folder: Path) -> str:
    """Of all files of an engine: a wrong number in one may miss hits, or take faiss out of its memory."""
    found = xxh3_128()
    for name in FILES:
        found.update(np.memmap(folder / name, np.uint8, "r").data)
    return found.hexdigest()
