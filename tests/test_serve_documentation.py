"""The examples in docs/serving.md and docs/deploying.md do what they say."""

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

DOCS = Path(__file__).parents[1] / "docs"


def block(kind: str, page: str = "serving.md") -> str:
    found = re.search(rf"```{kind}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
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


def test_nginx_understands_its_configuration(tmp_path):
    if shutil.which("nginx", path="/usr/sbin:/usr/bin") is None or shutil.which("openssl") is None:
        pytest.skip("needs nginx and openssl")
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=photos.example.org"]
    subprocess.run(
        [*made, "-keyout", tmp_path / "photos.key", "-out", tmp_path / "photos.pem"], check=True, capture_output=True
    )
    site = block("nginx", "deploying.md").replace("/etc/ssl/", f"{tmp_path}/")
    (tmp_path / "site.conf").write_text(site, encoding="utf-8")
    whole = (
        f"pid {tmp_path}/pid; error_log stderr; events {{}} http {{ access_log off; include {tmp_path}/site.conf; }}"
    )
    (tmp_path / "nginx.conf").write_text(whole, encoding="utf-8")
    tried = ["nginx", "-t", "-q", "-c", str(tmp_path / "nginx.conf")]
    path = os.environ["PATH"] + ":/usr/sbin"
    done = subprocess.run(tried, capture_output=True, text=True, check=False, env=os.environ | {"PATH": path})
    assert not [line for line in done.stderr.splitlines() if "[emerg]" in line], done.stderr


def test_systemd_understands_its_unit(tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd")
    unit = tmp_path / "secondsight.service"
    unit.write_text(block("ini", "deploying.md").replace("/opt/secondsight/bin/secondsight", "/bin/true"), "utf-8")
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "secondsight.service" not in done.stderr, done.stderr
