"""Every command and Python block of README, docs and helps is run on a small desk; ``NOT_RUN`` says which are not."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import typer.main
from typer.core import TyperGroup

from documented import PAGES, ROOT, blocks, fenced, mentioned, python, words
from documented_world import World, run
from secondsight.cli.main import app
from test_help import VERBS, help_lines

NOT_RUN = {
    r"^make |^pytest ": "a part of `make test`, or all of it",
    r"^pip |^docker ": "installs; tests/test_container.py runs what the Dockerfile starts",
    r"^curl ": "tests/test_serve_documentation.py",
    r"^secondsight serve": "runs until it is stopped: tests/test_serve_*",
    r"^secondsight demo": "takes minutes: tests/test_demo.py, on few pictures",
    r"^secondsight (compress|poolings) .*CUB": "looks at thousands of pictures; the same with ./photos is run",
    r"^secondsight data get": "downloads: tests/test_data_download.py, from a server of its own",
    r"^secondsight export .*--int8": "tries every layer, a minute: tests/test_export_precision.py",
    r"milvus:": "needs a server: tests/test_index_milvus_server.py",
    r"hf:facebook": "needs a public hub; the lines with hf:./DIRECTORY are run",
    r"^python benchmarks/": "takes minutes, or needs data that is not shipped",
    r"^python (docs|tests)/": "tests/test_documentation_site.py, tests/trouble",
}
"""What is parsed only, and why."""

SMALLER = {
    r"^secondsight train.*(CUB|cub200:)": "--set model.size=32 --dry-run",
    r"^secondsight train cub-vgg16.*cub200:PATH": "--set model.weights=vgg16.safetensors",  # else from a hub
    r"^secondsight evaluate.*CUB": "--size 32",
    r"^secondsight evaluate vgg16": "--size 32",
    r"^secondsight reproduce \S+ --data": "--dry-run",
    r"^torchrun .*secondsight train": "--out runs/by-torchrun",  # a page shows variants: each is a run of its own
    r"^secondsight poolings --compare": "--only average --only jcf-4 --epochs 1",
}
"""What is added to a command so that it ends in seconds."""

BEFORE = {
    r"--where '?year": "secondsight index years.csv -o photos.index",
    r"--among": "secondsight index ./album -o photos.index",
}
"""What must be there before a command: said in the text around it."""

GIVEN = """
import torch
from pathlib import Path
from secondsight import index
images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
x, mask = torch.randn(2, 9, 256), torch.ones(2, 9, dtype=torch.bool)
z, embeddings = torch.randn(24, 512, requires_grad=True), torch.randn(24, 8)
labels = torch.arange(4).repeat_interleave(6)
if Path("photos.index").exists():
    photos = index.open("photos.index")
    vectors = photos.vectors()
"""
"""What the Python of a page may take for granted."""


SHOWN = {line.split(" #")[0].strip() for page in PAGES for line in fenced(page)}
"""What some page has in a block of its own need not be run again where a text mentions it."""

PYTHON_ELSEWHERE = {"docs/serving.md": "a program with arguments, for a server: tests/test_serve_documentation.py"}


def whole(line: str) -> bool:
    """Whether a command in running text could be typed as it stands: nothing is missing, no word stands for others."""
    if not line.startswith("secondsight ") or re.search(r"…| > |\b(?!CUB_200_2011)[A-Z]{2,}\b", line):
        return False
    try:
        parse(line)
    except Exception:
        return False
    return True


def parse(line: str) -> None:
    """Fail where the command line would not understand a command; nothing is run."""
    command, (_, *rest) = typer.main.get_command(app), shlex.split(re.sub(r"^torchrun .* -m ", "", line))
    while isinstance(command, TyperGroup):
        assert rest, f"{line}: no verb"
        assert rest[0] in command.commands, f"{line}: there is no verb {rest[0]!r}"
        command, rest = command.commands[rest[0]], rest[1:]
    command.make_context(line, rest)


def perform(started: tuple[str, ...]) -> None:
    """Run what a shell would start, unless a list above says why not."""
    line = " ".join(started)
    if any(re.search(pattern, line) for pattern in NOT_RUN):
        return
    more = " ".join(words for pattern, words in SMALLER.items() if re.search(pattern, line))
    started = (*started, *shlex.split(more))
    for pattern, first in BEFORE.items():
        if re.search(pattern, line):
            run(tuple(shlex.split(first)))
    if started[0] == "torchrun":  # tests/test_train_distributed.py and test_embed.py start several processes
        started = started[started.index("secondsight") :]
    if started[0] == "python":
        script = [str(ROOT / word) if word.startswith("benchmarks/") else word for word in started[1:]]
        done = subprocess.run([sys.executable, *script], capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    else:
        run(started)
    for made in re.findall(r"(?:-o|--out|--sheet|--why|--page|--save) (\S+)", line):
        assert Path(made).exists() or "--dry-run" in started, made


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> World:
    return World(tmp_path_factory.mktemp("world"))


@pytest.fixture
def poolings():
    """Poolings that a page adds are gone after it."""
    from secondsight.pooling import POOLINGS

    before = dict(POOLINGS)
    yield
    for name in POOLINGS.keys() - before.keys():
        del POOLINGS[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_a_page_prints_works_from_its_first_line_to_its_last(page, world, poolings, monkeypatch):
    name = str(page.relative_to(ROOT))
    lines = [*fenced(page), *(line for line in mentioned(page) if whole(line) and line not in SHOWN)]
    world.tidy(lines)
    monkeypatch.chdir(world.desk)
    for block in blocks(page, "toml"):
        Path("mine.toml").write_text(block)
    for started in dict.fromkeys(words(lines, world.desk)):
        perform(started)
    for report in Path("runs").glob("evaluate-photos*/report.json"):
        assert json.loads(report.read_text())["warnings"] == [], "judges classes that did not teach"
    if name not in PYTHON_ELSEWHERE:
        names: dict = {}
        for code in (GIVEN, *python(page)):
            exec(compile(code, name, "exec"), names)
        CLAIMS.get(name, lambda names: None)(names)


def test_the_line_that_every_help_begins_with_works(world, monkeypatch):
    examples = [help_lines(verb, 120) for verb in VERBS]
    lines = [next(line.strip() for line in lines[1:] if line.strip()) for lines in examples]
    lines.sort(key=lambda line: "train --data" not in line)
    world.tidy(lines)
    monkeypatch.chdir(world.desk)
    for started in words(lines, world.desk):
        perform(started)


def readme(names: dict) -> None:
    added, size = names["contributions"].sum(1), names["contributions"].abs().sum(1)
    torch.testing.assert_close((added - names["z"]) / size, torch.zeros_like(size), atol=1e-5, rtol=0)
    assert names["why"].links.sum() == pytest.approx(names["why"].similarity, abs=1e-5)
    assert len(names["hits"].paths[0]) == 10


def own_pooling(names: dict) -> None:
    assert names["z"].shape == (2, 256)
    assert names["why"].exact
    assert names["why"].links.sum() == pytest.approx(names["why"].similarity, abs=1e-5)


CLAIMS = {"README.md": readme, "docs/how-to/own-pooling.md": own_pooling}
"""What must be true after a page's Python."""


def test_nothing_is_left_out_or_made_smaller_that_no_page_prints():
    lines = [line for page in PAGES for line in (*fenced(page), *mentioned(page))] + ["secondsight demo"]
    for pattern in (*NOT_RUN, *SMALLER, *BEFORE):
        assert any(re.search(pattern, line) for line in lines), pattern
    assert {name for name in PYTHON_ELSEWHERE if python(ROOT / name)} == set(PYTHON_ELSEWHERE)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_verbs_options_scripts_and_targets_exist(page, tmp_path):
    for started in words(fenced(page), tmp_path):
        if started[0] in ("secondsight", "torchrun"):
            parse(shlex.join(started))
    for line in mentioned(page):
        program, *rest = shlex.split(line.replace("…", ""))
        if program == "secondsight":
            known_words(rest)
        if program == "python" and "/" in rest[0] and rest[0].endswith(".py"):
            source = (ROOT / rest[0]).read_text("utf-8")
            assert [word for word in rest if word.startswith("--") and f'"{word}"' not in source] == [], line
        if program == "make":
            targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.M))
            assert {word for word in rest if "=" not in word} <= targets


def known_words(rest: list[str]) -> None:
    command, path = typer.main.get_command(app), "secondsight"
    while isinstance(command, TyperGroup) and rest and rest[0] in command.commands:
        path, command, rest = f"{path} {rest[0]}", command.commands[rest[0]], rest[1:]
    assert path != "secondsight" or not rest or rest[0] in ("VERB", "--help"), f"there is no verb {rest[0]!r}"
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}
    options = {word for word in rest if re.match(r"--?[a-z]", word)}
    assert options <= known, f"{path}: {options - known}"


def test_a_pooling_of_one_s_own_takes_as_many_lines_as_the_page_says():
    first, _ = python(ROOT / "docs/how-to/own-pooling.md")
    lines = [line for line in first.splitlines() if line.strip() and not line.lstrip().startswith(("import", "from"))]
    assert len(lines) <= 20


def test_readme_counts_what_there_is():
    from secondsight.losses import LOSSES
    from secondsight.pooling import POOLINGS

    assert f"{len(POOLINGS)} poolings and {len(LOSSES)} losses" in (ROOT / "README.md").read_text("utf-8")
