"""Searching an index: against brute force in float64, with filters, with every kind of query."""

from __future__ import annotations

import io
import sqlite3
import subprocess
import sys

import faiss
import numpy as np
import pytest
from PIL import Image

from index_pictures import DIM, folder, picture, small_model, unit
from secondsight import index
from secondsight.errors import ConfigError, DataError, UnknownName
from secondsight.index import answer, exact
from secondsight.index.filters import All, Not, parsed
from secondsight.index.segments import widened


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def birds(model, tmp_path_factory):
    place = tmp_path_factory.mktemp("birds")
    return index.create(place / "birds.index", model, folder(place / "photos", classes="abc"))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """300 vectors with labels and columns, no pictures."""
    made = index.create(tmp_path_factory.mktemp("table") / "t.index", dim=DIM, dtype="float32")
    rng = np.random.default_rng(0)
    vectors = unit(rng.standard_normal((300, DIM)))
    made.add_vectors(
        vectors,
        labels=[f"class {i % 7}" for i in range(300)],
        paths=[f"{'old' if i < 100 else 'new'}/{i}.jpg" for i in range(300)],
        columns={"year": [2000 + i % 20 for i in range(300)], "by": ["ann" if i % 2 else "bob" for i in range(300)]},
    )
    return made, vectors


def brute(queries, vectors, keep, k):
    scores = queries.astype(np.float64) @ vectors.astype(np.float64).T
    scores[:, ~keep] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(scores, order, 1)


@pytest.mark.parametrize("k", [1, 7, 300])
def test_a_search_finds_what_brute_force_in_float64_finds(table, k):
    made, vectors = table
    queries = unit(np.random.default_rng(1).standard_normal((20, DIM)))
    ids, scores = brute(queries, vectors, np.ones(300, bool), k)
    hits = made.search(queries, k)
    assert np.array_equal(hits.ids, ids)
    np.testing.assert_allclose(hits.scores, scores, atol=1e-6)
    assert hits.why == ("",) * 20


def test_scores_do_not_depend_on_what_else_is_asked(table):
    made, _ = table
    queries = unit(np.random.default_rng(2).standard_normal((33, DIM)))
    together = made.search(queries, 5)
    for i, query in enumerate(queries):
        alone = made.search(query, 5)
        assert np.array_equal(alone.ids[0], together.ids[i])
        assert np.array_equal(alone.scores[0], together.scores[i])


FILTERS = [
    ({"label": "class 3"}, lambda i: i % 7 == 3),
    ({"label": ["class 3", "class 5"]}, lambda i: i % 7 in (3, 5)),
    ({"year": (2005, 2010)}, lambda i: 2005 <= 2000 + i % 20 <= 2010),
    ({"year": (None, 2003)}, lambda i: 2000 + i % 20 <= 2003),
    ({"by": Not("bob")}, lambda i: i % 2 == 1),
    ({"path": "old"}, lambda i: i < 100),
    ({"path": "new/1*5.jpg"}, lambda i: i >= 100 and str(i).startswith("1") and str(i).endswith("5")),
    ({"by": "ann", "label": "class 0"}, lambda i: i % 2 == 1 and i % 7 == 0),
    ({"year": All(((2005, None), Not(2010)))}, lambda i: 2000 + i % 20 >= 2005 and i % 20 != 10),
    ({"id": (290, None)}, lambda i: i >= 290),
]


@pytest.mark.parametrize(("where", "holds"), FILTERS, ids=[str(w) for w, _ in FILTERS])
def test_filters_are_exact(table, where, holds):
    made, vectors = table
    keep = np.array([holds(i) for i in range(300)])
    queries = unit(np.random.default_rng(3).standard_normal((4, DIM)))
    count = int(keep.sum())
    ids, _ = brute(queries, vectors, keep, min(10, count))
    hits = made.search(queries, 10, where=where)
    assert np.array_equal(hits.ids[:, : min(10, count)], ids)
    assert made.count(where) == count
    assert [item.id for item in made.items(where)] == np.flatnonzero(keep).tolist()


def test_fewer_than_k_hits_say_why(table, birds):
    made, vectors = table
    hits = made.search(vectors[0], 50, where={"label": "class 3"})
    assert (hits.ids[0] >= 0).sum() == 43 == sum(i % 7 == 3 for i in range(300))
    assert hits.why == ("43 of 300 items pass the filter",)
    assert made.search(vectors[0], 5, where={"label": "heron"}).why == ("no item passes the filter label=heron",)
    missed = {"label": "Class 3", "year": (1990, None)}
    words = "no item passes the filter label=Class 3, year>=1990; did you mean label=class 3?"
    assert made.search(vectors[0], 5, where=missed).why == (words,)
    assert birds.search(0, 100).why == ("the index has 15 items, 1 of them the examples themselves",)


def test_an_unknown_column_names_the_ones_there_are(table):
    with pytest.raises(UnknownName, match="did you mean 'year'"):
        table[0].search(np.ones(DIM), where={"yaer": 3})
    with pytest.raises(ConfigError, match="where 'width': holds numbers, and 'abc' is none"):
        table[0].search(np.ones(DIM), where={"width": ("abc", None)})


def test_where_on_the_command_line():
    assert parsed(["label=a=b"]) == {"label": "a=b"}
    assert parsed(["year>=2010", "year<=2012"]) == {"year": All(((2010, None), (None, 2012)))}
    assert parsed(["year!=3", "label=7"]) == {"year": Not(3), "label": "7"}
    with pytest.raises(ConfigError, match="COLUMN=VALUE"):
        parsed(["heron"])


def test_every_kind_of_query_is_the_same_query(birds):
    path = birds.item(3).path
    pixels = np.array(Image.open(path).convert("RGB"))
    with open(path, "rb") as handle:
        content = handle.read()
    expected = birds.search(path, 4)
    assert expected.ids[0, 0] == 3
    for query in (content, Image.open(path), pixels):
        assert np.array_equal(birds.search(query, 4).ids, expected.ids)
    several = birds.search([path, 3, birds.vector(3)], 4)
    assert np.array_equal(several.ids[0], expected.ids[0])
    assert np.array_equal(several.ids[2], expected.ids[0])
    assert 3 not in several.ids[1], "an item does not find itself"


def test_examples_for_and_against(table):
    made, vectors = table
    hits = made.like([4, vectors[9]], [17], 5)
    query = vectors[[4, 9]].mean(0) - 0.5 * vectors[17]
    keep = np.ones(300, bool)
    keep[[4, 17]] = False
    ids, _ = brute(query[None], vectors, keep, 5)
    assert np.array_equal(hits.ids, ids)
    with pytest.raises(DataError, match="cancel"):
        made.like([vectors[0], -vectors[0]])


def test_bad_queries_are_sentences(birds, tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff nothing")
    with pytest.raises(DataError, match=r"the query .*broken\.jpg: cannot be decoded"):
        birds.search(tmp_path / "broken.jpg")
    with pytest.raises(DataError, match=r"[Nn]o such file"):
        birds.search(tmp_path / "nowhere.jpg")
    with pytest.raises(DataError, match="16 numbers"):
        birds.search(np.ones(7))
    with pytest.raises(DataError, match="length nan"):
        birds.search(np.full(DIM, np.nan))
    with pytest.raises(DataError, match="no item 99"):
        birds.search(99)
    with pytest.raises(DataError, match=r"pixels \(H, W, 3\)"):
        birds.search(np.zeros((4, 4), np.uint8))
    with pytest.raises(ConfigError, match="k is how many"):
        birds.search(0, 0)


def test_an_empty_index_answers_that_it_is_empty(tmp_path):
    made = index.create(tmp_path / "e.index", dim=DIM)
    hits = made.search(np.ones(DIM), 3)
    assert hits.ids.tolist() == [[-1, -1, -1]]
    assert hits.why == ("the index is empty; fill it: secondsight index FOLDER -o INDEX",)
    assert len(made) == 0
    assert made.update().text() == "nothing to do"


def test_another_model_is_refused_and_both_are_named(model, birds):
    other = small_model(seed=1)
    with pytest.raises(ConfigError) as caught:
        index.open(birds.path, model=other)
    assert other.fingerprint()[:16] in str(caught.value)
    assert model.fingerprint()[:16] in str(caught.value)
    with pytest.raises(ConfigError, match=other.fingerprint()[:16]):
        birds.add_vectors(np.ones((1, DIM)), fingerprint=other.fingerprint())
    assert len(index.open(birds.path, model=model)) == 15


def test_the_index_keeps_its_own_copy_of_the_model(model, birds):
    again = index.open(birds.path)
    assert again.model().fingerprint() == model.fingerprint()
    assert again.search(birds.item(2).path, 1).ids[0, 0] == 2


def test_items_vectors_and_thumbnails_can_be_had_by_id(birds):
    item = birds.item(7)
    assert (item.label, item.name, item.width, item.height) == ("b", "b/2.png", 48, 40)
    assert birds.find(item.path) == 7
    np.testing.assert_allclose(np.linalg.norm(birds.vector(7)), 1, atol=1e-6)
    assert np.array_equal(birds.vectors([7, 1])[0], birds.vector(7))
    assert birds.items(offset=5, limit=2) == [birds.item(5), birds.item(6)]
    small = birds.thumbnail(7, 24)
    assert small == birds.thumbnail(7, 24)
    assert Image.open(io.BytesIO(small)).size == (24, 20)


def test_an_older_and_a_newer_format_are_refused(tmp_path):
    index.create(tmp_path / "x.index", dim=4).close()
    for number, cure in ((0, "make it again"), (99, "update secondsight")):
        with sqlite3.connect(tmp_path / "x.index/index.sqlite") as database:
            database.execute("UPDATE facts SET value = ? WHERE key = 'format'", (str(number),))
        with pytest.raises(DataError, match=f"format {number}.*{cure}"):
            index.open(tmp_path / "x.index")


def test_what_is_no_index_is_said_to_be_none(tmp_path):
    with pytest.raises(DataError, match="not an index"):
        index.open(tmp_path)
    picture(tmp_path / "full" / "x.png", 0)
    with pytest.raises(DataError, match="something else is there"):
        index.create(tmp_path / "full", dim=4)


def test_a_process_in_which_faiss_was_taught_to_take_tensors_searches_all_the_same(tmp_path):
    """pytorch-metric-learning does so when it is imported: whoever trains and then searches meets it."""
    code = (
        "import faiss.contrib.torch_utils, faiss, numpy as np\n"
        "from secondsight.index.exact import search_arrays\n"
        "x = np.eye(4, dtype=np.float32); index = faiss.IndexFlatIP(4); index.add(x)\n"
        "print(search_arrays(index, x, 1, faiss.SearchParameters())[1].ravel().tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[0, 1, 2, 3]"


def test_stored_numbers_are_widened_to_the_last_bit(monkeypatch):
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    every = every[np.isfinite(every)].reshape(-1, 4)
    expected = every.astype(np.float32).view(np.uint32)
    assert (widened(every.copy()).view(np.uint32) == expected).all()
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    assert (widened(every.copy()).view(np.uint32) == expected).all()


@pytest.mark.parametrize("share", [1 / 8, 0], ids=["float32 in memory", "float16"])
@pytest.mark.parametrize("where", [None, {"id": (100, 2700)}], ids=["all", "filtered"])
def test_what_is_kept_in_memory_changes_no_answer(tmp_path, monkeypatch, share, where):
    monkeypatch.setattr(exact, "WIDE", share)
    made = index.create(tmp_path / "w.index", dim=DIM)
    vectors = unit(np.random.default_rng(0).standard_normal((3000, DIM)))
    made.add_vectors(vectors[:2500])
    made.add_vectors(vectors[2500:])
    made.remove([7, 2600])
    queries = unit(np.random.default_rng(1).standard_normal((20, DIM)))
    keep = np.ones(3000, bool) if where is None else (np.arange(3000) >= 100) & (np.arange(3000) <= 2700)
    keep[[7, 2600]] = False
    expected, _ = brute(queries, vectors.astype(np.float16), keep, 10)
    monkeypatch.setattr(answer, "SCANNED", 0)
    assert np.array_equal(made.search(queries, 10, where=where).ids, expected)
    assert np.array_equal(np.concatenate([made.search(q, 10, where=where).ids for q in queries]), expected)
    (kind,) = {type(block) for block in made.searcher._last.exact.blocks.values()}
    assert kind is (np.ndarray if share else faiss.IndexScalarQuantizer)
    assert made.info()["engine"]["bytes a vector"] == DIM * (4 if share else 2)


@pytest.mark.parametrize("share", [1 / 8, 0], ids=["float32 in memory", "float16"])
def test_no_query_has_no_answer(tmp_path, monkeypatch, share):
    monkeypatch.setattr(exact, "WIDE", share)
    made = index.create(tmp_path / "w.index", dim=DIM)
    made.add_vectors(unit(np.random.default_rng(0).standard_normal((20, DIM))))
    assert made.search([], 3).ids.shape == made.search(np.zeros((0, DIM), np.float32), 3).ids.shape == (0, 3)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_vectors_of_many_segments_are_fetched_in_the_order_asked_for(tmp_path, dtype):
    made = index.create(tmp_path / "s.index", dim=DIM, dtype=dtype)
    vectors = unit(np.random.default_rng(5).standard_normal((90, DIM)))
    for part in (vectors[:50], vectors[50:80], vectors[80:89], vectors[89:]):
        made.add_vectors(part)
    with made.store.reading() as (_, snapshot):
        assert len(snapshot.segments) == 4
        wanted = np.random.default_rng(6).integers(0, 90, (7, 40))
        assert np.array_equal(snapshot.stored(wanted), vectors.astype(dtype).astype(np.float32)[wanted])
        assert snapshot.stored(wanted[:, :0]).shape == (7, 0, DIM)


def test_neighbours_see_a_commit_of_this_process_and_of_another(tmp_path):
    made, other = index.create(tmp_path / "n.index", dim=8), index.open(tmp_path / "n.index")
    query = np.ones((1, 8), np.float32)
    for writer in (made, other, made):
        before = made.searcher.neighbours(query, 100)[1]
        writer.add_vectors(np.eye(8))
        assert made.searcher.neighbours(query, 100)[1].shape[1] == before.shape[1] + 8
    other.remove([3])
    assert 3 not in made.searcher.neighbours(query, 100)[1]


def test_a_search_waits_for_a_thread_that_is_loading_torch():
    """A server answers by vector while another thread loads the model's libraries."""
    code = """
import sys, threading, numpy as np
from secondsight.index.segments import widened
assert "torch" not in sys.modules
loading = threading.Thread(target=__import__, args=("torch",))
loading.start()
while "torch" not in sys.modules:
    pass
while loading.is_alive():
    assert widened(np.ones((2, 3), np.float16)).dtype == np.float32
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
