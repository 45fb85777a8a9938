"""Engines: whichever answers, the answers are the stored vectors'; which one is chosen, and how good it is, is said."""

from __future__ import annotations

import os

import faiss
import numpy as np
import pytest

from index_pictures import unit
from secondsight import index
from secondsight.errors import ConfigError, UnknownName
from secondsight.index import answer, approximate, structures
from secondsight.index import engine as engines
from secondsight.index.approximate import FILES
from secondsight.index.milvus import Milvus, parse
from secondsight.index.structures import choose, parse_bytes

DIM, N = 32, 6000
STRUCTURES = ["exact", "ivf-sq8", "bits", "ivf-pq", "hnsw"]
SERVER = os.environ.get("SECONDSIGHT_MILVUS", "")
"""``milvus://HOST:PORT/COLLECTION`` of a real server: then the contract is also tested on it; see docs/scaling.md."""
ENGINES = [*STRUCTURES, "milvus-lite", pytest.param("milvus", marks=pytest.mark.skipif(not SERVER, reason="no server"))]


def clustered(n: int, seed: int) -> np.ndarray:
    centres = np.random.default_rng(1).standard_normal((120, DIM))
    rng = np.random.default_rng(seed)
    return unit(centres[rng.integers(0, 120, n)] + 0.5 * rng.standard_normal((n, DIM)))


@pytest.fixture(scope="module", params=ENGINES)
def made(request, tmp_path_factory):
    found = index.create(tmp_path_factory.mktemp("e") / "e.index", dim=DIM)
    found.add_vectors(clustered(N, 2), labels=[f"l{i % 3}" for i in range(N)], columns={"number": list(range(N))})
    if request.param in STRUCTURES:
        found.build(structure=request.param, recall=0.95)
        yield found
        return
    pytest.importorskip("pymilvus")
    address = SERVER if request.param == "milvus" else f"milvus://{found.path.parent}/lite.db"
    found.build(engine=address)
    yield found
    Milvus(address).drop()


@pytest.fixture(autouse=True)
def _filters_reach_the_engine(monkeypatch):
    """Small filters are scanned; here they should go through the engine's own selection."""
    monkeypatch.setattr(answer, "SCANNED", 0)


def recall(found: np.ndarray, true: np.ndarray) -> float:
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), true.tolist(), strict=True)]))


def test_the_recall_that_was_asked_for_is_reached_and_reported(made):
    queries = clustered(60, 3)
    assert recall(made.search(queries, 10).ids, made.search(queries, 10, exact=True).ids) >= 0.93
    facts = made.info()["engine"]
    if facts["structure"] not in ("exact", "milvus"):
        assert facts["recall"]["mean"] >= 0.93
        assert 0 <= facts["recall"]["worst percentile"] <= facts["recall"]["mean"]
        assert facts["recall"]["queries"] == 200


def test_scores_are_those_of_the_stored_vectors_whatever_the_engine(made):
    query = clustered(1, 4)[0]
    hits = made.search(query, 10)
    vectors = made.vectors(hits.ids[0])
    np.testing.assert_allclose(hits.scores[0], vectors @ query, atol=1e-3)
    assert (np.diff(hits.scores[0]) <= 0).all()


@pytest.mark.parametrize("where", [{"label": "l1"}, {"number": (10, 14)}, {"number": (0, 599), "label": "l0"}])
def test_filters_never_give_fewer_than_k_silently_and_never_anything_else(made, where):
    queries = clustered(20, 5)
    passing = {item.id for item in made.items(where)}
    hits = made.search(queries, 10, where=where)
    wanted = min(10, len(passing))
    for row, why in zip(hits.ids, hits.why, strict=True):
        assert set(row[row >= 0].tolist()) <= passing
        assert (row >= 0).sum() == wanted
        assert bool(why) == (wanted < 10)
    true = made.search(queries, 10, where=where, exact=True)
    assert recall(hits.ids[:, :wanted], true.ids[:, :wanted]) >= 0.85


def test_items_added_and_removed_after_the_engine_was_built(made):
    query = clustered(1, 6)[0]
    new = made.add_vectors(query[None])
    assert made.search(query, 1).ids[0, 0] == new[0]
    found = made.search(query, 5).ids[0]
    made.remove(found)
    assert not set(found.tolist()) & set(made.search(query, 20).ids[0].tolist())
    made.compact()
    after = made.search(query, 20).ids[0]
    assert not set(found.tolist()) & set(after.tolist())
    assert set(after.tolist()) <= set(made.ids().tolist())


def test_a_damaged_engine_is_noticed_and_built_again(made):
    facts = made.store.fact("engine")
    if "folder" not in facts:
        pytest.skip("exact search has no files")
    (made.path / facts["folder"] / "structure.faiss").write_bytes(b"nothing")
    again = index.open(made.path)
    query = clustered(1, 7)[0]
    assert np.array_equal(again.search(query, 5).ids, again.search(query, 5, exact=True).ids)
    assert any("engine is damaged" in problem for problem in again.check().problems)
    assert again.check(repair=True).sound
    assert again.check().problems == []
    assert index.open(made.path).info()["engine"]["structure"] == facts["structure"]


@pytest.mark.parametrize("name", FILES)
def test_one_wrong_bit_of_an_engine_is_noticed(made, name):
    facts = made.store.fact("engine")
    if "folder" not in facts:
        pytest.skip("exact search has no files")
    path = made.path / facts["folder"] / name
    whole = path.read_bytes()
    wrong = bytearray(whole)
    wrong[-3] ^= 1  # a number, with all lengths and names as they were
    path.write_bytes(wrong)
    again = index.open(made.path)
    again.search(clustered(1, 7)[0], 5)
    assert not again.searcher.approximate
    assert any("engine is damaged" in problem for problem in again.check().problems)
    path.write_bytes(whole)
    assert again.check().problems == []


def test_sixty_four_bytes_a_vector_keep_recall_at_1_on_the_labels(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 60, 4000)
    vectors = unit(rng.standard_normal((60, 128))[labels] + 1.6 * rng.standard_normal((4000, 128)))
    made = index.create(tmp_path / "b.index", dim=128)
    made.add_vectors(vectors, labels=labels.astype(str).tolist())
    facts = made.build(structure="bits", recall=0.99)
    assert facts["bytes a vector"] <= 64
    found = made.info()["engine"]["recall@1 on labels"]
    assert 0.5 < found["exact"] < 1, "a task that can be failed"
    assert found["engine"] >= 0.99 * found["exact"]


@pytest.mark.parametrize("structure", ["bits", "ivf-pq"])
def test_the_first_hit_is_as_sure_alone_as_among_ten_and_faiss_keeps_quiet(tmp_path, capfd, structure):
    rng = np.random.default_rng(3)
    made = index.create(tmp_path / "f.index", dim=128)
    made.add_vectors(unit(rng.standard_normal((300, 128))))
    made.build(structure=structure)
    queries = unit(rng.standard_normal((50, 128)))
    assert np.array_equal(made.search(queries, 1).ids, made.search(queries, 10).ids[:, :1])
    assert "WARNING" not in "".join(capfd.readouterr())


def test_an_upload_is_resumed_repeated_and_followed_without_sending_anything_twice(tmp_path):
    pytest.importorskip("pymilvus")
    made = index.create(tmp_path / "u.index", dim=DIM)
    made.add_vectors(clustered(2500, 1))
    address = SERVER.rstrip("/") + "_upload" if SERVER else f"milvus://{tmp_path}/u.db"
    real, sent = Milvus.upload, []

    def failing(self, ids, vectors):
        if len(sent) == 2:
            raise ConnectionError("the network is gone")
        sent.append(len(ids))
        real(self, ids, vectors)

    Milvus.upload = failing
    try:
        with pytest.raises(ConnectionError):
            made.build(engine=address)
    finally:
        Milvus.upload = real
    assert made.info()["engine"]["structure"] == "exact", "the old engine answers until the new one is whole"
    facts = made.build(engine=address)
    assert facts["uploaded"] == 500
    query = clustered(3, 5)
    assert np.array_equal(made.search(query, 5).ids, made.search(query, 5, exact=True).ids)
    made.remove(range(100))
    made.compact()
    made.add_vectors(clustered(10, 9))
    again = made.build()
    assert (again["uploaded"], again["removed"]) == (10, 100)
    there = Milvus(address)
    assert there.count() == len(made) == 2410
    assert made.build(engine="faiss")["structure"] == "exact"
    assert np.array_equal(made.search(query, 5).ids, made.search(query, 5, exact=True).ids)
    there.drop()


def test_an_address_that_makes_no_sense_is_said_before_anything_is_done(tmp_path):
    made = index.create(tmp_path / "a.index", dim=DIM)
    for wrong in ("milvus:/localhost", "qdrant://x/y", "milvus://host:1/bad-name"):
        with pytest.raises(ConfigError, match="milvus://HOST:PORT/COLLECTION"):
            made.build(engine=wrong)
    assert parse("milvus://host/birds").uri == "http://host:19530"


def test_the_engine_follows_when_much_is_added(tmp_path, monkeypatch):
    monkeypatch.setattr(engines, "EXACT", 20_000)
    monkeypatch.setattr(engines, "LATE", 5_000)
    monkeypatch.setattr(structures, "EXACT", 20_000)
    made = index.create(tmp_path / "g.index", dim=DIM)
    made.add_vectors(clustered(400, 1))
    engines.maintain(made.store)
    assert made.info()["engine"]["structure"] == "exact"
    made.add_vectors(clustered(3000, 2))
    engines.maintain(made.store)
    assert made.info()["engine"]["structure"] == "ivf-sq8"
    made.add_vectors(clustered(100, 3))
    engines.maintain(made.store)
    assert made.info()["engine"]["added since, compared one by one"] == 100
    made.add_vectors(clustered(800, 4))
    engines.maintain(made.store)
    assert made.info()["engine"]["added since, compared one by one"] == 0


def test_little_memory_is_kept_to_in_a_small_collection_too(tmp_path):
    made = index.create(tmp_path / "m.index", dim=DIM)
    made.wish(memory=25_000)
    made.add_vectors(clustered(500, 1))
    engines.maintain(made.store)
    engine = made.info()["engine"]
    assert engine["structure"] != "exact"
    assert engine["bytes a vector"] <= 50
    assert "500 × 32 numbers take 64 kB" in engine["reason"]


def test_half_precision_finds_the_same_cells():
    rng = np.random.default_rng(0)
    vectors, queries = (unit(rng.standard_normal((n, 64))) for n in (5000, 100))
    made = faiss.index_factory(64, "IVF64,SQ8", faiss.METRIC_INNER_PRODUCT)
    made.train(vectors)
    made.add(vectors)
    cells = faiss.extract_index_ivf(made)
    before = cells.quantizer.search(queries, 4)[1], made.search(queries, 10)[1]
    approximate._halve(made)
    assert (cells.quantizer.search(queries, 4)[1] == before[0]).mean() > 0.99
    assert (made.search(queries, 10)[1] == before[1]).mean() > 0.99


def test_the_choice_follows_from_size_and_memory_and_says_why():
    assert choose(10_000, 512).name == choose(10_000, 512, memory=21_000_000).name == "exact"
    assert "512 numbers take 20.5 MB" in choose(10_000, 512, memory=20_000_000).reason
    million = choose(1_000_000, 512, memory=4_000_000_000)
    assert million.name == "ivf-sq8"
    assert "fits into 4 GB of memory" in million.reason
    assert choose(1_000_000, 512, memory=100_000_000).name == "bits"
    tiny = choose(1_000_000, 512, memory=40_000_000)
    assert tiny.name == "ivf-pq"
    assert tiny.bytes <= 40
    assert "even that" in choose(1_000_000, 512, memory=1_000_000).reason
    assert choose(1_000_000, 512, wanted="hnsw").factory == "HNSW32,SQfp16"
    with pytest.raises(UnknownName, match="did you mean 'hnsw'"):
        choose(10, 8, wanted="hsnw")
    assert parse_bytes("1.5GB") == 1_500_000_000
    with pytest.raises(ConfigError, match="4GB"):
        parse_bytes("much")
