"""A user's typed program sees types: pyright in strict mode, on public names alone; and the program runs."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import secondsight

OUTSIDE = Path(__file__).parent / "outside"


def test_the_public_names_work(tmp_path):
    runpy.run_path(str(OUTSIDE / "public_names.py"))["main"](str(tmp_path))


def test_pyright_knows_their_types(tmp_path):
    pytest.importorskip("pyright", reason="pyright is not installed: pip install 'secondsight[dev]'")
    source = Path(secondsight.__file__).parents[1]
    settings = json.loads((OUTSIDE / "pyrightconfig.json").read_text()) | {"extraPaths": [str(source)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    shutil.copy(OUTSIDE / "public_names.py", tmp_path)
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--project", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (source / "secondsight" / "py.typed").is_file()
