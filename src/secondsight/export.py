"""One file from pixels to unit vector, in float32, in half precision or in 8 bits, with what each costs.

report = export(model, "model.onnx")                                   # float32: as torch, to rounding
report = export(model, "small.onnx", precision="int8", images=images)  # a quarter of the size; the loss is measured
vectors = inference.load("model.onnx").embed(["a.jpg"])
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from secondsight import files
from secondsight.data.imageset import ImageSet
from secondsight.data.loading.batches import BatchLoader
from secondsight.data.loading.picture_rows import Pictures
from secondsight.errors import ConfigError, DataError, UnknownName
from secondsight.evaluate import retrieval
from secondsight.inference.description import PRECISIONS
from secondsight.inference.exported import Exported
from secondsight.inference.int8 import Quantised, quantise
from secondsight.inference.onnx_file import ExportReport, drawn, write
from secondsight.model import Embedder
from secondsight.progress import track

CALIBRATED, EVALUATED = 128, 1000
"""Images of --data that 8-bit ranges are measured on, and images that the loss is measured on."""


@dataclass(frozen=True)
class PrecisionCost:
    """A file beside the float32 one, on the same images: what it saves, and what that costs."""

    bytes: tuple[int, int]
    images_per_second: tuple[float, float]
    cosine: float  # mean, between the vectors of both
    recall: tuple[float, float] | None  # R@1, where the images have labels
    images: int
    quantised: Quantised | None = None


def export(
    model: Embedder,
    path: str | Path,
    *,
    precision: str = "float32",
    images: ImageSet | None = None,
    pictures: Sequence[np.ndarray] = (),
    fixed_size: bool = False,
) -> tuple[ExportReport, PrecisionCost | None]:
    """Write ``model`` as one ONNX file; with another precision than float32, also what it costs.

    Args:
        model, path, pictures, fixed_size: See ``inference.onnx_file.write``.
        precision: ``float32``, ``float16`` or ``int8``.
        images: What ``int8`` is calibrated and the cost is measured on; images for one are not used for the other.
    """
    if precision not in PRECISIONS:
        raise UnknownName("precision", precision, PRECISIONS)
    if precision == "float32":
        return write(model, path, pictures=pictures, fixed_size=fixed_size), None
    if precision == "int8" and images is None:
        raise ConfigError("8-bit ranges are measured on images: give some, --data IMAGES (labels: recall too)")
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "float32.onnx"
        report = write(model, plain, pictures=pictures, fixed_size=fixed_size)
        with files.replacing(path) as temporary:
            quantised = None
            if precision == "int8":
                assert images is not None
                quantised = quantise(plain, temporary, _calibration(model, images))
            else:
                report = write(model, temporary, pictures=pictures, fixed_size=fixed_size, half=True)
            cost = compared(Exported(plain), Exported(temporary), model, images, quantised)
    smaller = Exported(path)
    return replace(report, path=Path(path), bytes=cost.bytes[1], description=smaller.description), cost


def _calibration(model: Embedder, images: ImageSet) -> np.ndarray:
    """Every other image of a spread sample; those between are evaluated on."""
    chosen = _spread(len(images), 2 * CALIBRATED)[::2]
    return _pixels(model, images, chosen, "reading images to calibrate with")


def compared(
    plain: Exported, other: Exported, model: Embedder, images: ImageSet | None, quantised: Quantised | None = None
) -> PrecisionCost:
    """Size, speed, agreement and recall of two files, side by side."""
    if images is None:
        transform = model.transform
        pixels, labels = np.stack([transform(p).numpy() for p in drawn()]), None
    else:
        calibrated = set(_spread(len(images), 2 * CALIBRATED)[::2].tolist()) if quantised else set()
        rest = np.array([i for i in range(len(images)) if i not in calibrated])
        chosen = rest[_spread(len(rest), EVALUATED)] if len(rest) else rest
        pixels = _pixels(model, images, chosen, "reading images to evaluate on")
        labels = None if images.labels is None else np.asarray(images.labels)[chosen]
    vectors = [_vectors(file, pixels) for file in (plain, other)]
    first, second = _speeds(plain, other, pixels)
    recall = None
    if labels is not None and len(labels) == len(pixels) and len(np.unique(labels)) < len(labels):
        recall = tuple(retrieval(v, labels, ks=(1,)).recall[1] for v in vectors)
    return PrecisionCost(
        bytes=(plain.path.stat().st_size, other.path.stat().st_size),
        images_per_second=(first, second),
        cosine=float((vectors[0] * vectors[1]).sum(1).mean()),
        recall=recall,  # pyright: ignore[reportArgumentType] two of them
        images=len(pixels),
        quantised=quantised,
    )


def _spread(count: int, most: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int))


def _pixels(model: Embedder, images: ImageSet, chosen: np.ndarray, what: str) -> np.ndarray:
    loader = BatchLoader(Pictures(images.subset(chosen), model.transform), batch_size=32, strict=True)
    batches = [batch.images.numpy().copy() for batch in track(loader, what, total=-(-len(chosen) // 32))]
    if not batches:
        raise DataError(f"{images.root}: no images are left to evaluate on; give more than {CALIBRATED}")
    return np.ascontiguousarray(np.concatenate(batches))


def _vectors(file: Exported, pixels: np.ndarray) -> np.ndarray:
    batches = np.array_split(pixels, -(-len(pixels) // 16))
    return np.concatenate([file(batch) for batch in track(batches, f"embedding in {file.description.precision}")])


def _speeds(first: Exported, second: Exported, pixels: np.ndarray, rounds: int = 4) -> tuple[float, float]:
    """Images a second of both, in turns; the best of some rounds."""
    batch, best = pixels[:8], [float("inf")] * 2
    for turn in range(rounds + 1):
        for i, file in enumerate((first, second)):
            start = time.perf_counter()
            file(batch)
            if turn:
                best[i] = min(best[i], time.perf_counter() - start)
    return len(batch) / best[0], len(batch) / best[1]
