"""What 8 bits can win on this machine: single layers of onnxruntime in int8 against float32, in turns, on one thread.

    python benchmarks/int8.py

A whole network wins less than its products: numbers are converted between layers, depthwise convolutions move more than
they multiply, and layers that lose too much stay in float32. Processors with VNNI multiply four 8-bit numbers in the
time of one in float32; the title says whether this one has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from measure import console, interleaved, table
from secondsight.inference.exported import session

LAYERS: dict[str, tuple[int, int, int, int, int]] = {
    "3×3, 256 → 256 channels, 28×28 places": (256, 256, 28, 3, 1),
    "3×3, 512 → 512 channels, 14×14 places": (512, 512, 14, 3, 1),
    "1×1, 192 → 1152 channels, 9×9 places": (192, 1152, 9, 1, 1),
    "1×1, 320 → 1280 channels, 9×9 places": (320, 1280, 9, 1, 1),
    "3×3 depthwise, 144 channels, 72×72 places": (144, 144, 72, 3, 144),
    "5×5 depthwise, 672 channels, 18×18 places": (672, 672, 18, 5, 672),
}
"""Layers of VGG16 and of EfficientNet-Lite0 at 288 pixels: channels in, out, places a side, kernel, groups."""


def convolutions(
    channels: int, out: int, side: int, kernel: int, groups: int
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """One layer in float32 and in int8, on the same numbers."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (1, channels, side, side), dtype=np.uint8)
    w = rng.integers(-127, 127, (out, channels // groups, kernel, kernel), dtype=np.int8)
    shape = {"kernel_shape": [kernel] * 2, "pads": [kernel // 2] * 4, "group": groups}
    single, zero = np.float32(0.1), np.uint8(128)
    scales = {"xs": single, "xz": zero, "ws": np.full(out, 0.01, np.float32), "wz": np.zeros(out, np.int8)}
    plain = _file("Conv", {"w": w.astype(np.float32)}, TensorProto.FLOAT, shape)
    small = _file("QLinearConv", {**scales, "w": w, "ys": np.float32(1), "yz": zero}, TensorProto.UINT8, shape)
    wide = x.astype(np.float32)
    return lambda: plain.run(None, {"x": wide}), lambda: small.run(None, {"x": x})


def _file(kind: str, constants: dict[str, Any], dtype: int, attributes: dict[str, Any]) -> Any:
    inputs = ["x", "w"] if kind == "Conv" else ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    graph = helper.make_graph(
        [helper.make_node(kind, inputs, ["y"], **attributes)],
        kind,
        [helper.make_tensor_value_info("x", dtype, [None] * 4)],
        [helper.make_tensor_value_info("y", dtype, [None] * 4)],
        [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return session(model.SerializeToString(), threads=1)


def main() -> None:
    vnni = "has" if "vnni" in Path("/proc/cpuinfo").read_text() else "has no"
    shown = table(
        f"One layer in onnxruntime, ms; this processor {vnni} VNNI", "layer", "float32", "int8", "times faster"
    )
    runs = {(layer, i): run for layer, sizes in LAYERS.items() for i, run in enumerate(convolutions(*sizes))}
    seconds = interleaved(runs, repeats=25, clock=time.process_time)
    for layer in LAYERS:
        plain, small = seconds[layer, 0], seconds[layer, 1]
        shown.add_row(layer, f"{1e3 * plain:.2f}", f"{1e3 * small:.2f}", f"{plain / small:.2f}×")
    console.print(shown)


if __name__ == "__main__":
    main()
