"""The verbs of the index as a user meets them: index, search, update, duplicates, info, check."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from index_pictures import folder, picture, small_model
from secondsight.cli.main import app
from secondsight.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder of pictures, a saved model, and the index that the command line made of them."""
    root = tmp_path_factory.mktemp("cli")
    folder(root / "photos", classes="abc", each=10)
    (root / "photos/a/broken.jpg").write_bytes(b"\xff\xd8\xff nothing")
    small_model().save(root / "model")
    done = run("index", root / "photos", "--model", root / "model", "-o", root / "p.index")
    assert "30 added, 1 set aside" in done
    assert "broken.jpg" in done
    assert "exact" in done
    return root


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "400"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.output


def test_a_search_prints_scores_labels_and_paths_and_draws_a_sheet(place):
    query = place / "photos/b/3.png"
    sheet = place / "out.png"
    text = run("search", place / "p.index", query, 7, "-k", "4", "--sheet", sheet)
    first = next(line for line in text.splitlines() if "b/3.png" in line and "1.000" in line)
    assert " b " in first
    assert Image.open(sheet).size[0] > 4 * 150
    assert Image.open(sheet).size[1] > 2 * 150


def test_json_is_for_programs(place):
    found = json.loads(
        run("search", place / "p.index", place / "photos/b/3.png", "-k", "40", "--where", "label=b", "--json")
    )
    assert [hit["label"] for hit in found[0]["hits"]] == ["b"] * 10
    assert found[0]["why"] == "10 of 30 items pass the filter"
    assert found[0]["hits"][0]["score"] == pytest.approx(1, abs=1e-3)
    assert json.loads(run("info", place / "p.index", "--json"))["items"] == 30


def test_pictures_that_cannot_be_read_are_set_aside_and_the_others_answered(place):
    good, other, broken = place / "photos/b/3.png", place / "photos/c/1.png", place / "photos/a/broken.jpg"
    text = run("search", place / "p.index", good, broken, other, "-k", "2", "--sheet", place / "two.png")
    assert text.count("like ") == 2
    assert "1 of 3 pictures cannot be read" in text
    assert "broken.jpg: not a picture" in text or "broken.jpg: " in text
    assert Image.open(place / "two.png").size[1] < 3 * 200
    text = run("search", place / "p.index", broken, good, "--json")
    alone, *rest = json.loads(text[text.index("[\n") : text.rindex("]\n") + 1])
    assert alone["query"] == str(good)
    assert [(r["query"], r["hits"], bool(r["why"])) for r in rest] == [(str(broken), [], True)]
    with pytest.raises(DataError, match=r"broken\.jpg"):
        run("search", place / "p.index", broken, broken)


def test_examples_for_and_against_give_one_answer(place):
    text = run("search", place / "p.index", "--like", 3, "--like", place / "photos/a/1.png", "--unlike", 20, "-k", "3")
    assert text.count("photos/") >= 3


def test_update_says_what_it_did(place):
    picture(place / "photos/d/new.png", 999)
    assert "1 added, 30 unchanged" in run("update", place / "p.index")
    (place / "photos/d/new.png").unlink()
    assert "1 removed" in run("update", place / "p.index", "--compact")
    assert "ivf-sq8" in run("update", place / "p.index", "--structure", "ivf-sq8")
    assert "worst percentile" in run("update", place / "p.index", "--recall", "0.9")
    run("update", place / "p.index", "--structure", "exact")


def test_index_again_goes_on_where_it_was(place):
    assert "already" in run("index", place / "photos", "-o", place / "p.index")


def test_ctrl_c_says_that_the_same_command_continues(place, monkeypatch):
    from secondsight.index import Index

    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Index, "add", stopped)
    assert "the same command continues" in run("index", place / "photos", "-o", place / "p.index", code=130)


def test_duplicates_and_dismissals(place):
    copy = place / "photos/a/copy.png"
    copy.write_bytes((place / "photos/a/0.png").read_bytes())
    run("update", place / "p.index")
    groups = json.loads(run("duplicates", place / "p.index", "--tier", "bytes", "--json"))
    assert [len(group["items"]) for group in groups] == [2]
    ids = ",".join(str(item["id"]) for item in groups[0]["items"])
    run("duplicates", place / "p.index", "--dismiss", ids)
    with pytest.raises(ConfigError, match="an id is there twice"):
        run("duplicates", place / "p.index", "--dismiss", "3,3")
    assert "0 groups" in run("duplicates", place / "p.index", "--tier", "bytes")


def test_check_ends_with_1_when_something_is_damaged(place, tmp_path):
    run("index", place / "photos", "--model", place / "model", "-o", tmp_path / "x.index")
    assert " in 1 segment: every checksum is right" in run("check", tmp_path / "x.index")
    victim = next((tmp_path / "x.index/segments").iterdir())
    content = bytearray(victim.read_bytes())
    content[-1] ^= 1
    victim.write_bytes(content)
    assert "--repair" in run("check", tmp_path / "x.index", code=1)
    assert "secondsight update" in run("check", tmp_path / "x.index", "--repair")
    assert "added" in run("update", tmp_path / "x.index")
    assert "every checksum is right" in run("check", tmp_path / "x.index")


def test_check_does_not_offer_to_repair_what_it_cannot(place, tmp_path):
    shutil.copytree(place / "p.index", tmp_path / "x.index")
    config = tmp_path / "x.index/model/config.toml"
    config.write_text(config.read_text().replace("size = ", "size = 1"))
    said = run("check", tmp_path / "x.index", code=1)
    assert "x.index/model" in said
    assert "--repair" not in said
    (tmp_path / "x.index/index.sqlite").write_bytes(b"")
    with pytest.raises(DataError, match="restore it from a copy, or make the index again"):
        run("check", tmp_path / "x.index")


def test_a_folder_that_is_not_there_is_answered_with_the_line_to_type(place, tmp_path):
    folder(tmp_path / "photos", classes="a", each=2)
    run("index", tmp_path / "photos", "--model", place / "model", "-o", tmp_path / "x.index")
    (tmp_path / "photos").rename(tmp_path / "away")
    with pytest.raises(DataError, match=f"secondsight update {re.escape(str(tmp_path))}/x.index --gone"):
        run("update", tmp_path / "x.index")


def test_info_knows_models_and_refuses_what_is_neither(place, tmp_path):
    assert "fingerprint" in run("info", place / "model")
    done = subprocess.run(
        [sys.executable, "-m", "secondsight", "info", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "neither an index" in done.stderr


@pytest.mark.parametrize("options", [[], ["--model", "average"]], ids=["fitted", "average"])
def test_a_folder_without_labels_or_training_becomes_an_index(place, tmp_path, options):
    """With random weights: the published ones are no part of this claim."""
    words = [place / "photos", "-o", tmp_path / "f.index", "--weights", "random", "--size", 64, *options]
    text = run("index", *words)
    assert ("nothing fitted" if options else "of these pictures; no labels, no training") in text
    found = json.loads(run("search", tmp_path / "f.index", place / "photos/c/2.png", "-k", "1", "--json"))
    assert found[0]["hits"][0]["path"].endswith("c/2.png")


def test_evaluate_says_what_re_ranking_brings(tmp_path):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 8)
    np.save(
        tmp_path / "v.npy", (rng.standard_normal((10, 8))[labels] + rng.standard_normal((80, 8))).astype(np.float32)
    )
    (tmp_path / "l.txt").write_text("".join(f"{i}\n" for i in labels))
    words = [tmp_path / "v.npy", "--labels", tmp_path / "l.txt", "--out", tmp_path / "out", "--rerank", "alpha-qe"]
    text = run("evaluate", *words, "--rerank", "k-reciprocal", "--bootstrap", "0")
    assert text.count("MAP@R") >= 2
    assert "k-reciprocal: Recall@1" in text
