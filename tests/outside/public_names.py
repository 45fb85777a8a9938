"""What README shows, as a user's typed program sees it: pyright checks it from outside in strict mode, and it runs.

Only public names, no file of the repository. ``make wheel`` does both in a fresh environment.
"""

from __future__ import annotations

import tempfile
from typing import Any, assert_type

import numpy as np
import torch

import secondsight
from secondsight import Embedder, explain, index
from secondsight.data import ImageSet
from secondsight.data import open as open_images
from secondsight.embed import Embeddings, embed
from secondsight.evaluate import Report, retrieval
from secondsight.explain import Explanation
from secondsight.index import Hits, Index
from secondsight.losses import Loss
from secondsight.losses import build as build_loss
from secondsight.pooling import Pooling, build


def main(folder: str) -> None:
    assert_type(secondsight.__version__, str)
    model = Embedder.build(backbone="efficientnet-lite0", weights="random", pooling="jcf-4-2", dim=16, size=64)
    assert_type(model, Embedder)
    assert model.eval()(torch.zeros(1, 3, 64, 64, dtype=torch.uint8)).shape == (1, 16)
    model.save(f"{folder}/model")
    assert_type(secondsight.load(f"{folder}/model"), Embedder)

    pictures: list[np.ndarray[Any, Any]] = [np.full((64, 64, 3), shade, np.uint8) for shade in (0, 200)]
    why = explain.pair(model, pictures[0], pictures[1])
    assert_type(why, Explanation)
    assert_type(why.similarity, float)

    pool = build("jcf-4-2", in_dim=8, out_dim=16)
    assert_type(pool, Pooling)
    loss = build_loss("triplet", dim=16, classes=4)
    assert_type(loss, Loss)

    collection = index.create(f"{folder}/few.index", dim=2)
    assert_type(collection, Index)
    collection.add_vectors(np.eye(2, dtype=np.float32), labels=["a", "b"])
    hits = collection.search(np.array([1, 0], np.float32), k=1)
    assert_type(hits, Hits)

    report = retrieval(torch.eye(4), [0, 0, 1, 1])
    assert_type(report, Report)
    assert_type(report.map_at_r, float)


def from_files(model: Embedder, folder: str) -> Embeddings:
    images = open_images(folder)
    assert_type(images, ImageSet)
    return embed(model, images)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(place)
    print(f"secondsight {secondsight.__version__}: the public names work, from {secondsight.__file__}")
