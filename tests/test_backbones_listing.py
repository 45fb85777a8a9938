"""``secondsight backbones``: the table for people, the list for machines."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from secondsight.backbones import BACKBONES
from secondsight.cli.backbones import backbones


def run(*arguments: str) -> str:
    app = typer.Typer()
    app.command()(backbones)
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.output


def test_json_lists_every_backbone_with_numbers():
    rows = {row["name"]: row for row in json.loads(run("--json"))}
    assert list(rows) == list(BACKBONES)
    vgg, resnet = rows["vgg16"], rows["resnet50"]
    assert (vgg["parameters"], vgg["grid"], vgg["out_dim"]) == (14_714_688, [7, 7], 512)
    assert vgg["gflops"] == pytest.approx(2 * 15.35, rel=0.01)  # the literature counts multiply-adds
    assert resnet["gflops"] == pytest.approx(2 * 4.09, rel=0.01)
    assert rows["resnet50-v1"]["gflops"] == pytest.approx(2 * 3.86, rel=0.01)
    assert rows["efficientnet-lite0"]["gflops"] == pytest.approx(2 * 0.385, rel=0.02)
    assert rows["efficientnet-lite2"]["size"] == 260
    assert rows["resnet50-v1"]["preprocessing"]["channels"] == "BGR"
    assert rows["vgg16"]["stages"] == ["conv1", "conv2", "conv3", "conv4", "conv5"]


def test_the_table_fits_a_terminal_and_names_everything():
    lines = run().splitlines()
    assert max(len(line) for line in lines) <= 80
    text = "\n".join(lines)
    for expected in (*BACKBONES, "14.7M", "7×7×512", "conv1…5", "stem, layer1…4", "package"):
        assert expected in text


def test_help_does_not_wait_for_torch():
    code = "import sys, secondsight.cli.backbones; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
