"""Atomic files, extras, errors."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from secondsight import errors, files
from secondsight.extras import require
from secondsight.progress import track


def _half_written(path: Path) -> None:
    path.write_text("half")
    raise RuntimeError("power cut")


def test_a_file_is_replaced_as_a_whole(tmp_path: Path):
    target = tmp_path / "deep" / "note.txt"
    files.write_text(target, "one")
    files.write_bytes(target, b"two")
    assert target.read_text() == "two"
    assert [p.name for p in target.parent.iterdir()] == ["note.txt"]


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path):
    target = tmp_path / "note.txt"
    files.write_text(target, "old")
    with pytest.raises(RuntimeError), files.replacing(target) as temporary:
        _half_written(temporary)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_new_file_has_the_mode_that_open_would_give(tmp_path: Path):
    files.write_text(tmp_path / "ours", "x")
    (tmp_path / "plain").write_text("x")
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


def test_a_directory_is_replaced_as_a_whole(tmp_path: Path):
    target = tmp_path / "model"
    for content in ("one", "two"):
        with files.replacing_directory(target) as fresh:
            (fresh / content).write_text(content)
    assert [p.name for p in target.iterdir()] == ["two"]
    with pytest.raises(RuntimeError), files.replacing_directory(target) as fresh:
        _half_written(fresh / "three")
    assert [p.name for p in target.iterdir()] == ["two"]
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("before", ["directory", "file", "link", "directory, where two cannot be exchanged"])
def test_whatever_was_there_makes_room_for_a_directory(tmp_path: Path, monkeypatch, before: str):
    target, old = tmp_path / "model", tmp_path / "old"
    old.mkdir()
    (old / "a").write_text("old")
    if before == "file":
        target.write_text("old")
    elif before == "link":
        target.symlink_to(old)
    else:
        shutil.copytree(old, target)
    if "cannot" in before:
        monkeypatch.setattr(files, "_swapped", lambda one, other: False)
    with files.replacing_directory(target) as fresh:
        (fresh / "b").write_text("new")
    assert [path.name for path in target.iterdir()] == ["b"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "old"], "no litter"
    assert (old / "a").read_text() == "old", "what a link leads to is not ours"


@pytest.mark.skipif(sys.platform != "linux", reason="directories are exchanged in one step on Linux")
def test_a_directory_is_there_at_every_moment_while_it_is_replaced(tmp_path: Path, monkeypatch):
    target = tmp_path / "model"
    target.mkdir()
    (target / "a").write_text("0")
    monkeypatch.setattr(os, "replace", lambda *paths: pytest.fail("two renames leave a moment without it"))
    with files.replacing_directory(target) as fresh:
        (fresh / "a").write_text("1")
    assert (target / "a").read_text() == "1"


def test_a_process_killed_in_the_middle_leaves_the_old_file(tmp_path: Path):
    target = tmp_path / "note.txt"
    files.write_text(target, "old")
    code = (
        "import sys, time; from secondsight import files\n"
        f"with files.replacing({str(target)!r}) as t:\n"
        "    t.write_text('half'); print('now', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert target.read_text() == "old"


def test_a_missing_extra_is_named():
    with pytest.raises(errors.MissingExtra, match=r"drawing needs the package 'no_such_thing'.*secondsight\[plots\]"):
        require("no_such_thing.sub", extra="plots", purpose="drawing")


def test_every_error_is_of_the_family():
    kinds = [v for v in vars(errors).values() if isinstance(v, type) and issubclass(v, Exception)]
    assert len(kinds) >= 7
    assert all(issubclass(kind, errors.SecondsightError) for kind in kinds)
    assert all(kind.__name__ in (errors.__doc__ or "") for kind in kinds), "the tree in the docstring is complete"


def test_track_yields_everything_once():
    assert list(track(range(5), "counting")) == [0, 1, 2, 3, 4]
    assert list(track((i for i in range(2)), "counting", total=2)) == [0, 1]
