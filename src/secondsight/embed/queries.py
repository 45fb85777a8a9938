"""Single pictures to vectors: what people search with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch

from secondsight.data.loading.decode import decode
from secondsight.embed.inputs import Forward
from secondsight.errors import ShapeError
from secondsight.evaluation_mode import evaluating
from secondsight.model import Embedder

if TYPE_CHECKING:
    from PIL import Image

Picture: TypeAlias = "str | Path | bytes | np.ndarray | Image.Image"
"""A file, its content, pixels (H, W, 3) uint8, or a picture of Pillow's."""


def encode(
    model: Embedder,
    pictures: Sequence[Picture],
    *,
    batch_size: int = 16,
    device: str | torch.device = "cpu",
    run: Forward | None = None,
) -> np.ndarray:
    """Unit vectors (n, D) float32 of pictures, by the model's own transform. One that cannot be read is an error."""
    found = [np.zeros((0, model.dim), np.float32)]
    with evaluating(model.to(device)), torch.no_grad():
        for start in range(0, len(pictures), batch_size):
            batch = torch.stack([prepare(model, picture) for picture in pictures[start : start + batch_size]])
            found.append((run or model)(batch.to(device)).float().cpu().numpy())
    return np.concatenate(found)


def prepare(model: Embedder, picture: Picture) -> torch.Tensor:
    """(3, S, S) uint8: a picture as the model takes it."""
    return model.transform(pixels(picture, target=model.transform.target))


def pixels(picture: Picture, *, target: int | None = None) -> np.ndarray:
    """(H, W, 3) uint8 RGB of whatever a picture is given as; ``target``: see ``decode``."""
    if isinstance(picture, np.ndarray):
        if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != np.uint8 or 0 in picture.shape:
            raise ShapeError(f"pixels are (height, width, 3) uint8 RGB, got {picture.shape} {picture.dtype}")
        return picture
    if isinstance(picture, (str, Path, bytes)):
        return decode(picture, target=target)
    from PIL import Image, ImageOps

    upright = ImageOps.exif_transpose(picture)
    if upright.has_transparency_data:  # on white, as `decode` lays a file's
        white = Image.new("RGBA", upright.size, "white")
        upright = Image.alpha_composite(white, upright.convert("RGBA"))
    return np.array(upright.convert("RGB"))
