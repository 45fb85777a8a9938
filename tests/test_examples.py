"""The scripts in examples/ run, and show what they say."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

FOLDER = Path(__file__).parents[1] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_run_here_and_listed():
    names = {file.stem for file in FOLDER.glob("*.py")}
    assert names == {"pooling_in_your_model", "search_service", "your_own_loss"}
    assert all(f"`{name}.py`" in (FOLDER / "README.md").read_text("utf-8") for name in names)


def test_a_second_order_layer_sees_what_averaging_cannot():
    accuracy = example("pooling_in_your_model").main()
    assert accuracy["average"] < 0.65
    assert min(accuracy["jcf"], accuracy["jcf-4-2"]) > 0.95


def test_a_loss_of_one_s_own_teaches_digits_never_seen():
    before, after = example("your_own_loss").main(epochs=3)
    assert after.map_at_r > before.map_at_r


def test_the_service_finds_explains_and_follows_the_folder(tmp_path, monkeypatch):
    pytest.importorskip("fastapi")
    from fastapi.testclient import TestClient
    from sklearn.datasets import load_digits

    (tmp_path / "photos").mkdir()
    for i, pixels in enumerate(load_digits().images[:12]):
        Image.fromarray((pixels * 15.9).astype("uint8")).resize((64, 64)).save(tmp_path / "photos" / f"{i}.png")
    module = example("search_service")
    client = TestClient(module.service(module.collection(str(tmp_path / "photos"))))
    photo = {"photo": (tmp_path / "photos" / "3.png").read_bytes()}
    hits = client.post("/search", files=photo).json()
    assert Path(hits[0]["path"]).name == "3.png"
    assert len(hits) == 5
    found = client.post(f"/why/{hits[1]['id']}", files=photo).json()
    assert found["similarity"] == pytest.approx(hits[1]["score"], abs=0.01)
    assert len(found["links"]) == 10
    (tmp_path / "photos" / "11.png").unlink()
    assert len(module.collection(str(tmp_path / "photos"))) == 11


def test_without_a_folder_the_service_says_what_to_give(monkeypatch):
    import runpy

    monkeypatch.setattr(sys, "argv", ["search_service.py"])
    with pytest.raises(SystemExit, match="give a folder"):
        runpy.run_path(str(FOLDER / "search_service.py"), run_name="__main__")
