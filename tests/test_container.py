"""The container's own lines, run as they stand in the Dockerfile, with no other packages than it installs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from importlib import metadata
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

import secondsight
from secondsight import Embedder, index
from secondsight.data.loading.transforms import Resize, ResizeCrop
from secondsight.inference import pictures
from secondsight.inference.onnx_file import picture_of, write
from train_tiny import Tiny, free_port, write_digits

pytestmark = pytest.mark.usefixtures("traced")

DOCKERFILE = (Path(__file__).parents[1] / "Dockerfile").read_text().replace("\\\n", " ")
TOKEN = "0123456789abcdef"

ONLY_THESE = """
import json, sys
from importlib.abc import MetaPathFinder

KNOWN = set(sys.stdlib_module_names) | set(json.loads(sys.argv.pop(1)))

class OnlyThese(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in KNOWN and not name.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, OnlyThese())
for name in [n for n in sys.modules if n.split(".")[0] not in KNOWN]:
    del sys.modules[name]
from secondsight.cli.main import main
main()
"""


def installed() -> list[str]:
    """Modules of the packages that the Dockerfile names and of what these need, and of nothing else."""
    wanted = re.search(r"pip install --no-cache-dir (\w.*?) &&", DOCKERFILE)
    assert wanted is not None
    todo, found = wanted[1].split(), set()
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name in found:
            continue
        try:
            needs = [Requirement(text) for text in metadata.requires(name) or []]
        except metadata.PackageNotFoundError:
            continue  # of another system
        found.add(name)
        todo += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    modules = metadata.packages_distributions()
    same = {m for m, names in modules.items() if {re.sub(r"[-_.]+", "-", n).lower() for n in names} & found}
    return sorted(same | {"secondsight", "google"})


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """An index, and its model as an exported file."""
    folder = tmp_path_factory.mktemp("container")
    torch.manual_seed(0)
    model = Embedder.build(backbone=Tiny(), pooling="jcf-4-2", dim=24, reduce=16, size=64).eval()
    index.create(folder / "index", model, write_digits(folder / "digits", classes=3, images=4)).close()
    write(model, folder / "model.onnx", fixed_size=True)
    other = Embedder.build(backbone=Tiny(), pooling="average", dim=24, size=64).eval()
    write(other, folder / "other.onnx", fixed_size=True)
    return folder


def started(*words: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(Path(secondsight.__file__).parents[1])])
    environment = {**os.environ, "PYTHONPATH": path, "SECONDSIGHT_TOKEN": TOKEN, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", ONLY_THESE, json.dumps(installed()), *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*words: str) -> tuple[int, str]:
    process = started(*words)
    out, err = process.communicate(timeout=300)
    return process.returncode, out + err


def test_torch_is_not_among_the_packages():
    assert not {"torch", "lightning_fabric", "pytorch_metric_learning"} & set(installed())
    assert {"onnxruntime", "faiss", "fastapi", "PIL"} <= set(installed())
    assert re.search(r"^USER (?!root)", DOCKERFILE, re.MULTILINE)


def asked(port: int, address: str, body: dict | None = None) -> dict:
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{address}", content, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return json.load(error)


def upload(port: int, picture: Path) -> dict:
    edge = "edge"
    head = f'--{edge}\r\nContent-Disposition: form-data; name="file"; filename="q.png"\r\n\r\n'.encode()
    body = head + picture.read_bytes() + f"\r\n--{edge}--\r\n".encode()
    kind = {"Content-Type": f"multipart/form-data; boundary={edge}", "Authorization": f"Bearer {TOKEN}"}
    with urllib.request.urlopen(
        urllib.request.Request(f"http://127.0.0.1:{port}/api/search", body, kind), timeout=60
    ) as answer:
        return json.load(answer)


def test_the_container_serves_an_index_from_the_exported_model(place):
    port = free_port()
    command = json.loads(re.findall(r"^CMD (\[.*\])", DOCKERFILE, re.MULTILINE)[-1])
    health = json.loads(re.findall(r"HEALTHCHECK .*?CMD (\[.*\])", DOCKERFILE)[0])
    there = {"/index": str(place / "index"), "/model.onnx": str(place / "model.onnx"), "8000": str(port)}
    assert command[0] == "secondsight"
    words = [there.get(word, word) for word in command[1:]]
    words[words.index("0.0.0.0")] = "127.0.0.1"  # a test stays on its machine
    server = started(*words)
    try:
        check = [sys.executable, *(word.replace("8000", str(port)) for word in health[1:])]
        end = time.monotonic() + 120
        while subprocess.run(check, capture_output=True).returncode:
            assert server.poll() is None, server.stderr and server.stderr.read()
            assert time.monotonic() < end
            time.sleep(0.3)
        picture = sorted((place / "digits" / "2").iterdir())[1]
        found = upload(port, picture)
        own = index.open(place / "index").find(picture)
        assert found["hits"][0]["id"] == own
        assert found["hits"][0]["score"] > 0.999
        assert asked(port, "/api/search", {"id": own, "like": [own], "k": 3})["hits"]
        why = asked(port, "/api/explain", {"a": {"id": 0}, "b": {"id": 1}})
        assert "serve the index with its own model" in why["error"]
        described = asked(port, "/api/collections")["collections"][0]
        assert described["trouble"] is None
        assert not described["exact"]
    finally:
        server.terminate()
        server.communicate(timeout=60)


def test_search_and_update_need_no_torch_either(place, tmp_path):
    picture = sorted((place / "digits" / "1").iterdir())[0]
    model = ("--model", str(place / "model.onnx"))
    code, said = run("search", str(place / "index"), str(picture), "-k", "1", "--json", *model)
    assert code == 0, said
    assert json.loads(said)[0]["hits"][0]["score"] > 0.999
    new = place / "digits" / "0" / "new.png"
    new.write_bytes(picture.read_bytes())
    (place / "digits" / "0" / "broken.png").write_bytes(b"no picture")
    code, said = run("update", str(place / "index"), *model)
    assert code == 0, said
    assert "1 added" in said
    found = index.open(place / "index")
    new_id, old_id = found.find(new), found.find(picture)
    assert new_id is not None
    assert old_id is not None
    assert found.vector(new_id) @ found.vector(old_id) > 0.999


def test_without_torch_the_cure_is_named(place):
    code, said = run("search", str(place / "index"), str(next((place / "digits" / "1").iterdir())))
    assert code == 2
    assert "--model FILE.onnx" in said


def test_another_models_file_is_refused(place):
    code, said = run("search", str(place / "index"), "0", "--model", str(place / "other.onnx"))
    assert code == 2
    assert "vectors of different models cannot be compared" in " ".join(said.split())


@pytest.mark.parametrize("transform", [Resize(224), ResizeCrop(224)])
@pytest.mark.parametrize("size", [(300, 500), (500, 333), (64, 64)])
def test_a_file_knows_which_part_of_a_picture_its_model_sees(transform, size):
    assert pictures.seen(picture_of(transform), *size) == pytest.approx(transform.seen(*size))
