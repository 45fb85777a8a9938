"""Questions that wait together are answered as they would be alone."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from secondsight import index
from secondsight.serve.matcher import Matcher, Question


@pytest.fixture
def vectors(tmp_path):
    made = index.create(tmp_path / "some.index", dim=8)
    made.add_vectors(np.random.default_rng(0).normal(size=(300, 8)).astype(np.float32))
    return made


def rows(hits):
    return [{"hits": hits.row(query)} for query in range(len(hits))]


def together(vectors, *asked):
    """Ask everything at once; gives answers and errors, and how many searches that took."""
    searches = []

    def counted(hits):
        searches.append(len(hits))
        return rows(hits)

    async def run():
        matcher = Matcher(vectors, counted, lambda id: KeyError(id))
        try:
            questions = [Question(**one) for one in asked]
            return await asyncio.gather(*(matcher.ask(one) for one in questions), return_exceptions=True)
        finally:
            matcher.close()

    return asyncio.run(run()), searches


def test_each_gets_its_own_answer_in_few_searches(vectors):
    asked = [{"k": 5, "id": id, "out": [id]} for id in range(60)]
    answers, searches = together(vectors, *asked)
    for id, answer in enumerate(answers):
        expected = vectors.search(id, 5).row(0)
        assert [hit["id"] for hit in answer["hits"]] == [hit["id"] for hit in expected]
        assert [hit["score"] for hit in answer["hits"]] == pytest.approx([hit["score"] for hit in expected], abs=1e-5)
    assert len(searches) < 30


def test_vectors_ids_and_other_ks_may_wait_together(vectors):
    query = vectors.vector(7)
    answers, _ = together(vectors, {"k": 3, "vector": query}, {"k": 9, "id": 7, "out": [7]}, {"k": 3, "id": 8})
    assert [len(answer["hits"]) for answer in answers] == [3, 9, 3]
    assert answers[0]["hits"][0]["id"] == 7
    assert 7 not in [hit["id"] for hit in answers[1]["hits"]]
    assert answers[2]["hits"][0]["id"] == 8


def test_an_item_that_is_not_there_is_nobody_elses_trouble(vectors):
    vectors.remove([4])
    answers, _ = together(vectors, {"k": 2, "id": 3}, {"k": 2, "id": 4}, {"k": 2, "id": 10**9}, {"k": 2, "id": 5})
    assert [type(answer) for answer in answers] == [dict, KeyError, KeyError, dict]


def test_an_error_reaches_whoever_asked_and_the_next_is_answered(vectors):
    answers, _ = together(vectors, {"k": 0, "id": 1}, {"k": 1, "id": 1})
    assert "k is how many" in str(answers[0])
    assert answers[1]["hits"][0]["id"] == 1
