"""The examples in docs/serving.md do what they say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from secondsight.serve.routes import application
from serve_pictures import collection, content, running

PAGE = (Path(__file__).parents[1] / "docs" / "serving.md").read_text(encoding="utf-8")


def block(kind: str) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    assert found, f"no example in {kind}"
    return found[1]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documentation")
    (folder / "query.png").write_bytes(content(700))
    with running(application([collection(folder, each=2)])) as address:
        yield address.rstrip("/"), str(folder / "query.png")


def test_the_client_in_python(place):
    pytest.importorskip("httpx")
    done = subprocess.run([sys.executable, "-c", block("python"), *place], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 6
    assert "Similarity" in done.stdout


def test_the_client_in_the_shell(place):
    if shutil.which("curl") is None:
        pytest.skip("needs curl")
    for line in block("sh").splitlines():
        done = subprocess.run(
            ["sh", "-c", line],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"SERVER": place[0], "PICTURE": place[1]},
        )
        assert len(json.loads(done.stdout)["hits"]) == 5, done.stdout
