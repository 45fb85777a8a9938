"""The reports of a run: ``report.json``, and ``report.html`` about the best model."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from secondsight import embed, files
from secondsight.calibration import write as write_calibration
from secondsight.data import ImageSet
from secondsight.evaluate import Evaluation, Items, calibration
from secondsight.model import load
from secondsight.model.directory import describe
from secondsight.train.run_directory import read_metrics
from secondsight.train.step import Network
from secondsight.version import __version__

if TYPE_CHECKING:
    from secondsight.train.loop import Loop


def write_report(loop: Loop, *, complete: bool) -> None:
    """Write the headline figures, what was trained on what, and the history; of a complete run also the page."""
    parts, progress, directory = loop.parts, loop.progress, loop.directory
    rows = read_metrics(directory.metrics)
    content: dict[str, Any] = {
        "secondsight": __version__,
        "complete": complete,
        "steps": progress.step,
        "stopped_early": progress.stopped,
        "metric": loop.recipe.validation.metric,
        "best": progress.best,
        "best_step": progress.best_step,
        "last": progress.figures,
        "parameters": sum(p.numel() for p in parts.model.parameters()),
        "train": _count(parts.sets.train),
        "validation": None if parts.sets.validation is None else _count(parts.sets.validation),
        "unreadable": [failure.path for failure in loop.loader.failures],
        "history": [row for row in rows if row["kind"] == "validation"],
        "warnings": [row for row in rows if row["kind"] == "warning"],
        "recipe": loop.recipe.model_dump(mode="json"),
    }
    files.write_text(directory.path / "report.json", json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    if complete and parts.sets.validation is not None:
        evaluation = evaluate_best(loop, parts.sets.validation, tuple(row["message"] for row in content["warnings"]))
        _calibrate(directory.best, evaluation)
        title = f"{directory.path.resolve().name} on the held-out classes"
        files.write_text(directory.path / "report.html", evaluation.to_html(title))


def evaluate_best(loop: Loop, images: ImageSet, warnings: tuple[str, ...]) -> Evaluation:
    """How best/ retrieves the held-out classes."""
    inputs, device = loop.parts.inputs, loop.fabric.device
    model = load(loop.directory.best, device=device)
    network = Network(model, cached=inputs.cached, size=inputs.size, summed=inputs.summed).eval()
    blocks = embed.stream(
        embed.activations(model, inputs.validation, network), workers=loop.recipe.data.workers, device=device
    )
    return Evaluation.of(
        Items.of_images(images, embed.join(blocks, images)),
        facts={"run": str(loop.directory.path), "data": loop.recipe.data.path},
        warnings=warnings,
        ks=loop.recipe.validation.ks,
        progress=lambda share: None,
    )


def _calibrate(best: Path, evaluation: Evaluation) -> None:
    """Keep in best/ what its scores mean, by pairs of the held-out pictures."""
    vectors = torch.nn.functional.normalize(torch.as_tensor(evaluation.items.vectors, dtype=torch.float32)).numpy()
    found = calibration.from_labels(vectors, np.asarray(evaluation.items.labels))
    if found is not None:
        words = "how often held-out pictures that are so similar were of one class, when the model was trained"
        saved = dataclasses.replace(found, kind="validation", meaning=words)
        write_calibration(saved, best, describe(best)["fingerprint"])


def _count(images: ImageSet) -> dict[str, int]:
    return {"images": len(images), "classes": len(images.classes)}
