"""One file from pixels to unit vector: a model as ONNX, checked against the model before it gets its name.

report = export(model, "model.onnx")                 # float32, any batch, other sizes where the network allows
vectors = inference.load("model.onnx").embed(["a.jpg"])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from secondsight import files
from secondsight.data.loading import transforms
from secondsight.data.loading.transforms import Resize, ResizeCrop, Transform
from secondsight.errors import ConfigError, RunError
from secondsight.extras import require
from secondsight.inference.description import KEY, Description, SquareTransform, sealed
from secondsight.inference.exported import Exported
from secondsight.inference.graph import MULTIPLE, Pixels, graph
from secondsight.model import Embedder
from secondsight.version import __version__

AGREE = 0.99999
"""The least cosine between the file's vector of an image and the model's; below it nothing is written."""

DIFFERENCE = 1e-3
"""The most that a number of a float32 file's vector may differ: within it, an index takes both for the same."""

HALF = 0.999
"""As ``AGREE``, for a backbone in half precision."""

BATCHES = (1, 5)
"""Numbers of images that are tried: neither is the one that was traced."""


@dataclass(frozen=True)
class Check:
    """So many images of that size by torch and by the file: the least cosine, the largest difference of a number."""

    images: int
    size: int
    cosine: float
    difference: float = 0.0


@dataclass(frozen=True)
class ExportReport:
    """What was written, and how well it agrees."""

    path: Path
    bytes: int
    description: Description
    checks: tuple[Check, ...]

    @property
    def cosine(self) -> float:
        return min(check.cosine for check in self.checks)


@torch.no_grad()
def write(
    model: Embedder,
    path: str | Path,
    *,
    pictures: Sequence[np.ndarray] = (),
    fixed_size: bool = False,
    half: bool = False,
) -> ExportReport:
    """Write ``model`` as one ONNX file: uint8 RGB (B, 3, S, S) in, unit vectors (B, D) in float32 out.

    Args:
        model: Any embedder; it is put into evaluation mode.
        path: The file, conventionally ``*.onnx``.
        pictures: (H, W, 3) uint8 pictures to compare file and model on; drawn ones where there are none.
        fixed_size: Only images of the model's own size; otherwise any multiple of 32 where the network allows.
        half: The backbone in half precision, for GPUs.
    """
    model = model.cpu().eval()
    pictures = list(pictures) or drawn()
    picture = picture_of(model.transform)
    multiple = 0 if fixed_size or model.size % MULTIPLE else MULTIPLE
    proto, multiple = _traced(model, multiple, half)
    description = Description(
        fingerprint=model.fingerprint(),
        dim=model.dim,
        picture=picture,
        precision="float16" if half else "float32",
        multiple=multiple,
        backbone=model.backbone.name,
        pooling=model.config.pooling,
        views=len(model.views),
        version=__version__,
    )
    describe(proto, description)
    with files.replacing(path) as temporary:
        save(proto, temporary)
        checks = compared(model, Exported(temporary), pictures)
        _refuse_unlike(checks, model, HALF if half else AGREE)
    return ExportReport(Path(path), Path(path).stat().st_size, description, checks)


def _traced(model: Embedder, multiple: int, half: bool) -> tuple[Any, int]:
    """The graph, with sides that vary where tracing allows it, and the step by which they do (0: they do not)."""
    example = torch.zeros(3, 3, model.size, model.size, dtype=torch.uint8)
    if multiple:
        try:
            return graph(Pixels(model, half=half), example, multiple=multiple), multiple
        except ConfigError:
            pass  # a network that is bound to its size, as some transformers are
    return graph(Pixels(model, half=half), example), 0


def compared(model: Embedder, exported: Exported, pictures: Sequence[np.ndarray]) -> tuple[Check, ...]:
    """Cosines between the file's vectors and the model's: two numbers of images, and two sizes where it takes two."""
    step = exported.description.multiple
    sizes = [model.size] + ([model.size + step] if step else [])
    checks = []
    for size in sizes:
        transform = transforms.build(model.config.transform or "resize", size)
        images = torch.stack([transform(p) for p in pictures])
        images = torch.cat([images, torch.zeros_like(images[:1]), torch.full_like(images[:1], 255)])
        for count in BATCHES if size == model.size else BATCHES[-1:]:
            some = torch.cat([images] * -(-count // len(images)))
            found = [_likeness(model, exported, block) for block in some.split(count) if len(block) == count]
            checks.append(Check(count, size, min(c for c, _ in found), max(d for _, d in found)))
    return tuple(checks)


def _likeness(model: Embedder, exported: Exported, images: Tensor) -> tuple[float, float]:
    """The least cosine between both vectors of an image, and the largest difference of a number."""
    theirs, ours = exported(images.numpy()).astype(np.float64), model(images).double().numpy()
    if theirs.shape != ours.shape:
        raise RunError(f"the file gives {theirs.shape} for {len(images)} images, the model {ours.shape}")
    # A model may give zeros for an image without content; the file then has to give zeros, too.
    empty = ~ours.any(1)
    cosine = (theirs * ours).sum(1) / np.maximum(np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1), 1e-30)
    cosine[empty] = 1.0 - np.abs(theirs[empty]).max(axis=1, initial=0.0)
    return float(np.nan_to_num(cosine, nan=-1.0).min()), float(np.nan_to_num(np.abs(theirs - ours), nan=2.0).max())


def _refuse_unlike(checks: Iterable[Check], model: Embedder, least: float) -> None:
    checks = list(checks)
    worst = min(checks, key=lambda check: check.cosine)
    different = max(check.difference for check in checks)
    if worst.cosine >= least and (least == HALF or different <= DIFFERENCE):
        return
    name = f"{model.backbone.name} with {model.config.pooling}"
    if least == HALF:
        raise RunError(
            f"{name} does not keep its direction in half precision: cosine {worst.cosine:.6f} with torch, {least} is "
            "asked for; nothing was written. Export it in float32 (without --half)"
        )
    raise RunError(
        f"the file of {name} does not agree with torch: cosine {worst.cosine:.6f} for {worst.images} image(s) of "
        f"{worst.size} pixels, {least} is asked for, numbers up to {different:.1e} apart; nothing was written. Please "
        "report it with the model's config.toml"
    )


def picture_of(transform: Transform) -> SquareTransform:
    """A transform in numbers, as a file's description holds it."""
    if isinstance(transform, Resize):
        return SquareTransform("resize", transform.size, transform.size, transform.interpolation)
    if isinstance(transform, ResizeCrop):
        return SquareTransform("resize-crop", transform.size, transform.shorter, transform.interpolation)
    raise ConfigError(f"a file cannot describe the transform {transform.key}: only resize and resize-crop")


def describe(proto: Any, description: Description) -> None:
    """Put the description into the file's metadata, in place of any other."""
    helper = require("onnx.helper", extra="onnx", purpose="exporting to ONNX")
    proto.producer_name, proto.producer_version = "secondsight", __version__
    helper.set_model_props(proto, {KEY: description.to_json()})


def save(proto: Any, path: Path) -> None:
    """Checked by ``onnx.checker``, and written with a checksum."""
    onnx = require("onnx", extra="onnx", purpose="exporting to ONNX")
    if proto.ByteSize() >= 2**31:
        raise ConfigError(
            f"the model has {proto.ByteSize() / 2**30:.1f} GiB, one ONNX file holds 2: a smaller backbone, fewer "
            "codewords, or --half"
        )
    onnx.checker.check_model(proto, full_check=True)
    path.write_bytes(sealed(proto.SerializeToString()))


def drawn(count: int = 4, side: int = 320) -> list[np.ndarray]:
    """Pictures (H, W, 3) for want of photographs: coloured noise with a photograph's spectrum, and edges.

    >>> drawn(1)[0].shape
    (240, 320, 3)
    """
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:side, :side]
    fy, fx = np.meshgrid(np.fft.fftfreq(side), np.fft.fftfreq(side), indexing="ij")
    falling = 1 / np.maximum(np.hypot(fy, fx), 1 / side)
    pictures = []
    for _ in range(count):
        noise = rng.standard_normal((3, side, side))
        image = np.fft.ifft2(np.fft.fft2(noise) * falling).real.transpose(1, 2, 0)
        image = 128 + 48 * image / image.std()
        for _ in range(3):
            y, x, radius = rng.integers(0, side, 3)
            image[np.hypot(rows - y, columns - x) < radius / 3] += rng.normal(0, 60, 3)
        pictures.append(np.clip(image[: side * 3 // 4], 0, 255).astype(np.uint8))
    return pictures
