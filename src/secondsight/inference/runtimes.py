"""The runtimes that can run a model, ``uint8 (B, 3, S, S) → (B, D)``, by name.

    torch        the model as it is
    compile      torch.compile: minutes of compiling, then often faster; worth it on GPUs and for long runs
    onnx         onnxruntime, from a file that is exported when first asked for and kept
    onnx-int8    onnxruntime with 8-bit numbers: ``secondsight export MODEL --int8 --data IMAGES`` makes the file first
    auto         the faster of torch and onnx, measured on this machine once and remembered

All but ``onnx-int8`` agree to rounding; its vectors differ, and belong in an index of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from secondsight import files
from secondsight.errors import ConfigError, SecondsightError, UnknownName, WeightsError, first_line
from secondsight.inference.description import RUNTIMES
from secondsight.inference.exported import Exported
from secondsight.inference.onnx_file import write
from secondsight.model import Embedder

BATCH, ROUNDS = 8, 3
"""Images at once, and how often each runtime has its turn, when they are measured."""

REST = 0.1
"""Seconds before a turn: the last runtime's threads go on waiting for work, and take a core, for some time."""

WORTH = 1000
"""Images below which exporting and measuring take longer than the faster runtime would save."""

MEASURED, FILE, INT8 = "runtime.json", "model.onnx", "model-int8.onnx"


class Runtime:
    """A function of images with a ``name``; ``speeds`` are images a second, where several were measured; ``exported``
    is the file that runs, if one does.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[Tensor], Tensor],
        speeds: dict[str, float] | None = None,
        exported: Exported | None = None,
    ):
        self.name, self._run, self.speeds, self.exported = name, run, speeds or {}, exported

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:
        return self._run(images)

    def __repr__(self) -> str:
        return f"Runtime({self.name!r})"

    def said(self) -> str:
        """What was chosen and why, for people."""
        if not self.speeds:
            return self.name
        others = ", ".join(f"{name} {speed:.0f}" for name, speed in self.speeds.items())
        return f"{self.name} (images/s here: {others})"


def runtime(
    model: Embedder,
    name: str = "auto",
    *,
    device: str | torch.device = "cpu",
    beside: str | Path | None = None,
    images: int | None = None,
) -> Runtime:
    """``model`` behind one of the names.

    Args:
        model: The embedder; it is put into evaluation mode and moved to ``device``.
        name: One of ``RUNTIMES``.
        device: Where torch runs; onnxruntime takes the GPU if it has a provider for it.
        beside: The model's directory, where exported files and measurements are kept if it can be written to;
            otherwise, and without it, they are kept in the user's cache, by the model's fingerprint.
        images: How many are to be embedded. For fewer than ``WORTH`` ``auto`` does not begin to measure: it uses what
            was measured before, or torch.
    """
    if name not in RUNTIMES:
        raise UnknownName("runtime", name, RUNTIMES)
    model = model.to(device).eval()
    if name == "auto":
        return _fastest(model, torch.device(device), beside, measure=images is None or images >= WORTH)
    return _build(model, name, torch.device(device), beside)


def _build(model: Embedder, name: str, device: torch.device, beside: str | Path | None) -> Runtime:
    if name == "torch":
        return Runtime(name, lambda images: model(images.to(device)))
    if name == "compile":
        return Runtime(name, _compiled(model, device))
    exported = _kept(model, name, device, beside)
    return Runtime(name, lambda images: torch.from_numpy(exported(images.cpu().numpy())), exported=exported)


def _compiled(model: Embedder, device: torch.device) -> Callable[[Tensor], Tensor]:
    from torch._dynamo.exc import BackendCompilerFailed

    compiled = torch.compile(model, dynamic=True)

    def run(images: Tensor) -> Tensor:
        try:
            return compiled(images.to(device))
        except BackendCompilerFailed as error:
            raise ConfigError(
                f"torch.compile fails here ({first_line(error)}); it needs a C++ compiler on a CPU: "
                "--runtime onnx needs none"
            ) from error

    return run


def _kept(model: Embedder, name: str, device: torch.device, beside: str | Path | None) -> Exported:
    """The model's ONNX file; float32 is made where there is none, int8 is not: it needs images to be made from."""
    fingerprint = model.fingerprint()
    for place in _places(fingerprint, beside):
        path = place / (INT8 if name == "onnx-int8" else FILE)
        if path.is_file():
            try:
                found = Exported(path, threads=torch.get_num_threads(), providers=_providers(device))
            except WeightsError:
                continue  # of another version: made again below
            if found.fingerprint() == fingerprint:
                return found
    if name == "onnx-int8":
        where = f"{beside}" if beside else "MODEL"
        raise WeightsError(
            f"{model.backbone.name} with {model.config.pooling} has no int8 file yet; "
            f"`secondsight export {where} --int8 --data IMAGES` makes it, with what it costs"
        )
    place = next(p for p in _places(fingerprint, beside) if _writable(p))
    write(model, place / FILE, fixed_size=True)
    model.to(device)
    return Exported(place / FILE, threads=torch.get_num_threads(), providers=_providers(device))


def keep_int8(model: Embedder, path: str | Path, *, beside: str | Path | None = None) -> Path:
    """Put an int8 file where ``runtime(model, "onnx-int8")`` finds it."""
    places = [place for place in _places(model.fingerprint(), beside) if _writable(place)]
    for place in places:  # an index, which has a copy of the model, looks in the user's cache
        files.write_bytes(place / INT8, Path(path).read_bytes())
    return places[0] / INT8


def _fastest(model: Embedder, device: torch.device, beside: str | Path | None, *, measure: bool = True) -> Runtime:
    """The measured choice, from the last time or from now."""
    fingerprint, here = model.fingerprint(), machine(device)
    for place in _places(fingerprint, beside):
        known = _read(place / MEASURED).get(here)
        if known is not None and known.get("fingerprint") == fingerprint:
            built = _build(model, known["chosen"], device, beside)
            return Runtime(built.name, built._run, known["images_per_second"], built.exported)
    if not measure:
        return _build(model, "torch", device, beside)
    speeds, built = _measured(model, device, beside)
    chosen = max(speeds, key=lambda name: speeds[name])
    place = next(p for p in _places(fingerprint, beside) if _writable(p))
    answer = {"fingerprint": fingerprint, "chosen": chosen, "images_per_second": speeds, "batch": BATCH}
    files.write_text(place / MEASURED, json.dumps({**_read(place / MEASURED), here: answer}, indent=1) + "\n")
    return Runtime(chosen, built[chosen]._run, speeds, built[chosen].exported)


def _measured(
    model: Embedder, device: torch.device, beside: str | Path | None
) -> tuple[dict[str, float], dict[str, Runtime]]:
    """Images a second of every candidate, in turns so that a busy moment hits all alike."""
    built = {"torch": _build(model, "torch", device, beside)}
    with contextlib.suppress(SecondsightError):  # no extra installed, or a model without an ONNX form: torch it is
        built["onnx"] = _build(model, "onnx", device, beside)
    images = torch.randint(0, 256, (BATCH, 3, model.size, model.size), dtype=torch.uint8)
    best = dict.fromkeys(built, float("inf"))
    for turn in range(ROUNDS + 1):
        for name, run in built.items():
            time.sleep(REST)
            start = time.perf_counter()
            run(images).cpu()
            if turn:  # the first warms up
                best[name] = min(best[name], time.perf_counter() - start)
    return {name: round(BATCH / seconds, 1) for name, seconds in best.items()}, built


def machine(device: torch.device) -> str:
    """What a measurement depends on besides the model, in words."""
    try:
        import onnxruntime

        version = onnxruntime.__version__
    except ImportError:
        version = "none"
    processor = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    threads = torch.get_num_threads()
    return f"{processor}, {threads} threads, {device.type}, torch {torch.__version__}, onnxruntime {version}"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _providers(device: torch.device) -> list[str]:
    import onnxruntime

    own = {"cuda": "CUDAExecutionProvider", "mps": "CoreMLExecutionProvider"}.get(device.type)
    there = onnxruntime.get_available_providers()
    return [*([own] if own is not None and own in there else []), "CPUExecutionProvider"]


def _places(fingerprint: str, beside: str | Path | None) -> list[Path]:
    """Where files may be kept, best first: in the model's directory, in the user's cache."""
    home = os.environ.get("SECONDSIGHT_CACHE")
    cache = Path(home) if home else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "secondsight"
    own = [] if beside is None or not Path(beside).is_dir() else [Path(beside) / "runtimes"]
    return [*own, cache / "runtimes" / fingerprint[:16]]


def _writable(place: Path) -> bool:
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(place, os.W_OK)


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
