"""How sure an average is: percentile bootstrap (Efron 1979) over queries or over classes.

The gallery stays as it is; what is drawn again is whom we ask. ``queries`` draws as many queries as there are, with
replacement: how much the figure owes to the choice of queries among *these* classes. ``classes`` draws whole classes:
how much it owes to the choice of classes. Queries of a class rise and fall together, so the second interval is the
wider and the more honest one where the claim is about classes that were never seen; it needs some dozens of classes.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from secondsight.errors import ConfigError, require_known

Resample = Literal["queries", "classes"]
RESAMPLE: tuple[Resample, ...] = ("queries", "classes")


def intervals(
    scores: np.ndarray,
    classes: np.ndarray,
    *,
    times: int,
    level: float,
    resample: Resample = "queries",
    seed: int = 0,
) -> np.ndarray:
    """(m, 2) bounds of the means of the m columns of ``scores`` (q, m), whose rows are of ``classes`` (q,)."""
    require_known("resample", resample, RESAMPLE)
    if not 0 < level < 1:
        raise ConfigError(f"the level of an interval is between 0 and 1, got {level}")
    rng = np.random.default_rng(seed)
    sums, size = scores, np.ones(len(scores))
    if resample == "classes":
        _, own, size = np.unique(classes, return_inverse=True, return_counts=True)
        sums = np.stack([np.bincount(own, column) for column in scores.T], axis=1)
    means = np.empty((times, scores.shape[1]))
    for t in range(times):
        drawn = np.bincount(rng.integers(len(sums), size=len(sums), dtype=np.int32), minlength=len(sums))
        weights = drawn.astype(np.float64)
        means[t] = weights @ sums / (weights @ size)
    tail = (1 - level) / 2
    return np.quantile(means, [tail, 1 - tail], axis=0).T
