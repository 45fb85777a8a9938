"""An exported file at work: pictures in, unit vectors out. Needs numpy, Pillow and onnxruntime, and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from secondsight.errors import ConfigError, ShapeError, WeightsError, first_line
from secondsight.extras import require
from secondsight.inference.description import Description, is_whole
from secondsight.inference.pictures import Source, pixels


class Exported:
    """What ``secondsight export`` wrote, ready to run.

    Args:
        path: The file.
        threads: Cores that one call may use; None for ``OMP_NUM_THREADS``, or all.
        providers: onnxruntime's execution providers, best first; None for the CPU.
    """

    def __init__(self, path: str | Path, *, threads: int | None = None, providers: Sequence[str] | None = None):
        self.path = Path(path)
        if self.path.is_dir():
            raise WeightsError(
                f"{self.path} is a directory; `secondsight export {self.path} -o model.onnx` makes the file of a model"
            )
        if not self.path.is_file():
            raise WeightsError(f"{self.path}: no such file; `secondsight export MODEL -o {self.path}` makes it")
        if not is_whole(self.path.read_bytes()):
            raise WeightsError(
                f"{self.path} is not as it was written (a disk fault, or another program): export the model again"
            )
        self.session = session(self.path, threads=threads, providers=providers)
        metadata = self.session.get_modelmeta().custom_metadata_map
        self.description = Description.from_metadata(metadata, file=str(self.path))

    @property
    def dim(self) -> int:
        return self.description.dim

    @property
    def size(self) -> int:
        """Pixels a side of the images that the model was made for."""
        return self.description.picture.size

    @property
    def name(self) -> str:
        """As a runtime: what made the vectors."""
        return {"float32": "onnx", "float16": "onnx-half", "int8": "onnx-int8"}[self.description.precision]

    def fingerprint(self) -> str:
        """Of the model that was exported: its vectors and this file's are comparable, unless it is in 8 bits."""
        return self.description.fingerprint

    def on(self, threads: int) -> Exported:
        """The same file on so many cores."""
        return Exported(self.path, threads=threads, providers=self.session.get_providers())

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """uint8 RGB (B, 3, S, S) to unit vectors (B, D) float32."""
        self._check(images)
        if len(images) == 0:
            return np.zeros((0, self.dim), np.float32)
        return self.session.run(["vectors"], {"images": images})[0]

    def pixels(self, source: Source) -> np.ndarray:
        """A picture as the model wants to see it, (3, S, S) uint8."""
        return pixels(source, self.description.picture)

    def embed(self, sources: Iterable[Source], *, batch_size: int = 8) -> np.ndarray:
        """Vectors (n, D) of files, bytes, images or arrays, in their order."""
        if batch_size < 1:
            raise ConfigError(f"batch_size must be at least 1, got {batch_size}")
        vectors, batch = [np.zeros((0, self.dim), np.float32)], []
        for source in sources:
            batch.append(self.pixels(source))
            if len(batch) == batch_size:
                vectors.append(self(np.stack(batch)))
                batch = []
        if batch:
            vectors.append(self(np.stack(batch)))
        return np.concatenate(vectors)

    def _check(self, images: np.ndarray) -> None:
        if images.ndim != 4 or images.shape[1] != 3 or images.dtype != np.uint8:
            raise ShapeError(
                f"{self.path.name} takes RGB images (batch, 3, height, width) in uint8, got {images.dtype} "
                f"{images.shape}"
            )
        multiple, size, sides = self.description.multiple, self.size, images.shape[2:]
        if sides == (size, size) or (multiple and all(side >= multiple and side % multiple == 0 for side in sides)):
            return
        allowed = f"sides that are multiples of {multiple}" if multiple else f"{size}×{size} pixels and no other size"
        raise ShapeError(f"{self.path.name} takes {allowed}, got {sides[0]}×{sides[1]}")


def load(path: str | Path, *, threads: int | None = None, providers: Sequence[str] | None = None) -> Exported:
    """The model in a file that ``secondsight export`` wrote."""
    return Exported(path, threads=threads, providers=providers)


def session(path: str | Path | bytes, *, threads: int | None = None, providers: Sequence[str] | None = None) -> Any:
    """An onnxruntime session of the file; errors name the file and the cure."""
    runtime = require("onnxruntime", extra="onnx", purpose="running an exported model")
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # warnings about nodes that it moves to the CPU help nobody here
    given = threads if threads is not None else int(os.environ.get("OMP_NUM_THREADS") or 0)
    if given < 0:
        raise ConfigError(f"threads must be at least 1 (or 0 for all cores), got {given}")
    options.intra_op_num_threads = given
    wanted = list(providers or ["CPUExecutionProvider"])
    if missing := [name for name in wanted if name not in runtime.get_available_providers()]:
        raise ConfigError(
            f"this onnxruntime has no {missing[0]}; it has {', '.join(runtime.get_available_providers())} "
            "(GPUs need the package onnxruntime-gpu)"
        )
    try:
        source = path if isinstance(path, bytes) else os.fspath(path)
        return runtime.InferenceSession(source, options, providers=wanted)
    except Exception as error:  # onnxruntime's exceptions have no common base
        name = "the graph" if isinstance(path, bytes) else path
        raise WeightsError(
            f"{name} cannot be run by onnxruntime {runtime.__version__}: {first_line(error)}; export the model again, "
            "or install the onnxruntime it was made for"
        ) from error
