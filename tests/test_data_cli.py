"""``secondsight data`` as people type it."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tarfile

import pytest
from typer.testing import CliRunner

import data_layouts as layouts
from secondsight import data
from secondsight.cli.data import app
from secondsight.data.statistics import histogram
from secondsight.errors import SecondsightError


def run(*words: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "160"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def whole(*words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "secondsight", "data", *map(str, words)]
    env = os.environ | {"COLUMNS": "160", "PYTHONIOENCODING": "utf-8:strict"}
    return subprocess.run(command, capture_output=True, text=True, env=env)


def test_list_shows_counts_splits_licences_and_the_dead_link():
    text = run("list")
    for words in ("cub200", "5,864 images", "11,318 classes", "dead since 2023", "standard", "validation", "folder"):
        assert words in text
    rows = {row["name"]: row for row in json.loads(run("list", "--json"))}
    assert list(rows) == ["cub200", "cars196", "sop", "table", "folder"]
    assert rows["cub200"]["parts"]["test"] == {"classes": 100, "images": 5_924}
    assert rows["cars196"]["mirrors"]
    assert rows["cub200"]["licence"]


def test_get_installs_a_full_sized_cub_from_a_file(tmp_path):
    layouts.cub(tmp_path / "made", layouts.CUB_FULL, distinct=False)
    with tarfile.open(tmp_path / "CUB_200_2011.tgz", "w:gz") as archive:
        archive.add(tmp_path / "made", "CUB_200_2011")
    words = ("get", "cub200", "--root", tmp_path / "data", "--from", tmp_path / "CUB_200_2011.tgz")
    with pytest.raises(SecondsightError, match=r"not the official file: it has .* bytes, not 1,150,585,339"):
        run(*words)
    text = run(*words, "--no-checksum")
    assert "11,788 images of 200 classes" in text
    assert json.loads(run("get", "cub200", "--root", tmp_path / "data", "--json"))["images"] == 11_788
    assert len(data.splits(f"cub200:{tmp_path / 'data' / 'cub200'}").eval) == 5_924


def test_an_error_on_the_command_line_is_one_sentence_and_code_2(tmp_path):
    done = whole("get", "cars196", "--root", tmp_path)
    assert done.returncode == 2
    assert "error: cars196: the official link is dead since 2023" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_verify_says_that_a_sound_folder_is_sound(tmp_path):
    layouts.folder(tmp_path, dict.fromkeys("abcd", 2))
    assert "✓ no errors" in run("verify", tmp_path, "--decode", "--duplicates")
    report = json.loads(run("verify", tmp_path, "--json"))
    assert (report["ok"], report["images"], report["classes"]) == (True, 8, 4)
    assert report["splits"] == ["validation"]
    assert report["problems"] == []


def test_verify_lists_everything_that_is_wrong_with_a_folder(tmp_path):
    root = layouts.folder(tmp_path / "photos", {"a": 3, "b": 2, "alone": 1})
    (root / "a" / "empty.jpg").touch()
    (root / "a" / "broken.jpg").write_bytes(b"no picture")
    (root / "a" / "cut.png").write_bytes((root / "a" / "0.png").read_bytes()[:-30])
    (root / "b" / "copy.png").write_bytes((root / "a" / "0.png").read_bytes())
    (root / "b" / "again.png").write_bytes((root / "b" / "1.png").read_bytes())
    (root / "b" / "photo.psd").touch()
    (root / "b" / "loop").symlink_to(root)
    layouts.picture(root / "b" / "inner" / "0.png", 999)
    report = data.verify(root, decode=True, duplicates=True)
    found = {p.message.split(";")[0]: (p.severity, p.count) for p in report.problems}
    assert found == {
        "empty files": ("error", 1),
        "links that lead nowhere or in a circle": ("warning", 1),
        "not images by name (.psd ×1)": ("warning", 1),
        "folders inside class folders": ("warning", 1),
        "classes with one image": ("warning", 1),
        "cannot be decoded": ("error", 3),
        "the same picture in different classes": ("error", 1),
        "the same picture more than once": ("warning", 1),
    }
    undecodable = next(p for p in report.problems if p.message == "cannot be decoded").examples
    assert [line.split(":")[0] for line in undecodable] == ["a/broken.jpg", "a/cut.png", "a/empty.jpg"]
    text = run("verify", root, "--decode", code=1)
    assert "✗ 2 kinds of error" in text
    assert "--min-images 2" in text


def test_verify_finds_pictures_that_leak_from_train_to_test(tmp_path):
    layouts.folder(tmp_path / "train", {"a": 2, "b": 2})
    (tmp_path / "test" / "a").mkdir(parents=True)
    (tmp_path / "test" / "a" / "leak.png").write_bytes((tmp_path / "train" / "a" / "0.png").read_bytes())
    (problem,) = (p for p in data.verify(tmp_path, duplicates=True).problems if p.severity == "error")
    assert problem.message.startswith("the same picture in different parts")
    assert problem.examples == ("test/a/leak.png = train/a/0.png",)


def test_verify_counts_what_an_official_layout_lacks(tmp_path):
    root = layouts.cub(tmp_path, layouts.per_class(range(1, 101), 5_864), distinct=False)
    (root / "images" / "007.Bird_7" / "Bird_007_0.jpg").unlink()
    layouts.picture(root / "images" / "007.Bird_7" / "new.jpg")
    report = data.verify(root)
    messages = [p.message for p in report.problems]
    assert any("5,924 images of 100 classes, but 0 images" in m for m in messages)
    gone = next(p for p in report.problems if p.message == "listed, but not there")
    assert (gone.count, gone.examples[0]) == (59, "images/007.Bird_7/Bird_007_0.jpg")
    extra = next(p for p in report.problems if "on no list" in p.message)
    assert extra.examples == ("images/007.Bird_7/new.jpg",)
    assert report.splits == ("validation",)
    assert not report.ok


def test_verify_of_something_that_does_not_open_is_a_report_too(tmp_path):
    (tmp_path / "t.csv").write_text("path,lable\na.jpg,b\n")
    report = json.loads(run("verify", tmp_path / "t.csv", "--json", code=1))
    assert "did you mean 'lable'" in report["problems"][0]["message"]
    assert "nothing, it does not open" in run("verify", tmp_path / "t.csv", code=1)


def test_verify_decodes_real_birds(shared):
    report = data.verify(shared / "data" / "CUB_200_2011")
    assert [p.severity for p in report.problems] == ["error"]  # the test half is not here
    assert report.splits == ("validation",)
    assert report.parts == {"train": 5_864}


def test_stats_counts_what_is_there(tmp_path):
    layouts.folder(tmp_path, {"a": 5, "b": 3, "alone": 1})
    layouts.picture(tmp_path / "b" / "grey.jpg", 1, mode="L", size=(20, 30))
    (tmp_path / "b" / "copy.png").write_bytes((tmp_path / "b" / "0.png").read_bytes())
    (tmp_path / "b" / "broken.jpg").write_bytes(b"no picture")
    figures = json.loads(run("stats", tmp_path, "--json", "--duplicates"))
    assert (figures["images"], figures["classes"], figures["single"]) == (12, 3, 1)
    assert figures["per_class"] == {"min": 1.0, "median": 5.0, "max": 6.0}
    assert figures["width"] == {"min": 9.0, "median": 9.0, "max": 20.0}
    assert figures["modes"] == {"RGB": 10, "L": 1}
    assert figures["formats"] == {"PNG": 10, "JPEG": 1}
    assert (figures["sampled"], figures["unreadable"], figures["duplicates"]) == (12, 1, 1)
    assert sum(count for _, _, count in figures["histogram"]) == 3
    assert figures["fingerprint"] == data.open(tmp_path).fingerprint()
    text = run("stats", tmp_path)
    for words in ("classes with one image", "drop them with --min-images 2", "Images per class", "█"):
        assert words in text


def test_stats_of_a_part_and_of_a_set_without_labels(tmp_path):
    layouts.folder(tmp_path / "x" / "train", {"a": 2, "b": 2})
    layouts.folder(tmp_path / "x" / "test", {"c": 3})
    assert json.loads(run("stats", tmp_path / "x", "--split", "test", "--json"))["images"] == 3
    layouts.folder(tmp_path / "four", dict.fromkeys("abcd", 2))
    assert data.stats(tmp_path / "four", split="validation").classes == 2
    assert data.stats(tmp_path / "x").parts["train"] == {"images": 4, "classes": 2}
    layouts.picture(tmp_path / "flat" / "0.png")
    text = run("stats", tmp_path / "flat")
    assert "no labels" in text
    assert "images per class" not in text


def test_a_histogram_covers_every_class_once():
    import numpy as np

    for counts in ([1], [1, 1, 2], list(range(1, 101)), [2, 1000], [41, 60, 60]):
        rows = histogram(np.array(counts))
        assert len(rows) <= 10
        assert sum(n for _, _, n in rows) == len(counts)
        assert rows[0][0] == min(counts)
        assert rows[-1][1] == max(counts)
        assert all(end + 1 == start for (_, end, _), (start, _, _) in itertools.pairwise(rows))
    assert histogram(np.zeros(0, int)) == ()


def test_names_that_look_like_markup_or_are_no_text_are_printed(tmp_path):
    layouts.folder(tmp_path / "[red]photos[/]", {"[bold]": 2, os.fsdecode(b"caf\xe9"): 2})
    for verb in ("verify", "stats"):
        done = whole(verb, tmp_path / "[red]photos[/]")
        assert done.returncode == 0, done.stderr
        assert "[red]photos[/]" in done.stdout
        assert json.loads(run(verb, tmp_path / "[red]photos[/]", "--json"))["images"] == 4


def test_the_verbs_do_not_wait_for_torch():
    code = (
        "import sys; import secondsight.cli.main, secondsight.data.readers.registry; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_public_names_are_there():
    for name in data.__all__:
        assert getattr(data, name) is not None
    with pytest.raises(AttributeError, match="attribute opne"):
        data.opne  # noqa: B018


def test_cache_shows_what_it_holds_and_makes_room(tmp_path):
    layouts.folder(tmp_path / "photos", {"a": 3, "b": 2})
    images = data.open(tmp_path / "photos")
    for side in (8, 16):
        data.FeatureCache(tmp_path / "cache").features(
            images,
            lambda x: x.float().flatten(1),
            transform=data.Resize(side),
            key={"network": "eye up to 1"},
        )
    held = json.loads(run("cache", "--directory", tmp_path / "cache", "--json"))["entries"]
    assert sorted(entry["shape"] for entry in held) == [[3 * 8 * 8], [3 * 16 * 16]]
    text = run("cache", "--directory", tmp_path / "cache")
    assert "768" in text
    assert "eye" in text
    assert str(tmp_path / "cache") in text.replace("\n", "")
    with pytest.raises(SecondsightError, match="10GB, 500MB or 0"):
        run("cache", "--directory", tmp_path / "cache", "--keep", "much")
    assert "removed 2" in run("cache", "--directory", tmp_path / "cache", "--keep", "0")
    assert data.FeatureCache(tmp_path / "cache").entries() == []
    assert "0 bytes in all" in run("cache", "--directory", tmp_path / "cache")
