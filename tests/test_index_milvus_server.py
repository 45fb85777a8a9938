"""The contract of all engines, on a real Milvus server in a network of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGES = Path(sys.prefix) / "milvus"
HERE = Path(__file__).parent
ALONE = ["unshare", "--net", "--pid", "--fork", "--kill-child"]


def _why_not() -> str:
    if not (PACKAGES / "milvus").is_dir():
        return f"no Milvus server in {PACKAGES}: `make` puts one there where it can be had"
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return "no unshare and ip to give the server a network of its own"
    if subprocess.run([*ALONE, "ip", "link", "set", "lo", "up"], capture_output=True, check=False).returncode:
        return "this user may not make a network namespace"
    return ""


def test_the_contract_of_engines_holds_on_a_real_milvus_server():
    pytest.importorskip("pymilvus")
    if reason := _why_not():
        pytest.skip(reason)
    contract = ["-m", "pytest", HERE / "test_index_engine.py", "-k", "(milvus and not lite) or upload", "-n0"]
    done = subprocess.run(
        [
            *ALONE,
            sys.executable,
            HERE / "milvus_server.py",
            PACKAGES,
            sys.executable,
            *contract,
            "-p",
            "no:cacheprovider",
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=HERE.parent,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed, 4 skipped" in done.stdout, done.stdout
