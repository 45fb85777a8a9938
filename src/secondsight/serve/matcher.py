"""One thread that searches: questions that arrive while it works are answered together, as one matrix of queries.

A search costs little beside what comes with it (a transaction, the rows of the hits, a hop between threads), and that
is paid once for all that wait.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import faiss
import numpy as np

from secondsight.index import Index
from secondsight.index.hits import Hits

MOST = 32  # questions that are answered together
MUCH = 10_000_000  # numbers that one core does not compare in a few milliseconds


@dataclass(frozen=True, eq=False)
class Question:
    """The k nearest of a vector, or of an item by its id; ``out`` are ids that are left out."""

    k: int
    vector: np.ndarray | None = None
    id: int | None = None
    out: Sequence[int] = ()
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    future: asyncio.Future[dict[str, Any]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def answer(self, value: dict[str, Any] | Exception) -> None:
        if self.future.done():  # whoever asked went away
            return
        if isinstance(value, Exception):
            self.future.set_exception(value)
        else:
            self.future.set_result(value)


class Matcher:
    """The index behind a queue. ``answers(hits)`` makes an answer of each row of hits."""

    def __init__(
        self, index: Index, answers: Callable[[Hits], list[dict[str, Any]]], missing: Callable[[int], Exception]
    ):
        self.index, self.answers, self.missing = index, answers, missing
        self._waiting: queue.SimpleQueue[Question | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="matching", daemon=True)
        self._thread.start()

    async def ask(self, question: Question) -> dict[str, Any]:
        self._waiting.put(question)
        return await question.future

    def close(self) -> None:
        self._waiting.put(None)

    def _work(self) -> None:
        while True:
            asked = [self._waiting.get()]
            while len(asked) < MOST and not self._waiting.empty():
                asked.append(self._waiting.get())
            by_k: dict[int, list[Question]] = defaultdict(list)
            for one in asked:
                if one is not None:
                    by_k[one.k].append(one)
            for k, questions in by_k.items():
                self._deliver(questions, self._answers(questions, k))
            if None in asked:
                return

    def _answers(self, questions: list[Question], k: int) -> list[dict[str, Any] | Exception]:
        try:
            vectors, known = self._vectors(questions)
            k = min(k, max(1, len(self.index)))
            answers: list[dict[str, Any] | Exception] = [self.missing(q.id or 0) for q in questions]
            if known.any():
                # faiss's threads spin after every search, on cores that the next answer needs: they must be worth it.
                little = self.index.searcher.approximate or len(self.index) * self.index.dim < MUCH
                faiss.omp_set_num_threads(1 if little else os.cpu_count() or 1)
                out = [q.out for q, here in zip(questions, known, strict=True) if here]
                rows = self.answers(self.index.searcher.search(vectors[known], k, leave_out=out, named=False))
                for place, row in zip(np.flatnonzero(known), rows, strict=True):
                    answers[place] = row
            return answers
        except Exception as error:  # whoever asked shall hear of it, and the thread goes on
            return [error] * len(questions)

    def _vectors(self, questions: list[Question]) -> tuple[np.ndarray, np.ndarray]:
        """(q, dim) of the questions, and whether each is there: an id may not be."""
        vectors = np.zeros((len(questions), self.index.dim), np.float32)
        known = np.ones(len(questions), bool)
        for row, question in enumerate(questions):
            if question.vector is not None:
                vectors[row] = question.vector
        asking = np.array([row for row, question in enumerate(questions) if question.vector is None], np.int64)
        if len(asking):
            ids = np.array([questions[row].id for row in asking.tolist()], np.int64)
            with self.index.store.reading() as (_, snapshot):
                here = known[asking] = snapshot.living(ids)
                vectors[asking[here]] = snapshot.vectors(snapshot.positions(ids[here]))
        return vectors, known

    @staticmethod
    def _deliver(questions: list[Question], answers: list[dict[str, Any] | Exception]) -> None:
        """Wake each event loop once, not once a question."""

        def all_of(given: list[tuple[Question, dict[str, Any] | Exception]]) -> None:
            for question, value in given:
                question.answer(value)

        by_loop: dict[asyncio.AbstractEventLoop, list] = defaultdict(list)
        for question, value in zip(questions, answers, strict=True):
            by_loop[question.loop].append((question, value))
        for loop, given in by_loop.items():
            try:
                loop.call_soon_threadsafe(all_of, given)
            except RuntimeError:  # the server stopped meanwhile
                continue
