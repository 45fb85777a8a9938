"""What a model's scores mean: P(same class | cosine), learned on classes that did not teach it.

A model directory keeps it as ``calibration.json``, with the fingerprint of the model it was learned with. It changes no
vector, so the fingerprint of the model does not depend on it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from secondsight import files
from secondsight.errors import ConfigError
from secondsight.terminal import json_text

FILE = "calibration.json"


@dataclass(frozen=True)
class Calibration:
    """Cosine → probability, as a polygon; and the score below which nothing is shown as a match."""

    kind: str  # learned from "labels" or "chance" of a collection, or from "validation" pictures of the model
    scores: tuple[float, ...]  # ascending
    values: tuple[float, ...]  # ascending, at these scores
    cut: float
    meaning: str
    pairs: int
    error: float | None = None  # mean difference of what was said and what was so, on classes not fitted on

    def __call__(self, scores: np.ndarray) -> np.ndarray:
        """(…) cosines → (…) probabilities; NaN stays NaN."""
        return np.interp(scores, *self._polygon).astype(np.float32)

    @cached_property
    def _polygon(self) -> tuple[np.ndarray, np.ndarray]:
        return np.array(self.scores), np.array(self.values)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Calibration:
        return cls(**{**given, "scores": tuple(given["scores"]), "values": tuple(given["values"])})

    def __post_init__(self) -> None:
        x, p = self._polygon
        if x.ndim != 1 or x.shape != p.shape or not len(x) or (np.diff(x) <= 0).any() or (np.diff(p) < 0).any():
            raise ValueError("scores and probabilities must ascend, and there must be as many of each")
        if not (np.isfinite(x).all() and (p >= 0).all() and (p <= 1).all()):
            raise ValueError("probabilities are from 0 to 1")


def write(found: Calibration, folder: Path, fingerprint: str) -> None:
    """Keep what the scores of the model in ``folder`` mean beside it."""
    content = {"fingerprint": fingerprint, **found.to_dict()}
    files.write_text(folder / FILE, json_text({**content, "check": _check(content)}, indent=1) + "\n")


def read(folder: Path, fingerprint: str) -> Calibration | None:
    """What the scores of the model in ``folder`` mean; None where nobody has found out."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        content: Any = json.loads(path.read_text("utf-8"))
        check, own = content.pop("check"), content.get("fingerprint")
        if check != _check(content):
            raise ValueError("its checksum does not fit")
        content.pop("fingerprint")
        found = Calibration.from_dict(content)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{path} is damaged ({error}): remove it to use the model without it") from error
    if own != fingerprint:
        raise ConfigError(f"{path} is of model {str(own)[:16]}, not of {fingerprint[:16]} beside it: remove it")
    return found


def _check(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
