"""An exported file with 8-bit weights and activations: static, per channel, calibrated on images.

Every convolution and every product with a matrix of weights is tried alone: the loss 1 − cosine that its 8 bits cause.
Losses add up, nearly, so the worst layers stay in float32 until the others' sum is within the budget. In networks of
depthwise convolutions a handful of early layers cause nearly all of the loss; dynamic quantisation, or all layers at
once, would ruin them.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from secondsight import files
from secondsight.errors import DataError
from secondsight.extras import require
from secondsight.inference.description import Description
from secondsight.inference.exported import session
from secondsight.inference.onnx_file import describe, save
from secondsight.progress import track

BUDGET = 0.01
"""The sum of single losses 1 − cosine that layers in 8 bits may cause."""

LEAST = 16
"""Images to calibrate with: with fewer the ranges of activations are guesses."""

TRIED, BATCH = 8, 4
"""Images that a layer's loss is measured on, and images at once while ranges are collected."""

WEIGHTED = ("Conv", "MatMul", "Gemm")


@dataclass(frozen=True)
class Quantised:
    """Which layers are in 8 bits, and which stayed in float32 because of what 8 bits would cost, worst first."""

    layers: int
    kept: tuple[tuple[str, float], ...]  # name, loss


def quantise(source: Path, target: Path, images: np.ndarray, *, budget: float = BUDGET) -> Quantised:
    """Write the float32 file ``source`` in 8 bits as ``target``, calibrated on ``images``, uint8 (N, 3, S, S)."""
    if len(images) < LEAST:
        raise DataError(f"8-bit ranges are measured on at least {LEAST} images, got {len(images)}: give more --data")
    require("onnxruntime.quantization", extra="onnx", purpose="quantising")
    with tempfile.TemporaryDirectory() as folder, _quiet():
        plain = _prepared(source, Path(folder))
        ranges = _ranges(plain, images, Path(folder))
        layers = _layers(plain)
        tried = images[np.linspace(0, len(images) - 1, TRIED).round().astype(int)]
        wanted = session(plain, threads=None).run(["vectors"], {"images": tried})[0]
        losses = {
            name: _loss(_rewritten(plain, [name], ranges), tried, wanted)
            for name in track(layers, "trying every layer in 8 bits")
        }
        kept = costly(losses, budget)
        proto = _rewritten(plain, [name for name in layers if name not in kept], ranges)
    described = session(source).get_modelmeta().custom_metadata_map
    describe(proto, replace(Description.from_metadata(described, file=str(source)), precision="int8"))
    with files.replacing(target) as temporary:
        save(proto, temporary)
    return Quantised(len(layers) - len(kept), tuple((name, losses[name]) for name in kept))


def costly(losses: dict[str, float], budget: float) -> list[str]:
    """The worst layers, as many as it takes for the sum of the others' losses to be within the budget.

    >>> costly({"a": 0.5, "b": 0.004, "c": 0.02, "d": 0.001}, 0.01)
    ['a', 'c']
    """
    kept, left = [], sum(max(loss, 0.0) for loss in losses.values())
    for name in sorted(losses, key=lambda name: -losses[name]):
        if left <= budget:
            break
        kept.append(name)
        left -= max(losses[name], 0.0)
    return kept


def _prepared(source: Path, folder: Path) -> Path:
    """The graph with batch norms folded and all shapes known, as onnxruntime's quantiser wants it."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    quant_pre_process(str(source), str(folder / "plain.onnx"), skip_symbolic_shape=True)
    return folder / "plain.onnx"


def _layers(path: Path) -> list[str]:
    """Names of the nodes that multiply with weights; others (Gram matrices, softmax) have nothing to gain."""
    import onnx

    proto = onnx.load(path)
    weights = {tensor.name for tensor in proto.graph.initializer}
    return [n.name for n in proto.graph.node if n.op_type in WEIGHTED and len(n.input) > 1 and n.input[1] in weights]


def _ranges(path: Path, images: np.ndarray, folder: Path) -> Any:
    """The least and the largest value of every activation."""
    from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod
    from onnxruntime.quantization.calibrate import create_calibrator

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            whole = len(images) // BATCH * BATCH  # the calibrator wants batches of one size
            self.batches = iter(track(np.split(images[:whole], whole // BATCH), "measuring ranges"))

        def get_next(self) -> Any:  # None after the last
            batch = next(self.batches, None)
            return None if batch is None else {"images": np.ascontiguousarray(batch)}

    calibrator = create_calibrator(
        path,
        list(WEIGHTED),
        augmented_model_path=str(folder / "ranges.onnx"),
        calibrate_method=CalibrationMethod.MinMax,
    )
    calibrator.collect_data(Reader())
    return calibrator.compute_data()


def _rewritten(path: Path, layers: list[str], ranges: Any) -> Any:
    """The graph with those layers between quantising and dequantising nodes, which onnxruntime fuses."""
    import onnx
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    quantizer = QDQQuantizer(
        onnx.load(path),
        True,  # per channel
        False,  # all 8 bits of the weights
        QuantType.QInt8,
        QuantType.QUInt8,
        ranges,
        layers,
        [],
        list(WEIGHTED),
        {"ActivationSymmetric": False},
    )
    if layers:
        quantizer.quantize_model()
        quantizer.model.topological_sort()
    return quantizer.model.model


def _loss(proto: Any, images: np.ndarray, wanted: np.ndarray) -> float:
    vectors = session(proto.SerializeToString()).run(["vectors"], {"images": images})[0]
    loss = float(1 - (vectors * wanted).sum(1).mean())
    return loss if np.isfinite(loss) else 2.0


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """onnxruntime's quantiser logs advice about steps that are done here."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
