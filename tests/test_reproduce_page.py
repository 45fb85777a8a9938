"""The page from made-up lines: means, spreads, gaps and defeats, all said."""

from __future__ import annotations

import importlib.util
import itertools
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from secondsight.errors import ConfigError
from secondsight.reproduce import cost_plot, lines, results_page, tables
from secondsight.reproduce.lines import Line
from secondsight.reproduce.row_summary import summarise

TABLE = """# Which is best
#
# A question.
recipe = "quick-frozen"
folds = [0, 1]
seeds = [0, 1]
baseline = "average"
heading = "pooling"
plot = "parameters"

[[rows]]
name = "average"
set = { model.pooling = "average", model.pooling_options = {} }
note = "a note"

[[rows]]
name = "jcf-4"
set = { model.pooling = "jcf-4" }

[[rows]]
name = "jcf-8"
set = { model.pooling = "jcf-8" }

[[rows]]
name = "jcf-16"
set = { model.pooling = "jcf-16" }
"""


@pytest.fixture
def table(tmp_path):
    (tmp_path / "mine.toml").write_text(TABLE)
    return tables.read(tmp_path / "mine.toml")


def line(table, row: str, fold: int, seed: int, recall: float, **changes) -> Line:
    figures = {"epoch": 3, "recall@1": recall, "recall@2": recall + 0.1, "map@r": recall / 2}
    start, best = {**figures, "epoch": 0, "recall@1": 0.1}, {**figures, "epoch": 2, "recall@1": recall + 0.02}
    made = Line(
        table="mine",
        row=row,
        fold=fold,
        seed=seed,
        last=figures,
        best=best,
        history=[start, best, figures],
        loss=1.0,
        parameters=2_600_000,
        gflops=0.25,
        ms_head=3.0 + seed,
        ms_per_image=30.0 + seed,
        threads=2,
        images={"train": {"images": 2889, "classes": 50}, "validation": {"images": 2975, "classes": 50}},
        weights="default",
        seconds=60.0,
        version="0.1.0",
        recipe=lines.choices(table.row(row).recipe(fold=fold, seed=seed)),
    )
    return replace(made, **changes)


def paged(table, known: lines.Sorted) -> str:
    return results_page.page([(table, known)], {table.name: "plot.svg"}, command="make it")


def written(table, path: Path, results: Path) -> list[Path]:
    return results_page.write(path, [table], results, command="make it")


def whole(table, row: str, *recalls: float) -> list[Line]:
    where = [(0, 0), (1, 0), (0, 1), (1, 1)]
    return [line(table, row, *cell, recall) for cell, recall in zip(where, recalls, strict=False)]


@pytest.fixture
def results(table):
    return [
        *whole(table, "average", 0.50, 0.60, 0.50, 0.60),
        *whole(table, "jcf-4", 0.51, 0.62, 0.53, 0.64),
        *whole(table, "jcf-8", 0.49, 0.61),
    ]


def test_a_row_is_the_mean_over_folds_and_seeds_with_its_spread(table, results):
    average, four, eight = summarise(table, results)
    assert str(average.last["recall@1"]) == "55.0 ± 5.8"
    assert str(average.best) == "57.0 ± 5.8"
    assert str(average.untrained) == "10.0 ± 0.0"
    assert (average.runs, average.ms_head, average.against) == (4, 3.0, None)
    assert (four.against.verdict, four.against.runs) == ("better", 4)
    assert str(four.against.difference) == "2.5 ± 1.3"
    assert eight.against.verdict == "unclear"
    assert summarise(table, results[:1])[0].last["recall@1"].spread is None, "one run has no spread"


def test_the_spread_within_a_fold_does_not_see_that_folds_differ(table, results):
    average, four, eight = summarise(table, results)
    assert average.within == 0, "ten points apart by fold, not at all by seed"
    assert four.within == pytest.approx(((4 * 1.0**2) / 2) ** 0.5), "each run is 1 off its fold's mean; 4 runs, 2 folds"
    assert eight.within is None, "one run a fold"
    (more_of_one,) = summarise(table, [r for r in results if r.row == "jcf-4"][:3])
    assert more_of_one.by_fold == pytest.approx({0: 52.0, 1: 62.0})


def test_the_page_says_figures_gaps_and_defeats(table, results, tmp_path):
    defeated = [replace(r, warnings=["it is collapsing: step 3; try this"]) for r in whole(table, "jcf-16", 0.3, 0.3)]
    text = paged(table, lines.sort(table, [*results, *defeated]))
    cells = [c.strip() for c in next(t for t in text.splitlines() if t.startswith("| jcf-4")).split("|")[1:-1]]
    assert cells == [
        *("jcf-4", "**57.5 ± 6.5**", "**67.5 ± 6.5**", "**28.8 ± 3.2**", "10.0 ± 0.0", "+2.5 ± 1.3"),
        *("59.5 ± 6.5", "2.6M", "0.25", "3.0", "30.0", "4"),
    ]
    assert "- better in every run: jcf-4 (+2.5 ± 1.3)" in text
    assert "- **worse in every run**: jcf-16 (−25.0 ± 7.1)" in text
    assert "- **no clear difference** (the runs disagree): jcf-8 (+0.0 ± 1.4)" in text
    assert "**Missing:** 4 of 16 runs: fold 0 seed 1, fold 1 seed 1 (`jcf-8`, `jcf-16`)." in text
    assert "- jcf-16, fold 0, seed 0: it is collapsing: step 3\n" in text
    assert "- average: a note" in text
    assert "model.backbone `efficientnet-lite0`" in text
    assert "model.pooling `" not in text, "rows differ in it"
    assert "fold 0: 2,889 images of 50 classes to learn from, 2,975 images of 50 classes to evaluate on" in text


def test_a_row_without_runs_stays_in_the_table_and_a_table_without_any_is_named(table, results):
    text = paged(table, lines.sort(table, results))
    assert "| jcf-16 | – | – |" in text
    assert "none of 4 |" in text
    firsts = paged(table, lines.sort(table, [r for r in results if r.seed == 0]))
    assert "runs: fold 0 seed 0, fold 1 seed 0 (`jcf-16`); fold 0 seed 1, fold 1 seed 1 (all rows)." in firsts
    empty = paged(table, lines.sort(table, []))
    assert "There is not one result" in empty
    assert "- `mine`: Which is best" in empty


def test_a_figure_that_is_newer_than_most_runs_waits_until_half_of_the_rows_have_it(table, results):
    def with_mrr(found: Line) -> Line:
        return replace(found, last={**found.last, "mrr": 0.9})

    newer = [with_mrr(r) if r.row == "average" or r.key == ("jcf-4", 0, 0) else r for r in results]
    assert "mrr" not in paged(table, lines.sort(table, newer)), "one whole row of three has it"
    newer = [with_mrr(r) if r.row != "jcf-8" else r for r in results]
    assert "| MAP@R | mrr |" in paged(table, lines.sort(table, newer))


def test_a_line_of_another_recipe_is_stale_and_one_that_lacks_a_new_key_is_not(table, results):
    first, *rest = results
    old = replace(first, recipe={**first.recipe, "optimizer.head_lr": 0.5})
    younger = replace(rest[0], recipe={k: v for k, v in rest[0].recipe.items() if k != "train.ema"})
    moved = replace(rest[1], recipe={**rest[1].recipe, "data.path": "elsewhere"})
    options = replace(results[4], recipe={k: v for k, v in results[4].recipe.items() if "options.start" not in k})
    stranger = replace(results[5], row="gone")
    known = lines.sort(table, [old, younger, moved, options, stranger])
    assert known.fresh == (younger, moved)
    assert [(r, why) for r, why in known.stale] == [
        (old, "optimizer.head_lr (0.5 → 0.0)"),
        (options, "model.pooling_options.start (None → 'square')"),
    ]
    assert known.strangers == (stranger,)
    text = results_page.section(table, known, "plot.svg")
    assert "**Out of date, not shown:** 2 runs" in text
    assert "1 runs of rows that the table does not have (gone)" in text


def test_the_last_line_of_a_run_counts_and_a_torn_one_is_passed_over(table, results, tmp_path):
    path = tmp_path / "mine.jsonl"
    lines.add(path, results[0])
    with path.open("a") as file:
        file.write('{"table": "mine", "row": "aver')  # a process that died while it wrote
    again = replace(results[0], seconds=1.0)
    lines.add(path, again)
    lines.add(path, results[1])
    assert lines.read(path) == [again, results[1]]
    path.write_text(json.dumps({**asdict(again), "colour": 1}) + "\n")
    with pytest.raises(ConfigError, match=r"mine.jsonl, line 1 is not a result.*colour"):
        lines.read(path)


def test_a_figure_that_was_changed_after_it_was_written_is_refused(results, tmp_path):
    path = tmp_path / "mine.jsonl"
    lines.add(path, replace(results[0], gflops=0.125))
    path.write_text(path.read_text().replace("0.125", "0.126"))
    with pytest.raises(ConfigError, match=r"line 1 is not a result: it is not what was written"):
        lines.read(path)


def test_writing_twice_gives_the_same_bytes(table, results, tmp_path):
    for result in results:
        lines.add(tmp_path / "results" / "mine.jsonl", result)
    files = written(table, tmp_path / "docs" / "results.md", tmp_path / "results")
    assert [path.name for path in files] == ["results.md", "results.svg"]
    before = [path.read_bytes() for path in files]
    assert b"</svg>" in before[1]
    assert b"(results.svg)" in before[0]
    written(table, tmp_path / "docs" / "results.md", tmp_path / "results")
    assert [path.read_bytes() for path in files] == before


def test_a_row_that_lacks_runs_is_neither_the_best_nor_in_the_plot(table, results, tmp_path):
    easy = [line(table, "jcf-16", 0, 0, 0.99)]
    for result in [*results, *easy]:
        lines.add(tmp_path / "results" / "mine.jsonl", result)
    text, plot = (p.read_text() for p in written(table, tmp_path / "results.md", tmp_path / "results"))
    assert "| jcf-16 | 99.0 |" in text
    assert "| jcf-4 | **57.5 ± 6.5** |" in text
    alone = paged(table, lines.sort(table, [r for r in results if r.row == "average" or r.seed == 0]))
    assert "| average | 55.0 ± 5.8 |" in alone, "the only row with all runs is the best of nothing"
    drawn = [name for name in ("average", "jcf-4", "jcf-8", "jcf-16") if f"<!-- {name} -->" in plot]
    assert drawn == ["average", "jcf-4", "jcf-8"], "jcf-8 lacks a seed, jcf-16 a fold"
    assert "without a run there: jcf-16." in text


def test_the_plot_keeps_the_fold_that_rows_have_until_half_of_them_have_the_next(table, results, tmp_path):
    first = [r for r in results if r.fold == 0]
    begun = [r for r in results if r.fold == 1 and r.row == "average"]
    for number, found in enumerate([[*first, *begun], results]):
        for result in found:
            lines.add(tmp_path / str(number) / "mine.jsonl", result)
    text, plot = (p.read_text() for p in written(table, tmp_path / "0.md", tmp_path / "0"))
    assert all(f"<!-- {name} -->" in plot for name in ("average", "jcf-4", "jcf-8"))
    assert "A point is the mean of fold 0." in text
    text = written(table, tmp_path / "1.md", tmp_path / "1")[0].read_text()
    assert "A point is the mean of the means of folds 0, 1." in text


def test_without_matplotlib_there_is_a_page_without_plots(table, results, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for result in results:
        lines.add(tmp_path / "results" / "mine.jsonl", result)
    assert written(table, tmp_path / "1.md", tmp_path / "results") == [tmp_path / "1.md"]
    assert "![" not in (tmp_path / "1.md").read_text()


def test_names_in_the_plot_do_not_cover_each_other():
    pytest.importorskip("matplotlib", reason="needs the extra `plots`")
    from matplotlib.figure import Figure

    figure = Figure()
    axis = figure.subplots()
    names = [axis.annotate(f"jcf-{n}", (0.5, 0.5), (5, 3), textcoords="offset points") for n in (4, 16, 32)]
    figure.draw_without_rendering()
    cost_plot._set_apart(axis, names)
    figure.draw_without_rendering()
    boxes = [name.get_window_extent() for name in names]
    assert names[0].xyann == (5, 3), "the first stays where it is"
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
    low = [axis.annotate("a long name " * 3, (0.1, 0.5), (5, 3), textcoords="offset points") for _ in range(2)]
    cost_plot._set_apart(axis, low)
    figure.draw_without_rendering()
    assert min(name.get_window_extent().x0 for name in low) >= axis.get_window_extent().x0, "the axis stays clear"
