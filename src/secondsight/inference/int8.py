"""An exported file with 8-bit weights and activations: static, per channel, calibrated on images.

Every convolution and every product with a matrix of weights is tried alone: the loss 1 − cosine that its 8 bits cause.
Losses add up, nearly, so the worst layers stay in float32 until the others' sum is within the budget. In networks of
depthwise convolutions a handful of early layers cause nearly all of the loss; dynamic quantisation, or all layers at
once, would ruin them.

A ReLU behind a layer becomes part of it: 8-bit numbers that begin at zero and end at 6 need no comparison, and their
256 steps are spent on what passes the ReLU instead of on all that the layer computes.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterable, Iterator
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
FOLLOWING = ("Relu", "Clip", "MaxPool")
"""What takes the numbers of a layer and no others, and leaves them 8-bit numbers."""


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
        wanted = session(source).run(["vectors"], {"images": tried})[0]
        losses = {
            name: _loss(_rewritten(plain, nodes, ranges), tried, wanted)
            for name, nodes in track(layers.items(), "trying every layer in 8 bits", total=len(layers))
        }
        kept = costly(losses, budget)
        chosen = [node for name, nodes in layers.items() if name not in kept for node in nodes]
        proto = _rewritten(plain, chosen, ranges)
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


def _layers(path: Path) -> dict[str, list[str]]:
    """The nodes that multiply with weights, with what follows each, by name; the rest (Gram matrices, softmax) has
    nothing to gain. Projectors of codewords, each for a piece of the same locations, are one layer.
    """
    import onnx

    graph = onnx.load(path).graph
    weights = {tensor.name for tensor in graph.initializer}
    makers = {output: node for node in graph.node for output in node.output}
    takers: dict[str, list[Any]] = {}
    for node in graph.node:
        for value in node.input:
            takers.setdefault(value, []).append(node)
    found: dict[str, list[str]] = {}
    for node in graph.node:
        if node.op_type in WEIGHTED and len(node.input) > 1 and node.input[1] in weights:
            maker = makers.get(node.input[0])
            whole = maker.name if maker is not None and maker.op_type == "Split" else node.name
            found.setdefault(whole, []).extend(n.name for n in _chain(node, takers))
    return {nodes[0]: nodes for nodes in found.values()}


def _chain(node: Any, takers: dict[str, list[Any]]) -> list[Any]:
    """The node, and those of ``FOLLOWING`` that come after it, one behind the other."""
    after = takers.get(node.output[0], [])
    alone = len(after) == 1 and after[0].op_type in FOLLOWING
    return [node, *(_chain(after[0], takers) if alone else [])]


def _ranges(path: Path, images: np.ndarray, folder: Path) -> Any:
    """The least and the largest value of every activation."""
    from onnxruntime.quantization import CalibrationDataReader, CalibrationMethod
    from onnxruntime.quantization.calibrate import TensorData, create_calibrator

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            whole = len(images) // BATCH * BATCH  # the calibrator wants batches of one size
            self.batches = iter(track(np.split(images[:whole], whole // BATCH), "measuring ranges"))

        def get_next(self) -> Any:  # None after the last
            batch = next(self.batches, None)
            return None if batch is None else {"images": np.ascontiguousarray(batch)}

    calibrator = create_calibrator(
        path,
        [*WEIGHTED, *FOLLOWING],
        augmented_model_path=str(folder / "ranges.onnx"),
        calibrate_method=CalibrationMethod.MinMax,
    )
    calibrator.collect_data(Reader())
    ranges = calibrator.compute_data()
    for pieces in _pieces(path):  # a rare codeword sees few locations, or none; its features are the others' features
        seen = [ranges[piece] for piece in pieces]
        whole = {"lowest": min(s.lowest for s in seen), "highest": max(s.highest for s in seen)}
        for piece in pieces:
            ranges[piece] = TensorData(**whole)
    return ranges


def _pieces(path: Path) -> Iterable[list[str]]:
    """The names of what every split by codeword makes of one tensor."""
    import onnx

    graph = onnx.load(path).graph
    weighted = {node.input[0] for node in graph.node if node.op_type in WEIGHTED}
    splits = (list(node.output) for node in graph.node if node.op_type == "Split")
    return [pieces for pieces in splits if weighted.issuperset(pieces)]


def _rewritten(path: Path, nodes: list[str], ranges: Any) -> Any:
    """The graph with those nodes between quantising and dequantising nodes, which onnxruntime fuses. Products with
    matrices give float32: what follows them (norms, sums, softmax) is computed in it.
    """
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
        nodes,
        [],
        [*WEIGHTED, *FOLLOWING],
        {"ActivationSymmetric": False, "OpTypesToExcludeOutputQuantization": ["MatMul", "Gemm"]},
    )
    if nodes:
        quantizer.quantize_model()
        quantizer.model.topological_sort()
    proto = quantizer.model.model
    # What was inferred gives all pieces of a split one shape, and onnxruntime would give them one buffer.
    del proto.graph.value_info[:]
    return proto


def _loss(proto: Any, images: np.ndarray, wanted: np.ndarray) -> float:
    vectors = session(proto.SerializeToString()).run(["vectors"], {"images": images})[0]
    loss = float(1 - (vectors * wanted).sum(1).mean())
    return loss if np.isfinite(loss) else 2.0


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """onnxruntime's quantiser logs advice about steps that are done here."""
    import onnxruntime

    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    onnxruntime.set_default_logger_severity(3)  # errors; 2 is its own default: warnings too
    try:
        yield
    finally:
        root.setLevel(level)
        onnxruntime.set_default_logger_severity(2)
