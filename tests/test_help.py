"""``--help`` of every verb begins with an example that one could copy."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.core import TyperGroup
from typer.testing import CliRunner

from secondsight import terminal
from secondsight.cli.main import app


def verbs(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(command, TyperGroup):
        for name, below in command.commands.items():
            yield from verbs(below, (*words, name))
    else:
        yield words, command


VERBS = dict(verbs(typer.main.get_command(app)))


def help_lines(words: tuple[str, ...], columns: int) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.rich_utils.MAX_WIDTH", columns)  # the environment's is read when typer is imported
        done = CliRunner().invoke(app, [*words, "--help"])
    assert done.exit_code == 0
    return [line.rstrip() for line in done.output.splitlines()]


@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_help_begins_with_an_example_of_the_verb_that_parses(words):
    paragraphs = [line.strip() for line in help_lines(words, 120) if line.strip()]
    assert paragraphs[0].startswith("Usage:")
    example = shlex.split(paragraphs[1])
    assert example[: 1 + len(words)] == ["secondsight", *words]
    VERBS[words].make_context("secondsight", example[1 + len(words) :])


def test_all_verbs_are_found():
    assert len(VERBS) > 20


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("words", [(), *VERBS], ids=" ".join)
def test_help_fits_the_terminal_and_shows_no_markup(words, columns):
    lines = help_lines(words, columns)
    assert max(map(len, lines)) <= columns
    assert not any("[bold" in line or "[/]" in line for line in lines)


def test_where_things_go_has_one_short_name():
    outs = [(words, param) for words, command in VERBS.items() for param in command.params if "--out" in param.opts]
    assert len(outs) > 5
    assert [words for words, param in outs if "-o" not in param.opts] == []


def test_every_verb_says_in_one_sentence_what_it_does():
    for words, command in VERBS.items():
        assert 10 < len(command.short_help or "") <= 130, words


@pytest.mark.parametrize("words", [["losses"], ["poolings"], ["recipes"], ["data", "list"]], ids=" ".join)
@pytest.mark.parametrize("columns", [80, 120])
def test_lists_fit_the_terminal_and_cut_nothing_off(words, columns):
    done = CliRunner().invoke(app, words, env={"COLUMNS": str(columns)})
    assert done.exit_code == 0
    assert max(len(line) for line in done.output.splitlines()) <= columns
    assert "…" not in done.output


@pytest.mark.parametrize("name", ["cyan", "bold cyan", "yellow", "bold yellow", "green", "progress.remaining"])
def test_colours_can_be_read_on_white_and_on_black(name):
    colour = terminal.console().get_style(name).color
    assert colour is not None
    parts = [(part / 255 + 0.055) / 1.055 if part else 0.0 for part in colour.get_truecolor()]
    light = sum(share * part**2.4 for share, part in zip((0.2126, 0.7152, 0.0722), parts, strict=True))
    assert min(1.05 / (light + 0.05), (light + 0.05) / 0.05) > 3.5
