"""The command line under bad names, bad places and bad terminals: a sentence, and never an escape or a traceback."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from attempts import run_command
from PIL import Image

import data_layouts as layouts
from secondsight import files
from secondsight.cli import trouble
from secondsight.errors import ConfigError, DataError
from secondsight.terminal import console, json_text, marked, plain


def secondsight(*words: object, binary: bool = False, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "secondsight", *(os.fsencode(str(word)) for word in words)],
        capture_output=True,
        text=not binary,
        env=os.environ | environment,
    )


ODD = ["\x1b[2J", "[/red]", "[bold]x", "bell\a", "\x9b31m", "turned \u202e txt", "two\nlines"]


@pytest.fixture(scope="module")
def odd(tmp_path_factory) -> Path:
    """Classes with names that would act on a terminal, and one that is no text."""
    root = tmp_path_factory.mktemp("odd")
    for number, name in enumerate([*ODD, os.fsdecode(b"caf\xe9")]):
        for i in range(2):
            layouts.picture(root / name / f"{i}.png", 10 * number + i)
    (root / ODD[0] / "broken.png").write_bytes(b"no picture")
    return root


@pytest.mark.parametrize(
    ("words", "code"), [(("stats",), 0), (("verify", "--decode", "--duplicates"), 1), (("stats", "--json"), 0)]
)
def test_names_from_outside_do_not_act_on_the_terminal(odd, words, code):
    done = secondsight("data", words[0], odd, *words[1:], binary=True)
    assert done.returncode == code, done.stderr
    text = done.stdout.decode()  # valid UTF-8
    for character in "\x1b\a\x9b\u202e":
        assert character not in text
    assert b"Traceback" not in done.stderr
    assert b"\x1b" not in done.stderr


def test_json_gives_back_names_that_are_no_text(odd):
    figures = json.loads(secondsight("data", "verify", odd, "--json").stdout)
    assert figures["classes"] == len(ODD) + 1
    assert json.loads(json_text(os.fsdecode(b"caf\xe9"))) == os.fsdecode(b"caf\xe9")


def test_text_from_outside_is_shown_and_does_nothing(capsys):
    assert plain("a\x1b[31m\x9bb\tc\nd\u2028\udce9") == "a�[31m�b�c\nd��"
    out = console(force_terminal=True, width=80)
    with out.capture() as captured:
        out.print("[red]ours[/]", "theirs: \x1b]0;title\x07", marked("[/red][link=x]"), highlight=False)
    text = captured.get()
    assert "\x1b[31mours\x1b[0m" in text  # rich's own codes are there
    assert "\x1b]0" not in text
    assert "[/red][link=x]" in text


@pytest.mark.parametrize("name", ["o[/red]ut", "o[red]ut", "o\x1b[2Jut"])
def test_an_output_may_have_any_name(name, tmp_path):
    np.save(tmp_path / "v.npy", np.eye(6, 4, dtype=np.float32))
    (tmp_path / "labels.txt").write_text("a\na\nb\nb\nc\nc\n")
    words = ["evaluate", tmp_path / "v.npy", "--labels", tmp_path / "labels.txt", "--out", tmp_path / name]
    out, err, code = run_command([str(word) for word in words])
    assert code == 0
    assert plain(name) in err
    assert "\x1b" not in out + err
    assert (tmp_path / name / "report.html").exists()


def test_classes_whose_names_are_no_text_have_a_report(odd, tmp_path, unchecked):
    import train_tiny  # brings a backbone of two layers

    train_tiny.Tiny()
    words = ["evaluate", "tiny", str(odd), "--weights", "random", "--size", "16", "--out", str(tmp_path / "out")]
    out, err, code = run_command(words)
    assert code == 0, err
    assert "\x1b" not in out + err
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "caf�" in page
    assert "\x1b" not in page
    assert len(json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))["per_class"]) == len(ODD) + 1


def test_an_output_that_cannot_be_written_is_known_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(ConfigError, match=r"cannot be written to: Not a directory; choose another place"):
            files.check_writable(place)
    with pytest.raises(ConfigError, match="it is a folder, and a file is to be written"):
        files.check_writable(tmp_path, directory=False)
    with pytest.raises(ConfigError, match="/proc/nothing"):
        files.check_writable("/proc/nothing/x")
    files.check_writable(tmp_path / "a" / "b.json", directory=False)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_files_are_readable_by_whom_the_umask_says(tmp_path):
    from safetensors.numpy import save_file

    before = os.umask(0o022)
    try:
        with files.replacing_directory(tmp_path / "model") as folder:
            save_file({"x": np.zeros(3, np.float32)}, folder / "model.safetensors")
            (folder / "inside").mkdir(mode=0o700)
            (folder / "config.toml").write_text("")
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "model").iterdir()}
        assert modes == {"model.safetensors": 0o644, "config.toml": 0o644, "inside": 0o755}
        os.umask(0o077)
        files.write_text(tmp_path / "private", "x")
        assert stat.S_IMODE((tmp_path / "private").stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_text_files_are_utf8_whatever_the_names_in_them(tmp_path):
    name = os.fsdecode(b"caf\xe9")
    files.write_text(tmp_path / "page.html", f"<p>{name}")
    assert (tmp_path / "page.html").read_text("utf-8") == "<p>caf�"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            PermissionError(13, "Permission denied", "/x"),
            "error: /x: Permission denied; check who may read and write it",
        ),
        (OSError(28, "No space left on device"), "writing the output: No space left on device; free some space"),
        (MemoryError(), "there is not enough memory"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), "not enough memory"),
        (DataError("a [bold]b \x1b"), "error: a [bold]b �"),
    ],
    ids=["permission", "disk", "memory", "torch", "ours"],
)
def test_what_the_system_says_is_a_sentence(error, said, capsys):
    assert trouble.report(error) == 2
    assert said in capsys.readouterr().err


def test_what_nobody_thought_of_is_written_down_for_a_report(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(KeyError) as raised:
        {}["gone"]
    assert trouble.report(raised.value) == 70
    said = capsys.readouterr().err
    (written,) = tmp_path.iterdir()
    assert "fault of secondsight: KeyError: 'gone'" in said
    assert str(written) in said
    assert "Traceback" not in said
    assert '{}["gone"]' in written.read_text()


INTERRUPTED = """
import os, signal, sys
class Impatient:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Impatient())
signal.signal(signal.SIGINT, signal.default_int_handler)
from secondsight.__main__ import run
run()
"""


def test_ctrl_c_while_the_program_loads_or_works_is_no_traceback(monkeypatch, tmp_path):
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")

    from secondsight.evaluate import Evaluation

    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Evaluation, "of", stopped)
    np.save(tmp_path / "v.npy", np.eye(6, 4, dtype=np.float32))
    (tmp_path / "labels.txt").write_text("a\na\nb\nb\nc\nc\n")
    words = ["evaluate", str(tmp_path / "v.npy"), "--labels", str(tmp_path / "labels.txt"), "--out", str(tmp_path)]
    out, err, code = run_command(words)
    assert code == 130
    assert "Traceback" not in out + err


def test_a_terminal_that_knows_no_letters_and_a_full_one(tmp_path):
    ascii_only = secondsight("data", "list", PYTHONIOENCODING="ascii")
    assert ascii_only.returncode == 0, ascii_only.stderr
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "secondsight", "data", "list"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error: writing the output: No space left on device")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_one_picture_that_is_a_bomb_does_not_stop_a_verb(tmp_path):
    from test_trouble_pictures import png

    layouts.folder(tmp_path / "photos", {"a": 3, "b": 3})
    (tmp_path / "photos" / "a" / "wide.png").write_bytes(png(178_956_970, 1, whole=False))
    done = secondsight("data", "verify", tmp_path / "photos", "--decode", "--json")
    assert done.returncode == 1
    (problem,) = json.loads(done.stdout)["problems"]
    assert "a side may have 65,535 pixels" in problem["examples"][0]
    assert done.stderr == ""  # Pillow has words of its own for it, with a path and a line of its code


def test_no_control_character_of_a_name_comes_into_a_page():
    import jinja2

    from secondsight.templates import environment

    pages = environment("secondsight.evaluate")
    pages.loader = jinja2.DictLoader({"page": "{{ name }} {{ (name | e) }} {{ count }} {{ '<b>' | safe }}"})
    page = pages.get_template("page").render(name="\x1b[2J<i>\udce9", count=3)
    assert page == "�[2J&lt;i&gt;� �[2J&lt;i&gt;� 3 <b>"


def test_a_link_to_a_class_does_not_take_its_name(tmp_path):
    from secondsight import data

    layouts.folder(tmp_path, {"c0": 2, "c1": 2})
    (tmp_path / "c9link").symlink_to(tmp_path / "c0")
    assert data.open(tmp_path).classes == ("c0", "c1")


def test_missing_images_are_set_aside_and_counted_where_that_is_asked_for(tmp_path):
    from secondsight import data
    from secondsight.data.loading.batches import BatchLoader
    from secondsight.data.loading.picture_rows import Pictures
    from secondsight.data.loading.transforms import Resize

    layouts.folder(tmp_path, {"a": 3, "b": 3})
    (tmp_path / "t.csv").write_text("path,label\n" + "".join(f"{c}/{i}.png,{c}\n" for c in "ab" for i in range(4)))
    with pytest.raises(DataError, match=r"2 of 8 listed images are missing.*--missing skip"):
        data.open(tmp_path / "t.csv")
    images = data.open(tmp_path / "t.csv", missing="skip")
    loader = BatchLoader(Pictures(images, Resize(8)), batch_size=8, workers=0)
    (batch,) = loader
    assert (len(images), len(batch), len(loader.failures)) == (8, 6, 2)
    assert "WARNING: 2 of 8 images (25.0 %)" in loader.failures.warning(len(images))
    with pytest.raises(ValueError, match="unknown way with missing files 'maybe'"):
        data.open(tmp_path / "t.csv", missing="maybe")


def test_a_picture_that_is_a_pipe_is_not_waited_for(tmp_path):
    layouts.folder(tmp_path / "photos", {"a": 2, "b": 2})
    os.mkfifo(tmp_path / "photos" / "a" / "pipe.png")
    Image.new("RGB", (5, 5)).save(tmp_path / "photos" / "b" / "x.png")
    assert secondsight("data", "stats", tmp_path / "photos").returncode == 0


def test_a_demo_does_not_remove_what_no_demo_made(tmp_path):
    (tmp_path / "letters.txt").write_text("dear")
    done = secondsight("demo", "--out", tmp_path)
    assert done.returncode == 2
    assert "holds something other than a demo" in done.stderr
    assert (tmp_path / "letters.txt").exists()
