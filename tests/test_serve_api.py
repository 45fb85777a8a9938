"""The server's answers are the index's and the explanation's own; its errors say what to do."""

from __future__ import annotations

import asyncio
import io
import json
import tempfile
import threading
from pathlib import Path
from typing import cast

import numpy as np
import pytest

pytest.importorskip("fastapi")
from fastapi.testclient import TestClient

from secondsight import explain
from secondsight.index.hits import Item
from secondsight.serve import answers
from secondsight.serve.routes import application
from secondsight.serve.service import Service, described
from secondsight.serve.surveys import Once
from serve_pictures import collection, content, pixels

BOX = [0.2, 0.15, 0.7, 0.8]


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    return collection(tmp_path_factory.mktemp("serve"), each=4)


@pytest.fixture(scope="module")
def client(photos):
    with TestClient(application([photos]), base_url="http://localhost", raise_server_exceptions=False) as made:
        yield made


def found(response):
    assert response.status_code == 200, response.text
    return [(hit["id"], pytest.approx(hit["score"], abs=2e-3)) for hit in response.json()["hits"]]


def expected(hits):
    return [(hit["id"], hit["score"]) for hit in hits.row(0)]


def upload(client, picture: bytes, **fields):
    return client.post("/api/search", files={"file": picture}, data={k: json.dumps(v) for k, v in fields.items()})


def test_an_upload_finds_what_the_index_finds(client, photos):
    picture = content(501)
    assert found(upload(client, picture, k=5)) == expected(photos.search(picture, 5))


def test_an_indexed_picture_finds_itself_first(client, photos):
    picture = Path(photos.item(5).path).read_bytes()
    hits = upload(client, picture, k=2).json()["hits"]
    assert hits[0]["id"] == 5
    assert hits[0]["score"] > 0.999


def test_ids_vectors_and_examples_are_searched_as_the_index_does(client, photos):
    def ask(**body):
        return client.post("/api/search", json=body)

    assert found(ask(id=3, k=6)) == expected(photos.search(3, 6))
    assert found(ask(vector=photos.vector(3).tolist(), k=4)) == expected(photos.search(photos.vector(3), 4))
    assert found(ask(like=[1, 2], unlike=[9], k=5)) == expected(photos.like([1, 2], [9], 5))
    refined = explain.refined(photos.vector(3), photos.vectors([1, 2]), photos.vectors([9]))
    hits = [hit for hit in photos.search(refined, 9).row(0) if hit["id"] not in (1, 2, 3, 9)]
    assert [id for id, _ in found(ask(id=3, like=[1, 2], unlike=[9], k=5))] == [hit["id"] for hit in hits[:5]]


def embedded(client) -> str:
    """The line of the metrics that counts what went through the network."""
    return next(line for line in client.get("/metrics").text.splitlines() if line.startswith("secondsight_pictures "))


def test_a_box_is_searched_by_its_own_places_and_without_the_network(client, photos):
    picture = content(502)
    first = upload(client, picture, k=3).json()
    before = embedded(client)
    boxed = client.post("/api/search", json={"query": first["query"], "box": BOX, "k": 5})
    region = explain.places(photos.model(), picture).region(BOX)
    assert found(boxed) == expected(photos.search(region, 5))
    assert embedded(client) == before


def test_the_explanation_explains_the_score(client, photos):
    name = upload(client, content(503), k=1).json()["query"]
    for box in (None, BOX):
        body = {"query": name, "k": 3} | ({"box": box} if box else {})
        hit = client.post("/api/search", json=body).json()["hits"][2]
        asked = {"a": {"query": name, "box": box}, "b": {"id": hit["id"]}, "most": 10_000}
        why = client.post("/api/explain", json=asked).json()
        assert why["exact"]
        assert why["similarity"] == pytest.approx(hit["score"], abs=2e-3)  # the index stores half floats
        assert sum(value for *_, value in why["links"]) == pytest.approx(why["similarity"], abs=1e-3)
        assert np.sum(why["a"]["share"]) == pytest.approx(why["similarity"], abs=1e-4)


def test_parts_are_boxes_that_can_be_searched(client):
    parts = client.post("/api/parts", json={"of": {"id": 4}, "count": 3}).json()["parts"]
    assert parts
    assert sum(part["strength"] for part in parts) == pytest.approx(1, abs=0.01)
    for part in parts:
        assert found(client.post("/api/search", json={"id": 4, "box": part["box"], "k": 2}))


@pytest.mark.parametrize(
    "where",
    [
        {"label": "heron", "year": {"from": 2001, "to": 2002}},
        ["label=heron", "year>=2001", "year<=2002"],
    ],
)
def test_filters_are_those_of_the_index(client, photos, where):
    same = photos.search(10, 30, where={"label": "heron", "year": (2001, 2002)})
    assert found(client.post("/api/search", json={"id": 10, "k": 30, "where": where})) == expected(same)
    items = client.get("/api/items", params={"where": json.dumps(where)}).json()
    assert items["total"] == len(items["items"]) == 2
    assert {item["columns"]["year"] for item in items["items"]} == {2001, 2002}


def test_pictures_are_jpegs_and_paths_stay_inside(client, photos):
    for address in ("/api/thumbnail/2?side=96", "/api/image/2"):
        answer = client.get(address)
        assert answer.headers["content-type"] == "image/jpeg"
        assert answer.content.startswith(b"\xff\xd8\xff")
    name = upload(client, content(504, "GIF"), k=1).json()["query"]
    assert client.get(f"/api/query/{name}").content.startswith(b"\xff\xd8\xff")
    listed = client.get("/api/items").json()["items"][0]["path"]
    for wrong in ("/api/image/../../etc/passwd", f"/api/image/{listed}", "/api/image/%2e%2e%2fphotos.csv", "/../x"):
        assert client.get(wrong).status_code in (404, 422)


def test_where_the_files_of_a_table_lie_is_not_told():
    shown = described(Item(3, "/home/ada/birds/heron/1.jpg", name="/home/ada/birds/heron/1.jpg"))
    assert shown["path"] == "heron/1.jpg"


TROUBLES = [
    ({"id": 10**6}, 404),
    ({"id": 2**70}, 422),
    ({"query": "never"}, 404),
    ({}, 422),
    ({"id": 1, "vector": [1.0]}, 422),
    ({"vector": [1.0, 2.0]}, 422),
    ({"vector": [0.0] * 16}, 422),
    ({"id": 1, "box": [0.5, 0.5, 0.5, 0.9]}, 422),
    ({"id": 1, "box": [0, 0, 2, 1]}, 422),
    ({"id": 1, "where": {"colour": "red"}}, 422),
    ({"id": 1, "where": {"year": {"around": 2000}}}, 422),
    ({"id": 1, "where": ["year"]}, 422),
    ({"id": 1, "k": 0}, 422),
    ({"id": 1, "collection": 7}, 404),
    ({"id": 1, "surprise": True}, 422),
    ({"like": [1], "unlike": [1] * 101}, 422),
]


@pytest.mark.parametrize(("body", "status"), TROUBLES)
def test_errors_have_a_cause_and_a_cure(client, body, status):
    answer = client.post("/api/search", json=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]
    assert answer.json()["cure"]


@pytest.mark.parametrize("picture", [b"", b"no picture", content(1)[:60], b"\xff\xd8\xff" + bytes(40)])
def test_an_upload_that_is_no_picture_is_an_error_and_not_a_fault(client, picture):
    answer = upload(client, picture)
    assert answer.status_code == 422
    assert answer.json()["cure"]


@pytest.mark.parametrize("charset", ["punycode", "undefined", "no-such-thing", "utf-16"])
def test_a_form_in_any_character_set_is_no_fault(client, charset):
    head = {"content-type": f"multipart/form-data; boundary=x; charset={charset}"}
    body = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n\r\n' + content(1) + b"\r\n--x--\r\n"
    )
    answer = client.post("/api/search", content=body, headers=head)
    assert answer.status_code in (200, 422)
    assert answer.status_code == 200 or answer.json()["cure"]


def test_an_upload_is_never_written_to_a_disk(client, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    large = io.BytesIO()
    pixels(1, size=(1200, 800)).save(large, "BMP")
    assert len(large.getvalue()) > 2 << 20
    assert upload(client, large.getvalue()).status_code == 200


def test_the_description_names_every_address(client):
    described = client.get("/openapi.json").json()
    assert {"/api/search", "/api/explain", "/api/items", "/api/image/{id}", "/api/map"} <= described["paths"].keys()
    kinds = described["paths"]["/api/search"]["post"]["requestBody"]["content"]
    assert kinds.keys() == {"multipart/form-data", "application/json"}
    assert "like" in described["components"]["schemas"]["SearchRequest"]["properties"]


def test_answers_are_as_they_are_described(client):
    asked = {
        answers.SearchAnswer: client.post("/api/search", json={"id": 1, "k": 3}),
        answers.ExplainAnswer: client.post("/api/explain", json={"a": {"id": 1}, "b": {"id": 2}}),
        answers.PartsAnswer: client.post("/api/parts", json={"of": {"id": 1}}),
        answers.ItemsAnswer: client.get("/api/items"),
        answers.CollectionsAnswer: client.get("/api/collections"),
        answers.Health: client.get("/healthz"),
        answers.Trouble: client.get("/api/image/99"),
    }
    given = {model: answer.json() for model, answer in asked.items()}
    given[answers.MapAnswer] = later(client, "/api/map")
    given[answers.CodewordsAnswer] = later(client, "/api/codewords")
    given[answers.DuplicatesAnswer] = later(client, "/api/duplicates")
    for model, answer in given.items():
        assert model.model_validate(answer).model_dump(mode="json", exclude_unset=True) == answer


def later(client, address):
    for _ in range(200):
        answer = client.get(address)
        if answer.status_code != 202:
            return answer.json()
    raise AssertionError("never done")


def test_the_map_has_a_place_for_every_item_and_is_kept(client, photos):
    answer = later(client, "/api/map")
    assert answer["ids"] == photos.ids().tolist()
    assert np.all((np.array(answer["places"]) >= 0) & (np.array(answer["places"]) <= 1))
    assert photos.map()[0].tolist() == answer["ids"]


def test_codewords_are_those_of_the_model(client):
    answer = later(client, "/api/codewords")
    assert len(answer["codewords"]) == 4
    assert sum(word["usage"] for word in answer["codewords"]) == pytest.approx(1, abs=1e-3)


def test_who_waits_for_something_slow_is_told_how_far_it_is():
    going = threading.Event()

    def slow(said):
        said(3, 10)
        going.wait(60)
        return {"answer": 42}

    class Still:
        async def run(self, function):
            return 1

    async def asked():
        once, service = Once(slow), cast("Service", Still())
        waits = await once.answer(service)
        going.set()
        while (given := await once.answer(service)).status_code == 202:
            pass
        return waits, given

    waits, given = asyncio.run(asked())
    assert (waits.status_code, json.loads(bytes(waits.body))) == (202, {"computing": True, "done": 3, "total": 10})
    assert json.loads(bytes(given.body)) == {"answer": 42}


def test_a_duplicate_that_was_dismissed_does_not_come_back(client, photos):
    groups = later(client, "/api/duplicates")["groups"]
    copies = next([item["id"] for item in g["items"]] for g in groups if g["tier"] == "bytes")
    assert {photos.item(id).name.rpartition("/")[2] for id in copies} == {"h1.png", "copy.png"}
    assert client.post("/api/dismiss", json={"ids": copies}).status_code == 200
    after = later(client, "/api/duplicates")["groups"]
    assert copies not in [[item["id"] for item in g["items"]] for g in after if g["tier"] == "bytes"]
    assert not [g for g in photos.duplicates(["bytes"]) if list(g.ids) == copies]
