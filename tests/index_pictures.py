"""A small model and a folder of pictures, for the tests of the index."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from secondsight import Embedder

DIM = 16


def small_model(seed: int = 0) -> Embedder:
    """A network with random weights on 32×32 pixels: what it finds similar is no matter here."""
    torch.manual_seed(seed)
    options = {"backbone": "efficientnet-lite0", "weights": None, "pooling": "average", "dim": DIM, "size": 32}
    return Embedder.build(**options).eval()


def picture(path: Path, seed: int, *, size: tuple[int, int] = (48, 40)) -> Path:
    """A picture of smooth colours that depend on ``seed``."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(path)
    return path


def folder(root: Path, *, classes: str = "ab", each: int = 5) -> Path:
    for c, label in enumerate(classes):
        for i in range(each):
            picture(root / label / f"{i}.png", 100 * c + i)
    return root


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
