"""An exported file runs where torch is not: numpy, Pillow and onnxruntime are all it needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

import secondsight
from secondsight import Embedder, inference
from secondsight.data.loading.decode import decode
from secondsight.data.loading.transforms import Resize
from secondsight.errors import ConfigError
from secondsight.inference.__main__ import main
from secondsight.inference.onnx_file import write
from train_tiny import Tiny

pytestmark = pytest.mark.usefixtures("traced")

SCRIPT = """
import sys, sysconfig
from importlib.abc import MetaPathFinder

ALLOWED = {"numpy", "PIL", "onnxruntime", "google", "flatbuffers", "packaging", "secondsight"}
OURS = set(sys.stdlib_module_names) | ALLOWED

class OnlyThese(MetaPathFinder):
    "An environment with nothing but the allowed packages."
    def find_spec(self, name, path=None, target=None):
        # onnxruntime asks for optional packages and goes on without them, as it does where they are not installed.
        if name.split(".")[0] not in OURS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, OnlyThese())
for name in [n for n in sys.modules if n.split(".")[0] not in OURS]:
    del sys.modules[name]

import numpy as np
from secondsight import inference

model = inference.load(sys.argv[1])
np.save(sys.argv[2], model.embed(sys.argv[3:], batch_size=2))
assert "torch" not in sys.modules
try:
    import torch
except ModuleNotFoundError:
    print("no torch here")

import secondsight
from secondsight.__main__ import run
for attempt in (lambda: secondsight.load("model"), run):
    try:
        attempt()
    except (AttributeError, SystemExit) as error:
        print(error)
"""


def test_files_become_the_models_vectors_without_torch(tmp_path):
    model = Embedder.build(backbone=Tiny(), pooling="jcf-4", dim=16, reduce=16, size=64, mirror=True).eval()
    photos = [Image.fromarray(photo) for photo in load_sample_images().images]
    photos.append(photos[0].rotate(90, expand=True))
    paths = [tmp_path / f"{i}.jpg" for i in range(3)]
    for photo, path in zip(photos, paths, strict=True):
        photo.save(path, quality=95)
    write(model, tmp_path / "m.onnx", fixed_size=True)

    source = str(Path(secondsight.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "m.onnx"), str(tmp_path / "z.npy"), *map(str, paths)],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "no torch here" in done.stdout
    assert done.stdout.count("pip install secondsight") == 2  # what needs more than there is says so
    transform = Resize(64)
    with torch.no_grad():
        ours = model(torch.stack([transform(decode(path)) for path in paths])).numpy()
    assert ((np.load(tmp_path / "z.npy") * ours).sum(1) > 0.999).all()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.onnx", "a.jpg", "-o", "z.npy"], "secondsight export"),
        ([".", "a.jpg", "-o", "z.npy"], "is a directory"),
        (["nothing.onnx", "a.jpg", "-o", "no/such/z.npy"], "folder no/such does not exist"),
    ],
)
def test_what_cannot_work_is_said_before_any_work(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["inference", *arguments])
    assert main() == 2
    assert said in capsys.readouterr().err


def test_a_batch_of_no_pictures_is_refused(tmp_path):
    write(Embedder.build(backbone=Tiny(), pooling="average", size=64).eval(), tmp_path / "m.onnx", fixed_size=True)
    with pytest.raises(ConfigError, match="at least 1"):
        inference.load(tmp_path / "m.onnx").embed([], batch_size=0)
