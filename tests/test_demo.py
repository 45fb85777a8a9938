"""The demo's pictures and its contact sheet; ``make demo`` runs the whole."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from PIL import Image

from secondsight import demo
from secondsight.errors import MissingExtra


def test_the_table_holds_seven_different_drawings_of_every_emoji(tmp_path):
    rows = list(csv.DictReader(demo.table(tmp_path / "emoji.csv", emoji=10).open(encoding="utf-8")))
    assert len(rows) == 70
    parts = {part: {row["label"] for row in rows if row["split"] == part} for part in ("train", "val")}
    assert len(parts["train"]) == len(parts["val"]) == 5
    assert not parts["train"] & parts["val"]
    contents = {Path(row["path"]).read_bytes() for row in rows}
    assert len(contents) == 70


def test_the_contact_sheet_frames_what_was_found(tmp_path):
    picture = next(demo.pictures().glob("Goog/*.png"))
    demo.contact_sheet([(picture, [demo.Hit(picture, True), demo.Hit(picture, False)])], tmp_path / "sheet.png")
    colours = {colour for _, colour in Image.open(tmp_path / "sheet.png").getcolors(100_000)}
    assert {(47, 158, 68), (224, 49, 49)} <= colours


def test_without_the_package_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"secondsight\[demo\]"):
        demo.pictures()
