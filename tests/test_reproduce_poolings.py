"""``secondsight poolings --compare`` is the table ``poolings``: the same budget for all, and no second harness."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import train_tiny
from secondsight import shipped
from secondsight.cli.main import app
from secondsight.errors import UnknownName
from secondsight.pooling import POOLINGS
from secondsight.pooling.listing import names
from secondsight.reproduce import lines, tables
from secondsight.reproduce.pooling_table import pooling_table
from secondsight.reproduce.row_summary import summarise

RESULTS = Path(__file__).parents[1] / "results"


def test_the_shipped_table_has_every_pooling():
    table = tables.read(shipped.find("poolings", shipped.TABLES))
    used = {row.recipe(fold=0, seed=0).model.pooling for row in table.rows}
    of_one_layer = {family: some for family, some in names().items() if not POOLINGS[family].two_layers}
    assert {some[-1] for some in of_one_layer.values()} <= used
    assert pooling_table() == table


def test_every_row_has_the_same_features_and_the_same_budget():
    recipes = [row.recipe(fold=0, seed=0) for row in pooling_table().rows]
    own = {"pooling", "pooling_options", "norm_exponent"}
    assert len({r.model_copy(update={"model": None}).model_dump_json() for r in recipes}) == 1
    assert len({r.model.model_dump_json(exclude=own) for r in recipes}) == 1
    assert (recipes[0].model.freeze, recipes[0].validation.at_start) == ("all", True)


def test_a_jcf_is_compared_as_the_paper_writes_it_and_with_our_start():
    table = pooling_table(["jcf-8", "vlad-4"])
    assert [row.name for row in table.rows] == ["jcf-8 (literal)", "jcf-8", "vlad-4"]
    literal, ours, vlad = (row.recipe(fold=0, seed=0).model for row in table.rows)
    assert [m.pooling for m in (literal, ours, vlad)] == ["jcf-8", "jcf-8", "vlad-4"]
    assert literal.norm_exponent == 1.0
    assert literal.pooling_options == {"scale": 1.0, "learn_scale": False}
    assert ours.pooling_options == {"start": "average"}
    assert (ours.norm_exponent, vlad.norm_exponent, vlad.pooling_options) == (0.0, 0.0, {})
    with pytest.raises(UnknownName, match="did you mean 'jcf'"):
        pooling_table(["jfc-3"])


def test_the_lines_that_were_kept_are_the_tables_and_say_what_they_said():
    table = tables.read(shipped.find("poolings", shipped.TABLES))
    known = lines.sort(table, lines.read(RESULTS / "poolings.jsonl"))
    assert (known.stale, known.strangers) == ((), ())
    rows = {summary.row.name: summary for summary in summarise(table, known.fresh)}
    assert str(rows["gem"].last["recall@1"]) == "74.0 ± 0.3"
    assert f"{rows['jcf-32-8 (literal)'].untrained.value:.1f}" == "45.3"
    assert (rows["isqrt-cov"].native, rows["bp-4"].runs) == (32896, 3)


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    return train_tiny.write_digits(tmp_path_factory.mktemp("digits") / "images")


def compared(digits: Path, out: Path, *more: str):
    words = ["--compare", str(digits), "--backbone", "tiny", "--weights", "random", "--dim", "8", "--out", str(out)]
    return CliRunner().invoke(app, ["poolings", *words, "--only", "average", "--only", "jcf-4-2", *more])


def test_poolings_are_compared_on_a_folder_and_nothing_is_run_twice(digits, tmp_path):
    first = compared(digits, tmp_path, "--epochs", "1")
    assert first.exit_code == 0, first.output
    assert "40 images of 4 classes to learn from: train.classes_per_batch = 4" in first.output
    found = {line.row: line for line in lines.read(tmp_path / "poolings.jsonl")}
    assert list(found) == ["average", "jcf-4-2 (literal)", "jcf-4-2"]
    for line in found.values():
        assert [row["epoch"] for row in line.history] == [0, 1], "before the first step and after the last"
        assert {"recall@1", "recall@8", "map@r"} <= set(line.last)
    average, literal, _ = found.values()
    assert average.parameters == 32 * 8
    assert literal.parameters == 32 * 256 + 1 + 4 * 256 + 1 + 2 * 4 * 2 + 2 * 2 * 256 * 8, (
        "reduction, codebook, mixers, uv"
    )
    text = (tmp_path / "compared.md").read_text()
    assert "model.backbone `tiny`" in text
    assert "train.epochs `1`" in text
    assert (tmp_path / "compared.svg").read_text().count("<!-- average -->") == 3, "a panel each: three costs"
    assert "0 run(s) added, 0 left" in compared(digits, tmp_path, "--epochs", "1").output
    assert (tmp_path / "runs" / "poolings" / "jcf-4-2-f0-s0" / "best").is_dir(), "models are kept"
    other = compared(digits, tmp_path, "--epochs", "2")
    assert "average, fold 0, seed 0 is run again, the table has changed: train.epochs (1 → 2)" in other.output
    assert {line.last["epoch"] for line in lines.read(tmp_path / "poolings.jsonl")} == {2}, "budgets are not mixed"
