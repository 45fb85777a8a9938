"""Any order of adding, removing, compacting, reopening and searching against a dictionary and float64."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from secondsight import index

DIM = 6
QUICK = settings(
    max_examples=25,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)


class Collection(RuleBasedStateMachine):
    """The index beside what it should be: id → vector, label, number."""

    @initialize()
    def create(self):
        self.folder = Path(tempfile.mkdtemp())
        self.made = index.create(self.folder / "x.index", dim=DIM, dtype="float32")
        self.truth: dict[int, tuple[np.ndarray, str, int]] = {}
        self.rng = np.random.default_rng(0)
        self.given: set[int] = set()

    def teardown(self):
        if hasattr(self, "made"):
            self.made.close()
            shutil.rmtree(self.folder)

    @rule(n=st.integers(1, 12), label=st.sampled_from("abc"), number=st.integers(-5, 5))
    def add(self, n, label, number):
        vectors = self.rng.standard_normal((n, DIM))
        ids = self.made.add_vectors(vectors, labels=[label] * n, columns={"number": [number] * n}).tolist()
        assert not self.given & set(ids), "an id was used twice"
        self.given |= set(ids)
        for i, v in zip(ids, vectors, strict=True):
            self.truth[i] = ((v / np.linalg.norm(v)).astype(np.float32), label, number)

    @rule(share=st.floats(0, 1), stray=st.integers(0, 3))
    def remove(self, share, stray):
        chosen = [i for i in self.truth if self.rng.random() < share]
        assert self.made.remove([*chosen, *range(10_000, 10_000 + stray)]) == len(chosen)
        for i in chosen:
            del self.truth[i]

    @rule()
    def compact(self):
        self.made.compact()
        assert self.made.info()["removed, not yet compacted"] == 0

    @rule()
    def reopen(self):
        self.made.close()
        self.made = index.open(self.made.path)

    @rule(k=st.integers(1, 30), label=st.sampled_from([None, "a", "b"]), low=st.sampled_from([None, 0, 3]))
    def search(self, k, label, low):
        query = self.rng.standard_normal(DIM)
        query = (query / np.linalg.norm(query)).astype(np.float32)
        where = ({"label": label} if label else {}) | ({"number": (low, None)} if low is not None else {})
        if low is not None and "number" not in self.made.columns():
            return
        passing = [i for i, (_, lab, num) in self.truth.items() if label in (None, lab) and (low is None or num >= low)]
        scores = {i: float(self.truth[i][0].astype(np.float64) @ query.astype(np.float64)) for i in passing}
        best = sorted(passing, key=lambda i: (-scores[i], i))[:k]
        hits = self.made.search(query, k, where=where)
        found = hits.ids[0][hits.ids[0] >= 0]
        assert len(found) == len(best)
        np.testing.assert_allclose(hits.scores[0][: len(best)], [scores[i] for i in best], atol=2e-6)
        assert set(found.tolist()) <= set(passing)
        assert bool(hits.why[0]) == (len(best) < k)

    @invariant()
    def the_same_items(self):
        if hasattr(self, "made"):
            assert len(self.made) == len(self.truth)
            assert self.made.ids().tolist() == sorted(self.truth)


TestCollection = Collection.TestCase
TestCollection.settings = QUICK
