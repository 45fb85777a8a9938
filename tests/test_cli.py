"""The command line as a user meets it: help, lists, mistakes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import secondsight
from secondsight.cli.main import app
from secondsight.pooling import POOLINGS

run = CliRunner().invoke


def test_version():
    result = run(app, ["--version"])
    assert result.exit_code == 0
    assert result.output.strip() == f"secondsight {secondsight.__version__}"


def test_help_lists_every_verb_and_every_verb_teaches():
    verbs = [c.name or c.callback.__name__ for c in app.registered_commands]
    assert {"poolings", "backbones", "losses", "evaluate", "train"} <= set(verbs)
    overview = run(app, ["--help"]).output
    for verb in verbs:
        assert verb in overview
        shown = run(app, [verb, "--help"])
        assert shown.exit_code == 0
        assert len(shown.output.split()) > 30, f"{verb} --help says next to nothing"


def test_poolings_lists_every_family():
    rows = json.loads(run(app, ["poolings", "--json"]).output)
    assert {row["family"] for row in rows} == set(POOLINGS)
    jcf = next(row for row in rows if row["name"] == "jcf-32-8")
    assert round(jcf["parameters"] / 1e6, 1) == 2.6
    assert jcf["output"] == 512
    assert all(row["summary"] and row["paper"] for row in rows)
    assert jcf["gflops"] == pytest.approx((2 * 49 * 2048 * 256 + 49 * 4 * 8 * 256 * 512) / 1e9, rel=0.01)
    table = run(app, ["poolings", "--channels", "512"]).output
    assert "jcf-32-8" in table
    assert "512 channels" in table


def test_a_mistake_is_a_sentence_and_not_a_traceback():
    command = [sys.executable, "-m", "secondsight", "poolings", "--compare", ".", "--only", "jfc"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "did you mean 'jcf'" in done.stderr
    assert "Traceback" not in done.stderr


def test_python_dash_m_is_the_same_program():
    done = subprocess.run(
        [sys.executable, "-m", "secondsight", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("secondsight ")


def test_a_command_to_copy_works_without_an_activated_environment(monkeypatch):
    from secondsight.cli.verb import command

    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/secondsight")
    assert command("search", "my photos.index") == "secondsight search 'my photos.index'"
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(sys, "argv", [".venv/bin/secondsight", "demo"])
    assert command("serve") == ".venv/bin/secondsight serve"
    monkeypatch.setattr(sys, "argv", ["src/secondsight/__main__.py", "demo"])
    assert command("serve").endswith("-m secondsight serve")
