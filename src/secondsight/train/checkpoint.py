"""Checkpoints: safetensors and JSON, written whole or not at all, with checksums that are verified on loading.

    checkpoints/step-00000120/tensors.safetensors    model, loss, optimiser, averaged weights
    checkpoints/step-00000120/state.json             everything else, the recipe, and the checksums of both

Nothing is pickled. What depends on the step alone (learning rates, batches, random draws) is not stored: the step is.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from secondsight import files
from secondsight.errors import RunError

FORMAT = 1
TENSORS, STATE = "tensors.safetensors", "state.json"


@dataclass(frozen=True)
class Checkpoint:
    step: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]  # what JSON can hold


class Damaged(Exception):
    """A checkpoint whose files are missing, cut short or changed."""


def save(folder: Path, checkpoint: Checkpoint, *, keep: int) -> Path:
    """Write ``folder/step-N`` atomically, then remove all but the newest ``keep``."""
    from safetensors.torch import save_file

    target = folder / f"step-{checkpoint.step:08d}"
    with files.replacing_directory(target) as fresh:
        tensors = {name: t.detach().cpu().contiguous() for name, t in checkpoint.tensors.items()}
        save_file(tensors, fresh / TENSORS)
        body = {
            "format": FORMAT,
            "step": checkpoint.step,
            "tensors": _sha256(fresh / TENSORS),
            "state": checkpoint.state,
        }
        (fresh / STATE).write_text(json.dumps({"checksum": _checksum(body), **body}, indent=1), encoding="utf-8")
    for old in listing(folder)[keep:]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def listing(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first."""
    return sorted(folder.glob("step-*"), reverse=True) if folder.is_dir() else []


def load(path: Path) -> Checkpoint:
    """One checkpoint, verified. Raises ``Damaged`` with the reason."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        body = json.loads((path / STATE).read_text(encoding="utf-8"))
        stored = body.pop("checksum")
        if stored != _checksum(body):
            raise Damaged(f"{path / STATE} was changed or cut short")
        if body["format"] != FORMAT:
            raise RunError(f"{path} has format {body['format']}; this version of secondsight reads format {FORMAT}")
        if _sha256(path / TENSORS) != body["tensors"]:
            raise Damaged(f"{path / TENSORS} does not have the checksum it was written with")
        return Checkpoint(body["step"], load_file(path / TENSORS), body["state"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise Damaged(f"{path}: {error}") from error


def newest(folder: Path, *, say: Callable[[str], None]) -> Checkpoint | None:
    """The newest sound checkpoint; a damaged one is passed over, and that is said."""
    found = listing(folder)
    for path in found:
        try:
            return load(path)
        except Damaged as damage:
            say(f"checkpoint {path.name} is damaged ({damage}); falling back to the one before it")
    if found:
        raise RunError(
            f"{folder}: none of the {len(found)} checkpoints is sound; start the run again with another --out"
        )
    return None


def sweep(folder: Path) -> None:
    """Remove what an interrupted write left behind."""
    for left in (*folder.glob(".step-*.tmp"), *folder.glob(".step-*.old")):
        shutil.rmtree(left, ignore_errors=True)


def flatten(state: dict[str, Any], prefix: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """An optimiser's state as tensors by dotted name, and the few values that are not tensors."""
    tensors, rest = {}, {}
    for number, values in state["state"].items():
        for key, value in values.items():
            if isinstance(value, Tensor):
                tensors[f"{prefix}{number}.{key}"] = value
            else:
                rest[f"{number}.{key}"] = value
    return tensors, rest


def unflatten(tensors: dict[str, Tensor], rest: dict[str, Any], prefix: str) -> dict[int, dict[str, Any]]:
    """The inverse of ``flatten``: number of the parameter → its state."""
    state: dict[int, dict[str, Any]] = {}
    own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    for name, value in {**own, **rest}.items():
        number, _, key = name.partition(".")
        state.setdefault(int(number), {})[key] = value
    return state


def under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names start with ``prefix``, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
