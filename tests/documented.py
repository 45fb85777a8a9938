"""What README and docs print: commands as a shell would read them, and Python."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PROGRAMS = ("secondsight", "python", "torchrun", "pip", "pytest", "make", "docker", "curl")


def blocks(page: Path, *kinds: str) -> list[str]:
    """The bodies of a page's fenced blocks of these kinds."""
    fences = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", page.read_text("utf-8"), flags=re.M | re.S)
    return [body for kind, body in fences if kind in kinds]


def python(page: Path) -> list[str]:
    return blocks(page, "python")


def fenced(page: Path) -> list[str]:
    """The commands in a page's fenced blocks, continued lines joined."""
    shell = "\n".join(blocks(page, "", "bash", "sh", "console")).replace("\\\n", " ")
    lines = [line.strip().removeprefix("$ ") for line in shell.splitlines()]
    return [line for line in lines if re.match(rf"([A-Z_]+=\S+ )*({'|'.join(PROGRAMS)}) ", line)]


def mentioned(page: Path) -> list[str]:
    """The commands in a page's running text, with whatever stands for words of one's own."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    lines = [" ".join(line.split()) for line in re.findall(r"`([^`]+)`", text)]
    return [line for line in lines if line.startswith(tuple(f"{program} " for program in PROGRAMS))]


def words(lines: list[str], folder: Path) -> list[tuple[str, ...]]:
    """The programs that a shell in ``folder`` starts for these lines, each with its words; none of them is run.

    A shell reads quotes, comments, ``*``, ``>`` and ``&&`` as it does for a reader who copies the line.
    """
    stubs, record = folder / ".stubs", folder / ".started"
    stubs.mkdir(exist_ok=True)
    record.write_text("")
    for name in PROGRAMS:
        stub = f"#!/bin/sh\n{{ printf '%s\\0' {name} \"$@\"; printf '\\1'; }} >> '{record}'\n"
        (stubs / name).write_text(stub)
        (stubs / name).chmod(0o755)
    script = "\n".join(["set -e", *lines])
    environment = os.environ | {"PATH": f"{stubs}{os.pathsep}{os.environ['PATH']}", "PICTURE": "a.jpg", "SERVER": "x"}
    done = subprocess.run(["sh", "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{script}\n{done.stderr}"
    return [tuple(one.split("\0")[:-1]) for one in record.read_text().split("\1")[:-1]]
