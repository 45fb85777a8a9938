"""What a search gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Item:
    """One picture of an index."""

    id: int
    path: str | None  # where it is; None for a vector that came without a file
    label: str | None = None
    columns: dict[str, Any] = field(default_factory=dict)  # what the user's table says about it
    width: int | None = None
    height: int | None = None
    size: int | None = None  # bytes
    name: str | None = None  # the path as it stands in the folder or table it came from


@dataclass(frozen=True, eq=False)
class Hits:
    """The answers to q queries, best first; a row that has fewer than k ends in places with id −1."""

    ids: np.ndarray  # (q, k) int64
    scores: np.ndarray  # (q, k) float32, cosines; NaN where there is no hit
    paths: np.ndarray  # (q, k) str or None
    labels: np.ndarray  # (q, k) str or None
    probability: np.ndarray  # (q, k) float32: how likely it is a match, see ``calibration``; NaN where unknown
    matches: np.ndarray  # (q, k) bool: above the cut; False everywhere is an answer: nothing here matches
    why: tuple[str, ...] = ()  # one a query: "" or why there are fewer than k hits
    meaning: str = ""  # what ``probability`` says, in words
    boxes: np.ndarray | None = (
        None  # (q, k, 4) float32: where a hit is in its picture; NaN for the whole. See ``parts``
    )

    def __len__(self) -> int:
        return len(self.ids)

    def row(self, query: int) -> list[dict[str, Any]]:
        """The hits of one query as dictionaries, ready for JSON."""
        return [
            {
                "id": int(self.ids[query, i]),
                "path": self.paths[query, i],
                "label": self.labels[query, i],
                "score": round(float(self.scores[query, i]), 6),
                "probability": _number(self.probability[query, i]),
                "match": bool(self.matches[query, i]),
                **({} if self.boxes is None else {"box": _box(self.boxes[query, i])}),
            }
            for i in range(self.ids.shape[1])
            if self.ids[query, i] >= 0
        ]


def _box(sides: np.ndarray) -> list[float] | None:
    return None if np.isnan(sides).any() else [round(float(side), 4) for side in sides]


def _number(value: float) -> float | None:
    return None if np.isnan(value) else round(float(value), 6)
