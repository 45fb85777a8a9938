"""The demo on few pictures; ``make demo`` runs it on all of them."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from secondsight import demo
from secondsight.cli.main import app
from secondsight.errors import MissingExtra


def test_the_table_holds_seven_different_drawings_of_every_emoji(tmp_path):
    rows = list(csv.DictReader(demo.table(tmp_path / "emoji.csv", emoji=10).open(encoding="utf-8")))
    assert len(rows) == 70
    parts = {part: {row["label"] for row in rows if row["split"] == part} for part in ("train", "val")}
    assert len(parts["train"]) == len(parts["val"]) == 5
    assert not parts["train"] & parts["val"]
    contents = {Path(row["path"]).read_bytes() for row in rows}
    assert len(contents) == 70


def test_emoji_that_judge_teach_nothing_and_are_indexed_without_labels(tmp_path):
    from secondsight.train.sets import open_sets

    subject = demo.emoji(tmp_path, count=50)
    assert subject.recipe is not None
    assert subject.unlabelled().labels is None
    sets = open_sets(subject.recipe)
    assert sets.validation is None
    assert not set(sets.train.classes) & set(subject.images.classes)
    assert len(sets.train.classes) == len(subject.images.classes) == 25


def test_the_sheet_frames_what_was_found(tmp_path):
    picture = str(next(demo.pictures().glob("Goog/*.png")))
    models = [
        demo.ModelAnswers("before", [[(picture, True), (picture, False)]]),
        demo.ModelAnswers("after", [[(picture, None)]]),
    ]
    demo.side_by_side([picture], models, tmp_path / "sheet.png")
    colours = {colour for _, colour in Image.open(tmp_path / "sheet.png").getcolors(100_000)}
    assert {(47, 158, 68), (224, 49, 49)} <= colours


@pytest.mark.parametrize("labelled", [False, True])
def test_a_folder_of_one_s_own_takes_the_same_way(tmp_path, labelled):
    for number, drawings in enumerate(_some_emoji(6)):
        for i, drawing in enumerate(drawings[:3]):
            target = tmp_path / "photos" / (f"class {number}" if labelled else "") / f"{number} {i}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(drawing.read_bytes())
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["demo", "--data", str(tmp_path / "photos"), "--out", str(out), "--epochs", "1"])
    assert done.exit_code == 0, f"{done.output}\n{done.exception!r}"
    made = {"search.png", "why.png", "photos.index"} | ({"report.html", "trained.index"} if labelled else set())
    assert made <= {file.name for file in out.iterdir()}
    assert ("R@1" in done.output) == labelled
    assert "secondsight serve" in done.output


def _some_emoji(count: int) -> list[list[Path]]:
    animals = sorted(demo.pictures().glob("Goog/U+1F98?.png"))[:count]
    return [[demo.pictures() / vendor / animal.name for vendor in ("Goog", "Twtr", "Appl")] for animal in animals]


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"secondsight\[demo\]"):
        demo.pictures()
