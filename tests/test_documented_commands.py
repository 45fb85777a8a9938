"""Every command in README and docs is one that the command line takes; those of README and tutorials are run."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
import typer.main
from PIL import Image
from typer.core import TyperGroup
from typer.testing import CliRunner

from secondsight.cli.main import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

ELSEWHERE = {
    r"CUB_200_2011|cub200:PATH|data get": "a dataset that is not shipped",
    r"vgg16\.safetensors|hf:": "weights that are not shipped",
    r"milvus://": "a server: tests/test_index_milvus_server.py starts one",
    r"secondsight serve": "runs until it is stopped: tests/test_serve_* start it",
    r"poolings --compare": "trains every pooling: tests/test_reproduce_* run it on small images",
    r"reproduce .*(--page|examples/)": "the tables of this repository: tests/test_reproduce_* make pages of others",
    r"--where year": "a table with years: tests/test_index_search.py",
}
"""What is in commands that are not run here, with the reason; they are parsed all the same."""


def fenced(page: Path) -> list[str]:
    """The lines of a page's fenced blocks for a shell, continued lines joined."""
    fences = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", page.read_text("utf-8"), flags=re.M | re.S)
    blocks = [body for kind, body in fences if kind in ("", "bash", "sh", "console")]
    return [line.strip().removeprefix("$ ") for b in blocks for line in b.replace("\\\n", " ").splitlines()]


def commands(page: Path) -> list[str]:
    """Those that run ``secondsight``, also under torchrun, without their comments."""
    lines = [re.sub(r"^torchrun .*?-m (?=secondsight )", "", line) for line in fenced(page)]
    lines = [one for line in lines if line.startswith("secondsight ") for one in line.split(" && ")]
    return [re.split(r"\s#\s|\s\|\s|\s>\s", line)[0].strip() for line in lines]


def mentioned(page: Path, program: str) -> list[list[str]]:
    """The words of the commands in a page's running text, and in its fences where they are not ``secondsight``'s."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    lines = [" ".join(line.split()) for line in re.findall(r"`([^`]+)`", text)]
    lines += [re.split(r"\s+#\s", line)[0] for line in fenced(page) if not line.startswith("secondsight ")]
    lines = [line.replace("…", "") for line in lines if line.startswith(program)]
    return [shlex.split(line)[1:] for line in lines]


def parse(line: str) -> None:
    """Fail where the command line would not understand a command; nothing is run."""
    command = typer.main.get_command(app)
    words = shlex.split(line)[1:]
    while isinstance(command, TyperGroup):
        assert words, f"{line}: no verb"
        assert words[0] in command.commands, f"{line}: there is no verb {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    command.make_context(line, words)


@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_the_command_line_takes_every_documented_command(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for line in commands(page):
        parse(line.replace("…", ""))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_verbs_options_scripts_and_targets_in_the_text_exist(page):
    for words in mentioned(page, "secondsight "):
        command, path = typer.main.get_command(app), "secondsight"
        while isinstance(command, TyperGroup) and words and words[0] in command.commands:
            path, command, words = f"{path} {words[0]}", command.commands[words[0]], words[1:]
        assert path != "secondsight" or not words or words[0] in ("VERB", "--help"), f"there is no verb {words[0]!r}"
        known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help"}
        options = {word for word in words if re.match(r"--?[a-z]", word)}
        assert options <= known, f"{path}: {options - known}"
    for script, *words in mentioned(page, "python "):
        if script.endswith(".py") and "/" in script:
            source = (ROOT / script).read_text("utf-8")
            assert [word for word in words if word.startswith("--") and f'"{word}"' not in source] == [], script
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.M))
    assert {word for words in mentioned(page, "make ") for word in words if "=" not in word} <= targets


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    """A folder as README's reader has it: ``photos/`` with a subfolder per class, and three single pictures."""
    from sklearn.datasets import load_digits

    desk = tmp_path_factory.mktemp("desk")
    digits = load_digits()
    for number in range(4):
        (desk / "photos" / f"digit {number}").mkdir(parents=True)
        for i, pixels in enumerate(digits.images[digits.target == number][:6]):
            image = Image.fromarray((pixels * 15.9).astype("uint8")).resize((48, 40))
            image.save(desk / "photos" / f"digit {number}" / f"{i}.png")
    for name, number in (("a.jpg", 1), ("b.jpg", 1), ("query.jpg", 2)):
        pixels = digits.images[digits.target == number][7 if name == "a.jpg" else 8]
        Image.fromarray((pixels * 15.9).astype("uint8")).resize((64, 64)).convert("RGB").save(desk / name)
    return desk


def run(line: str) -> None:
    if not any(re.search(pattern, line) for pattern in ELSEWHERE):
        done = CliRunner().invoke(app, shlex.split(line)[1:])
        assert done.exit_code == 0, f"{line}\n{done.output}\n{done.exception!r}"


STORIES = [ROOT / "README.md", *sorted((ROOT / "docs/tutorial").glob("*.md"))]
"""Pages whose commands are run in their order, then their Python."""


@pytest.mark.parametrize("page", STORIES, ids=lambda p: p.stem)
def test_a_story_s_commands_work_one_after_the_other(page, desk, monkeypatch):
    monkeypatch.chdir(desk)
    monkeypatch.setenv("SECONDSIGHT_CACHE", str(desk / "cache"))
    for folder in ("runs", "photos.index"):
        shutil.rmtree(desk / folder, ignore_errors=True)
    for line in commands(page):
        run(line)
    for named in re.findall(r"(?:-o|--out|--sheet|--why) (\S+)", "\n".join(commands(page))):
        assert (desk / named).exists(), named
    for report in (desk / "runs").glob("evaluate-photos*/report.json"):
        assert json.loads(report.read_text())["warnings"] == [], "judges classes that did not teach"
    names = {
        "images": torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8),
        "x": torch.randn(2, 9, 256),
        "mask": torch.ones(2, 9, dtype=torch.bool),
    }
    for code in python(page):
        exec(compile(code, page.name, "exec"), names)
    if page.name == "README.md":
        added, size = names["contributions"].sum(1), names["contributions"].abs().sum(1)
        torch.testing.assert_close((added - names["z"]) / size, torch.zeros_like(size), atol=1e-5, rtol=0)
        assert names["why"].links.sum() == pytest.approx(names["why"].similarity, abs=1e-5)
        assert len(names["hits"].paths[0]) == 10


def test_a_pooling_of_one_s_own_takes_as_many_lines_as_the_page_says(desk, monkeypatch):
    from secondsight.pooling import POOLINGS

    monkeypatch.chdir(desk)
    first, second = python(ROOT / "docs/how-to/own-pooling.md")
    lines = [line for line in first.splitlines() if line.strip() and not line.lstrip().startswith(("import", "from"))]
    assert len(lines) <= 20
    names: dict = {}
    try:
        exec(compile(first + second, "own-pooling.md", "exec"), names)
    finally:
        POOLINGS.pop("salient", None)
    assert names["z"].shape == (2, 256)
    assert names["why"].exact
    assert names["why"].links.sum() == pytest.approx(names["why"].similarity, abs=1e-5)


def test_readme_counts_what_there_is():
    from secondsight.losses import LOSSES
    from secondsight.pooling import POOLINGS

    assert f"{len(POOLINGS)} poolings and {len(LOSSES)} losses" in (ROOT / "README.md").read_text("utf-8")


def python(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), flags=re.M | re.S)
