"""``secondsight reproduce`` on a tiny world: it runs what is missing, nothing twice, and goes on after a kill."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import train_tiny
from secondsight import files
from secondsight.cli.main import app
from secondsight.errors import ConfigError, DataError
from secondsight.reproduce import lines
from secondsight.train import recipe_file, validation

run = CliRunner().invoke

TABLE = """# Tiny
recipe = "tiny.toml"
folds = [0, 1]
baseline = "average"
plot = "parameters"

[set]
train.epochs = 2

[[rows]]
name = "average"
set = { model.pooling = "average" }

[[rows]]
name = "jcf-4-2"
"""


RENAMED = """
[[rows]]
name = "as it was"
set = { model.pooling = "average", train.epochs = 2 }
"""


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    return train_tiny.write_digits(tmp_path_factory.mktemp("digits") / "images")


def written(folder: Path) -> Path:
    (folder / "tiny.toml").write_text(recipe_file.dumps(train_tiny.recipe(Path("nowhere"))))
    (folder / "table.toml").write_text(TABLE)
    return folder / "table.toml"


@pytest.fixture
def table(tmp_path, digits) -> Path:
    return written(tmp_path)


def arguments(table: Path, digits: Path, *more: str) -> list[str]:
    here = table.parent
    places = () if "--out" in more else ("--out", str(here / "results"), "--work", str(here / "work"))
    return ["reproduce", str(table), "--data", str(digits), *places, *more]


def found(table: Path) -> list[lines.Line]:
    return lines.read(table.parent / "results" / "table.jsonl")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, digits) -> tuple[Path, dict[str, str]]:
    """A table of four runs: one is made alone, then the others; and what was printed."""
    table = written(tmp_path_factory.mktemp("finished"))
    commands = {"first": ("--limit", "1"), "plan": ("--dry-run",), "rest": (), "again": ()}
    printed = {}
    for name, more in commands.items():
        done = run(app, arguments(table, digits, *more))
        assert done.exit_code == 0, done.output
        printed[name] = done.output
    return table, printed


def test_a_limit_stops_after_so_many_runs_and_the_next_command_makes_the_others(finished):
    table, printed = finished
    assert "[1/1] average, fold 0, seed 0" in printed["first"]
    assert "1 run(s) added, 3 left" in printed["first"]
    assert "[3/3] jcf-4-2, fold 1, seed 0, about" in printed["rest"]
    assert "3 run(s) added, 0 left" in printed["rest"]
    assert [line.key for line in found(table)] == [
        ("average", 0, 0),
        ("jcf-4-2", 0, 0),
        ("average", 1, 0),
        ("jcf-4-2", 1, 0),
    ]


def test_a_dry_run_lists_what_is_missing_and_how_long_it_takes(finished):
    _, printed = finished
    assert printed["plan"].splitlines()[:-1] == [
        "jcf-4-2, fold 0, seed 0",
        "average, fold 1, seed 0",
        "jcf-4-2, fold 1, seed 0",
    ]
    assert "3 of 4 runs to do, about" in printed["plan"]


def test_nothing_is_run_twice(finished):
    assert "0 run(s) added, 0 left" in finished[1]["again"]


def test_a_line_holds_figures_costs_and_counts(finished):
    jcf = found(finished[0])[1]
    assert [row["epoch"] for row in jcf.history] == [1, 2]
    assert jcf.last == jcf.history[-1]
    assert set(jcf.last) == {"epoch", "recall@1", "recall@2", "map@r", "r-precision", "mrr"}
    assert jcf.parameters == 32 * 16 + 1 + 4 * 16 + 1 + 2 * 4 * 2 + 2 * 2 * 16 * 24
    assert jcf.gflops == pytest.approx((2 * 16 * 32 * 16 + 16 * (2 * 16 * 4 + 4 * 4 * 2 + 4 * 2 * 16 * 24 + 48)) / 1e9)
    assert jcf.ms_head > 0
    assert jcf.ms_per_image > 0  # measured apart: on a backbone this small noise decides which is the longer
    assert jcf.images == {"train": {"images": 40, "classes": 4}, "validation": {"images": 40, "classes": 4}}
    assert jcf.seconds > 0


def test_a_line_does_not_say_where_the_images_were(finished, digits):
    table, _ = finished
    assert "data.path" not in found(table)[1].recipe
    assert str(digits) not in (table.parent / "results" / "table.jsonl").read_text()


def test_a_finished_run_keeps_its_report_and_not_its_weights(finished):
    left = {p.name for p in (finished[0].parent / "work" / "table" / "jcf-4-2-f1-s0").iterdir()}
    assert "report.json" in left
    assert not left & {"best", "checkpoints"}, "weights take room"


def test_a_page_is_made_of_the_lines(finished):
    table, _ = finished
    page = table.parent / "p.md"
    made = run(app, ["reproduce", str(table), "--out", str(table.parent / "results"), "--page", str(page)])
    assert made.exit_code == 0, made.output
    assert "| average |" in page.read_text()
    assert page.with_suffix(".svg").is_file()


def test_a_line_that_is_no_longer_the_tables_is_run_again(table, digits):
    more = ("--rows", "average", "--folds", "0")
    assert run(app, arguments(table, digits, *more)).exit_code == 0
    table.write_text(TABLE.replace("train.epochs = 2", "train.epochs = 1"))
    assert (
        "again, the table has changed: train.epochs (2 → 1)" in run(app, arguments(table, digits, "--dry-run")).output
    )
    done = run(app, arguments(table, digits, *more, "--keep-models"))
    assert "is run again, the table has changed: train.epochs (2 → 1)" in done.output
    assert "starting it again from the beginning" in done.output
    (line,) = found(table)
    assert [row["epoch"] for row in line.history] == [1]
    assert (table.parent / "work" / "table" / "average-f0-s0" / "best" / "model.safetensors").is_file()


def test_a_run_that_another_table_has_made_is_taken_from_there_unless_its_model_is_wanted(table, digits, tmp_path):
    assert run(app, arguments(table, digits, "--rows", "average")).exit_code == 0
    other = table.with_name("other.toml")
    other.write_text(
        TABLE.replace('baseline = "average"', 'baseline = "the mean"').replace('name = "average"', 'name = "the mean"')
    )
    done = run(app, arguments(other, digits, "--rows", "the mean"))
    assert done.output.count("the same run as 'average' of table") == 2
    assert not (tmp_path / "work" / "other" / "the-mean-f0-s0").exists(), "nothing was trained"
    taken = lines.read(tmp_path / "results" / "other.jsonl")
    assert [(line.table, line.row) for line in taken] == [("other", "the mean")] * 2
    assert [line.last for line in taken] == [line.last for line in found(table)]
    longer = TABLE.replace("train.epochs = 2", "train.epochs = 1")
    (tmp_path / "longer.toml").write_text(longer)
    unlike = run(app, arguments(tmp_path / "longer.toml", digits, "--rows", "average", "--limit", "1"))
    assert "the same run" not in unlike.output
    (tmp_path / "kept.toml").write_text(TABLE)
    kept = run(app, arguments(tmp_path / "kept.toml", digits, "--rows", "average", "--limit", "1", "--keep-models"))
    assert "the same run" not in kept.output
    assert (tmp_path / "work" / "kept" / "average-f0-s0" / "best").is_dir()


def test_figures_on_other_images_do_not_come_into_the_table(table, digits, tmp_path):
    assert run(app, arguments(table, digits, "--limit", "1")).exit_code == 0
    fewer = train_tiny.write_digits(tmp_path / "fewer", images=6)
    failed = run(app, arguments(table, fewer))
    assert isinstance(failed.exception, DataError)
    assert "figures on other images" in str(failed.exception)


def test_images_are_told_apart_by_more_than_their_number(table, digits, tmp_path):
    assert run(app, arguments(table, digits, "--rows", "average", "--limit", "1")).exit_code == 0
    other = shutil.copytree(digits, tmp_path / "other")
    some = next(other.rglob("*.png"))
    some.write_bytes(some.read_bytes() + b"\0")
    changed = run(app, arguments(table, other, "--rows", "jcf*", "--limit", "1"))
    assert isinstance(changed.exception, DataError)
    assert "on other images" in str(changed.exception)
    (tmp_path / "second.toml").write_text(TABLE)
    anew = run(app, arguments(tmp_path / "second.toml", other, "--rows", "average", "--limit", "1"))
    assert anew.exit_code == 0, anew.output
    assert "the same run" not in anew.output


def test_a_row_that_was_renamed_keeps_its_runs_and_other_files_are_passed_over(table, digits, tmp_path):
    assert run(app, arguments(table, digits, "--rows", "average")).exit_code == 0
    (tmp_path / "results" / "failures.jsonl").write_text('{"kind": "another program\'s"}\n')
    table.write_text(TABLE.replace("train.epochs = 2", "train.epochs = 1") + RENAMED)
    told = run(app, arguments(table, digits, "--rows", "a*", "--dry-run"))
    assert "as it was, fold 0, seed 0  (as 'average' of table, if images are the same)" in told.output
    done = run(app, arguments(table, digits, "--rows", "a*"))
    assert done.exit_code == 0, done.output
    assert done.output.count("the same run as 'average' of table") == 2


def test_a_table_has_one_set_of_weights_for_a_backbone(table, digits, tmp_path):
    file = tmp_path / "tiny.safetensors"
    backbone = recipe_file.read(tmp_path / "tiny.toml").model.backbone
    assert run(app, arguments(table, digits, "--rows", "average", "--limit", "1")).exit_code == 0
    path = tmp_path / "results" / "table.jsonl"
    (line,) = lines.read(path)
    path.unlink()
    lines.add(path, replace(line, inputs={**line.inputs, "weights": "abc"}))
    mixed = run(app, arguments(table, digits, "--rows", "jcf*", "--limit", "1"))
    assert isinstance(mixed.exception, DataError)
    assert "other weights" in str(mixed.exception)
    file.write_bytes(b"")
    unknown = run(app, arguments(table, digits, "--weights", f"{backbone}x={file}"))
    assert isinstance(unknown.exception, ConfigError)
    assert f"did you mean {backbone!r}" in str(unknown.exception)


def test_a_run_that_fails_is_told_and_passed_over(table, digits):
    table.write_text(TABLE.replace('model.pooling = "average" }', 'model.pooling = "average", optimizer.lr = 1e30 }'))
    done = run(app, arguments(table, digits, "--folds", "0"))
    assert done.exit_code == 1, done.output
    assert "    failed: the" in done.output
    assert [line.row for line in found(table)] == ["jcf-4-2"]


def test_a_run_that_another_process_is_at_is_left_to_it(table, digits):
    with files.locked(table.parent / "work" / "table" / ".average-f0-s0.lock"):
        done = run(app, arguments(table, digits, "--folds", "0"))
    assert done.exit_code == 0, done.output
    assert "average, fold 0, seed 0: another process is at it" in done.output
    assert [line.row for line in found(table)] == ["jcf-4-2"]
    assert "1 run(s) added, 1 left" in done.output


def test_weights_go_to_the_backbone_that_they_are_for(table, digits, tmp_path):
    file = tmp_path / "w.safetensors"
    missing = run(app, arguments(table, digits, "--weights", str(file)))
    assert isinstance(missing.exception, ConfigError)
    file.write_bytes(b"")
    table.write_text(TABLE + 'set = { model.backbone = "vgg16" }\n')
    bare = run(app, arguments(table, digits, "--weights", str(file)))
    assert "--weights tiny=FILE --weights vgg16=FILE" in str(bare.exception)
    named = run(app, arguments(table, digits, "--weights", f"vgg16={file}", "--limit", "1"))
    assert named.exit_code == 0, named.output
    assert found(table)[0].weights == "random", "the file is not for the tiny backbone"


def test_the_shipped_tables_are_listed(tmp_path):
    shown = run(app, ["reproduce", "--out", str(tmp_path)])
    assert shown.exit_code == 0
    for name in ("ablation", "methods", "headline", "0 of 46"):
        assert name in shown.output


def command(words: list[str], log: str) -> None:
    """For another process: the whole command line, what it says written to a file."""
    import torch

    from secondsight.cli.main import main

    torch.set_num_threads(1)
    sys.argv = ["secondsight", *words]
    with Path(log).open("a", buffering=1) as file, contextlib.redirect_stderr(file):
        main()


def started(table: Path, digits: Path, *more: str):
    child = train_tiny.processes().Process(
        target=command, args=(arguments(table, digits, *more), str(table.parent / "log")), daemon=True
    )
    child.start()
    return child


def wait_until(child, happened) -> None:
    until = time.monotonic() + 300
    while not happened():
        assert child.is_alive()
        assert time.monotonic() < until
        time.sleep(0.01)


def ended(child) -> int:
    child.join(300)
    return child.exitcode


def saved(checkpoints: Path) -> set[str]:
    """The names of what is written whole."""
    return {p.name for p in checkpoints.glob("[!.]*")} if checkpoints.is_dir() else set()


def test_a_killed_command_goes_on_inside_the_run_and_ends_as_if_nothing_had_been(table, digits):
    table.write_text(TABLE.replace("train.epochs = 2", "train.epochs = 40"))
    more = ("--rows", "jcf*", "--folds", "0")
    checkpoints = table.parent / "work" / "table" / "jcf-4-2-f0-s0" / "checkpoints"
    child = started(table, digits, *more)
    wait_until(child, lambda: len(saved(checkpoints)) == 2)
    child.kill()
    assert ended(child) == -signal.SIGKILL
    assert found(table) == []
    before = saved(checkpoints)
    child = started(table, digits, *more, "--minutes", "10")
    wait_until(child, lambda: not before & saved(checkpoints))
    os.kill(child.pid, signal.SIGINT)
    assert ended(child) == 130
    said = (table.parent / "log").read_text()
    assert "stopped, and nothing is lost. Continue with:" in said
    assert "secondsight reproduce" in said
    assert found(table) == []
    assert ended(started(table, digits, *more)) == 0
    (resumed,) = found(table)
    assert resumed.seconds is None, "nobody held the watch"
    elsewhere = ["--out", str(table.parent / "untouched"), "--work", str(table.parent / "elsewhere")]
    assert ended(started(table, digits, *more, *elsewhere)) == 0
    (untouched,) = lines.read(table.parent / "untouched" / "table.jsonl")
    assert untouched.seconds is not None
    assert (resumed.history, resumed.loss) == (untouched.history, untouched.loss)


def test_a_signal_in_the_last_validation_keeps_the_run_and_starts_no_other(table, digits, monkeypatch):
    figures, calls = validation.figures, []

    def interrupted(*given):
        calls.append(given)
        if len(calls) == 2:  # after the second epoch, the last
            os.kill(os.getpid(), signal.SIGINT)
        return figures(*given)

    monkeypatch.setattr(validation, "figures", interrupted)
    result = run(app, arguments(table, digits))
    assert result.exit_code == 130, result.output
    assert "1 run(s) added, 3 left" in result.output
    assert len(found(table)) == 1


def test_minutes_stop_it_in_time_and_that_is_no_failure(table, digits):
    table.write_text(TABLE.replace("train.epochs = 2", "train.epochs = 3000"))
    assert ended(started(table, digits, "--minutes", "0.05")) == 0
    said = (table.parent / "log").read_text()
    assert "Continue with" in said
    assert "0 run(s) added, 4 left" in said
    assert found(table) == []
