"""The smallest world in which training is real: digits as PNG files, a two-layer backbone, and processes to kill."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from secondsight.backbones import BACKBONES
from secondsight.backbones.backbone import Backbone
from secondsight.backbones.preprocessing import Preprocessing
from secondsight.train import recipe_file
from secondsight.train.recipe import Recipe


class Tiny(Backbone):
    """Two strided convolutions: 16×16 pixels to 4×4 × 32."""

    def __init__(self) -> None:
        preprocessing = Preprocessing(mean=(0.5,) * 3, std=(0.5,) * 3, size=16)
        super().__init__(out_dim=32, preprocessing=preprocessing, stages=("first", "second"))
        self.first = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.second = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU())

    def stage_modules(self, stage: str):
        return [getattr(self, stage)]

    def grid(self, height: int, width: int) -> tuple[int, int]:
        return -(-height // 4), -(-width // 4)


BACKBONES["tiny"] = Tiny


def write_digits(root: Path, *, classes: int = 8, images: int = 10) -> Path:
    """``root/0/…png`` … : scanned digits of scikit-learn, one folder a class."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    for c in range(classes):
        (root / str(c)).mkdir(parents=True)
        for i in np.flatnonzero(digits.target == c)[:images]:
            pixels = Image.fromarray((digits.images[i] * 15.9).astype(np.uint8))
            pixels.resize((16, 16)).save(root / str(c) / f"{i}.png")
    return root


def recipe(path: Path, *overrides: str) -> Recipe:
    """Half a second of training: 4 classes to learn, 4 to evaluate on, 5 steps an epoch."""
    content: dict[str, Any] = {
        "data": {"path": str(path), "workers": 1},
        "model": {
            "backbone": "tiny",
            "weights": "random",
            "pooling": "jcf-4-2",
            "dim": 24,
            "reduce": 16,
        },
        "optimizer": {"lr": 1e-3},
        "train": {
            "epochs": 3,
            "fit_images": 20,
            "classes_per_batch": 4,
            "images_per_class": 2,
            "log_every": 1,
            "device": "cpu",
            "timeout": 30.0,
        },
        "validation": {"ks": [1, 2]},
    }
    return recipe_file.make(content, overrides)


def train_quietly(data: str, out: str, overrides: tuple[str, ...], resume: bool) -> None:
    """For another process: a whole run on one thread."""
    torch.set_num_threads(1)
    from secondsight.train import train

    train(recipe(Path(data), *overrides), out, resume=resume, quiet=True)


def enter(rank: int, world: int, port: int) -> None:
    """Say who we are the way torchrun does."""
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "test",
    }


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def processes() -> Any:
    """A forkserver that has imported everything already: a child is there at once, without the parent's threads."""
    import multiprocessing

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "train_tiny", "secondsight.train.run", "pytorch_metric_learning.losses"])
    if (here := str(Path(__file__).parent)) not in sys.path:
        sys.path.insert(0, here)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    return context


def train_as(rank: int, world: int, port: int, data: str, out: str, overrides: tuple[str, ...]) -> None:
    """For another process: one of ``world`` that train together; what goes wrong is written to ``out``.rank."""
    from secondsight.errors import SecondsightError

    enter(rank, world, port)
    try:
        train_quietly(data, out, overrides, resume=False)
    except SecondsightError as error:
        Path(f"{out}.{rank}").write_text(str(error))
        os._exit(1)  # a process group that has lost a member may not be torn down politely
