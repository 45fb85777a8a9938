"""What ``secondsight evaluate`` judges: vectors and labels from a model, from a bare backbone or from files."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from secondsight.errors import ConfigError, DataError

if TYPE_CHECKING:
    from secondsight.data import Failures, ImageSet
    from secondsight.model import Embedder

THUMBNAIL = 160  # pixels; shown at up to 148


@dataclass(frozen=True, eq=False)
class Judged:
    """Vectors and the names of their classes; where images are known, how to show them."""

    vectors: np.ndarray
    labels: np.ndarray  # (n,) names or integers
    picture: Callable[[int], bytes | None] = lambda index: None
    name: Callable[[int], str] = lambda index: f"item {index}"
    failures: Failures | None = None
    facts: dict[str, str] = field(default_factory=dict)


def from_files(vectors: Path, labels: Path | None, images: ImageSet | None) -> Judged:
    """Saved embeddings (``.npy``) with labels from a file or from the images they were made of, in the same order."""
    try:
        array = np.load(vectors, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{vectors}: cannot be read as a .npy array: {error}") from error
    if not isinstance(array, np.ndarray) or array.ndim != 2:
        raise DataError(
            f"{vectors}: embeddings are an array (items, dimensions), this is {getattr(array, 'shape', '?')}"
        )
    if labels is not None:
        names = read_labels(labels)
    elif images is not None:
        names = class_names(images)
    else:
        raise ConfigError(f"{vectors}: embeddings need labels: give --labels FILE, or the images as DATA")
    if len(names) != len(array):
        source = labels or (images.root if images is not None else "")
        raise DataError(f"{vectors} has {len(array):,} rows, {source} has {len(names):,}; they must be the same items")
    facts = {"embeddings": f"{vectors} {array.shape[0]:,} × {array.shape[1]:,}"}
    if images is None:
        return Judged(array, names, facts=facts)
    if len(images) != len(array):
        raise DataError(f"{vectors} has {len(array):,} rows, but there are {len(images):,} images in {images.root}")
    every = np.arange(len(images))
    return Judged(array, names, _pictures(images, every), _names(images, every), facts=facts)


def read_labels(path: Path) -> np.ndarray:
    """One label an item: a ``.npy`` array, or a text file with one label a line."""
    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as labels (.npy, or text with one a line): {error}") from error
    if empty := [i for i, line in enumerate(lines, 1) if not line.strip()]:
        raise DataError(f"{path}: line {empty[0]} is empty; labels are one a line, in the order of the embeddings")
    return np.array([line.strip() for line in lines], dtype=np.str_)


def from_model(
    model: Embedder,
    images: ImageSet,
    *,
    transform: str | None,
    size: int | None,
    mirror: bool | None,
    batch_size: int,
    device: str,
    strict: bool,
) -> Judged:
    """Embed the images, without those that cannot be read."""
    from secondsight.data.loading.transforms import build
    from secondsight.embed import embed

    images.require_labels()
    look = build(transform or model.config.transform, size or model.size)
    if mirror is not None:
        model.config = model.config.model_copy(update={"mirror": mirror})
    found = embed(model, images, look, batch_size=batch_size, device=device, strict=strict)
    facts = {
        "model": f"{model.backbone.name}, {model.config.pooling.name}, {model.dim} numbers per image",
        "fingerprint": model.fingerprint()[:16],
        "transform": look.key + ", with mirror images" * model.config.mirror,
    }
    names = class_names(images)[found.indices]
    return Judged(
        found.vectors, names, _pictures(images, found.indices), _names(images, found.indices), found.failures, facts
    )


def find_model(name: str, *, weights: str) -> Embedder:
    """A saved model, the best one of a run, or a backbone as it is published: its local features averaged."""
    from secondsight.backbones import build
    from secondsight.model import WEIGHTS, Embedder, load

    path = Path(name)
    if path.is_dir():
        best = path / "best"
        return load(best if not (path / WEIGHTS).is_file() and (best / WEIGHTS).is_file() else path)
    if path.exists() or path.suffix in (".npy", ".safetensors", ".pth") or name.startswith((".", "/")):
        raise DataError(
            f"{name}: not a model; give a saved model's directory, embeddings as .npy, or a backbone's name (see: "
            "secondsight backbones)"
        )
    backbone = build(name, weights=None if weights == "random" else weights)
    # Published networks were judged by the centre of an image.
    model = Embedder.build(backbone=backbone, pooling="average", dim=backbone.out_dim, transform="resize-crop")
    _average_only(model)
    return model.eval()


def _average_only(model: Embedder) -> None:
    """The linear map that averaging starts with is a random rotation; none at all gives the same angles every time."""
    import torch

    weight = model.pooling.get_parameter("weight")
    with torch.no_grad():
        weight.copy_(torch.eye(*weight.shape))


def class_names(images: ImageSet) -> np.ndarray:
    """The name of each image's class."""
    return np.array(images.classes, dtype=np.str_)[images.require_labels()]


def _names(images: ImageSet, indices: np.ndarray) -> Callable[[int], str]:
    return lambda row: images.paths[int(indices[row])]


def _pictures(images: ImageSet, indices: np.ndarray) -> Callable[[int], bytes | None]:
    """A small square JPEG of the middle of an image; None where it cannot be read."""

    def picture(row: int) -> bytes | None:
        from PIL import Image, ImageOps

        from secondsight.data.loading.decode import DecodeError, decode

        try:
            pixels = decode(images.path(int(indices[row])), target=2 * THUMBNAIL)
        except DecodeError:
            return None
        small = ImageOps.fit(Image.fromarray(pixels), (THUMBNAIL, THUMBNAIL))
        out = io.BytesIO()
        small.save(out, "JPEG", quality=82)
        return out.getvalue()

    return picture
