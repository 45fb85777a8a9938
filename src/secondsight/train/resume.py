"""What a checkpoint holds, and how a run takes it up again."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from secondsight.errors import RunError
from secondsight.train import checkpoint
from secondsight.train.assembly import RunParts
from secondsight.train.checkpoint import Checkpoint
from secondsight.train.health import Watch
from secondsight.train.optimisers import trainable
from secondsight.train.recipe import Recipe
from secondsight.train.run_directory import check_same


@dataclass
class RunProgress:
    """Everything about a run that is neither weights nor follows from the step."""

    step: int = 0
    best: float | None = None  # the validation metric of best/
    best_step: int = 0
    since_best: int = 0  # validations without improvement
    stopped: bool = False  # early
    figures: dict[str, float] = field(default_factory=dict)  # of the last validation


def capture(parts: RunParts, progress: RunProgress, watch: Watch, *, metrics_bytes: int) -> Checkpoint:
    """The run as it stands. Batches, learning rates and random draws follow from the step, which is enough for them."""
    tensors, rest = checkpoint.flatten(parts.optimizer.state_dict(), "optimizer.")
    tensors |= {f"model.{name}": t for name, t in parts.model.state_dict().items()}
    tensors |= {f"loss.{name}": t for name, t in parts.loss.state_dict().items()}
    tensors |= {f"ema.{name}": t for name, t in (parts.ema.average if parts.ema else {}).items()}
    state = {
        "progress": asdict(progress),
        "watch": watch.state(),
        "metrics_bytes": metrics_bytes,
        "recipe": parts.recipe.model_dump(mode="json"),
        "images": parts.sets.train.fingerprint(),
        "optimizer": rest,
        "ema_steps": parts.ema.steps if parts.ema else 0,
    }
    return Checkpoint(progress.step, tensors, state)


def restore(found: Checkpoint, parts: RunParts, watch: Watch, *, where: Path) -> RunProgress:
    """Put the run where the checkpoint was taken; an error where it belongs to another recipe or to other images."""
    state = found.state
    try:
        own = Recipe.model_validate(state["recipe"])
    except ValueError as error:  # pydantic's is one
        raise RunError(
            f"{where}: its checkpoint was written by another version of secondsight, whose recipe this one does not "
            "read; continue with that version, or start a new run with another --out"
        ) from error
    check_same(own, parts.recipe, where=where)
    if state["images"] != parts.sets.train.fingerprint():
        raise RunError(
            f"{parts.sets.train.root}: not the images that {where} was trained on (files were added, removed or "
            "renamed); put them back to continue, or start a new run with another --out"
        )
    parts.model.load_state_dict(checkpoint.under(found.tensors, "model."))
    parts.loss.load_state_dict(checkpoint.under(found.tensors, "loss."))
    optimizer = parts.optimizer.state_dict()
    optimizer["state"] = _laid_out(checkpoint.unflatten(found.tensors, state["optimizer"], "optimizer."), parts)
    parts.optimizer.load_state_dict(optimizer)
    if parts.ema is not None:
        parts.ema.steps = state["ema_steps"]
        for name, tensor in checkpoint.under(found.tensors, "ema.").items():
            parts.ema.average[name].copy_(tensor)
    watch.restore(state["watch"])
    return RunProgress(**state["progress"])


def _laid_out(state: dict[int, dict[str, Any]], parts: RunParts) -> dict[int, dict[str, Any]]:
    """Moments in the memory format of their parameters: fused steps take the numbers of both as they lie in memory."""
    for number, parameter in enumerate(trainable(parts.optimizer)):
        for key, value in state.get(number, {}).items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                state[number][key] = torch.empty_like(parameter).copy_(value)
    return state
