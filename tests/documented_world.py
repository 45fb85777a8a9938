"""What the reader of a page has at hand: photos by class, pictures, tables, weights, a trained run, a collection."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from typer.testing import CliRunner

import data_layouts
from documented import ROOT, blocks
from secondsight.cli.main import app

BIRDS = ("egret", "heron", "robin", "stork")


def run(words: tuple[str, ...]) -> str:
    """What a command prints; fails where it ends in an error."""
    done = CliRunner().invoke(app, list(words[1:]))
    assert done.exit_code == 0, f"{shlex.join(words)}\n{done.output}\n{done.exception!r}"
    return done.stdout


class World:
    """A desk that is laid once and tidied before every page."""

    def __init__(self, root: Path):
        self.desk, self._kept = root / "desk", root / "kept"
        self.desk.mkdir()
        with contextlib.chdir(self.desk):
            self._lay()
        shutil.copytree(self.desk, self._kept, symlinks=True)

    def _lay(self) -> None:
        _pictures(self.desk)
        _tables(self.desk)
        _weights(self.desk)
        for line in (
            "secondsight train photos --data ./photos --out runs/photos --set model.size=96 --set train.keep=1",
            "secondsight index ./photos --model runs/photos",
        ):
            run(tuple(shlex.split(line)))
        shutil.copytree("runs/photos", "runs/NAME")
        shutil.rmtree("runs/photos/checkpoints")
        shutil.copytree("runs/photos", "runs/birds")
        for name in ("cub", "first", "second"):
            Path("runs", name).symlink_to("birds")
        shutil.copytree("photos.index", "birds.index")

    def tidy(self, lines: list[str]) -> None:
        """The desk as it was laid, but for what these commands make before they use it."""
        shutil.rmtree(self.desk)
        shutil.copytree(self._kept, self.desk, symlinks=True)
        for thing, making in MADE.items():
            first = next((line for line in lines if re.search(making, line) or thing in line), "")
            if re.search(making, first):
                shutil.rmtree(self.desk / thing)


MADE = {
    "photos.index": r"index ./photos(?!.* -o)",
    "runs/photos": r"train --data ./photos(?!.*--dry-run)",
}
"""What pages make by themselves, and the command that makes it."""


def _pictures(desk: Path) -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    for number, name in enumerate(BIRDS):
        of_class = digits.images[digits.target == number]
        for i in range(8):
            _picture(of_class[i], desk / "photos" / name / f"{i}.png", (48, 40))
    for i, pixels in enumerate(digits.images[-110:]):
        _picture(pixels, desk / "album" / f"{i}.png", (16, 16))
    for name, number, i in (("a", 1, 7), ("b", 1, 8), ("query", 2, 8)):
        _picture(digits.images[digits.target == number][i], desk / f"{name}.jpg", (64, 64))
    data_layouts.cub(desk.parent / "CUB_200_2011", data_layouts.CUB_FULL, distinct=False)  # a class lists one file
    for name in ("CUB_200_2011", "PATH"):
        (desk / name).symlink_to(desk.parent / "CUB_200_2011")


def _picture(pixels: np.ndarray, path: Path, size: tuple[int, int]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((pixels * 15.9).astype("uint8")).resize(size).convert("RGB").save(path)


def _tables(desk: Path) -> None:
    (page,) = (one for one in blocks(ROOT / "docs/how-to/own-data.md", "") if one.startswith("path,"))
    (desk / "list.csv").write_text(page)
    for i, line in enumerate(page.splitlines()[1:]):
        (desk / line.split(",")[0]).parent.mkdir(exist_ok=True)
        shutil.copy(desk / "photos" / "heron" / f"{i}.png", desk / line.split(",")[0])
    photos = sorted((desk / "photos").rglob("*.png"))
    rows = [f"{path.relative_to(desk)},{path.parent.name},{2000 + 2 * i}" for i, path in enumerate(photos)]
    (desk / "years.csv").write_text("\n".join(["path,label,year", *rows]))
    recipe = run(("secondsight", "recipes", "photos")).replace('path = ""', 'path = "./photos"')
    (desk / "mine.toml").write_text(re.sub("classes_per_batch = .*", "classes_per_batch = 2", recipe))
    labels = np.repeat(np.arange(4), 6)
    np.save(desk / "vectors.npy", np.random.default_rng(0).normal(size=(24, 8)) + 3 * np.eye(8)[labels])
    (desk / "labels.txt").write_text("".join(f"{BIRDS[label]}\n" for label in labels))
    shutil.copytree(ROOT / "results", desk / "results")
    shutil.copytree(ROOT / "examples", desk / "examples")
    (desk / "docs" / "reports").mkdir(parents=True)


def _weights(desk: Path) -> None:
    """Random weights in the files' formats: a VGG16, and a transformer as a hub keeps it."""
    import transformers
    from safetensors.torch import save_file

    from secondsight import backbones

    torch.manual_seed(0)
    weights = backbones.build("vgg16", weights="random").state_dict()
    save_file({name: weight.contiguous() for name, weight in weights.items()}, desk.parent / "vgg16.safetensors")
    (desk / "vgg16.safetensors").symlink_to(desk.parent / "vgg16.safetensors")
    small: dict[str, Any] = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 56,
        "patch_size": 14,
    }
    for name in ("dinov2-small", "a-directory"):
        transformers.Dinov2Model(transformers.Dinov2Config(**small)).save_pretrained(desk / name)
        processor = {
            "do_normalize": True,
            "image_mean": [0.5] * 3,
            "image_std": [0.2] * 3,
            "size": {"height": 56, "width": 56},
        }
        (desk / name / "preprocessor_config.json").write_text(json.dumps(processor))
