"""What is left to read when a run is over: ``report.json``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from secondsight import files
from secondsight.train.rundir import read_metrics
from secondsight.version import __version__

if TYPE_CHECKING:
    from secondsight.train.loop import Loop


def write_report(loop: Loop, *, complete: bool) -> None:
    """Write ``report.json``: headline figures, what was trained on what, the history of the validation figures."""
    parts, progress = loop.parts, loop.progress
    rows = read_metrics(loop.directory.metrics)
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
        "train": {"images": len(parts.sets.train), "classes": len(parts.sets.train.classes)},
        "validation": None
        if parts.sets.validation is None
        else {"images": len(parts.sets.validation), "classes": len(parts.sets.validation.classes)},
        "history": [row for row in rows if row["kind"] == "validation"],
        "warnings": [row for row in rows if row["kind"] == "warning"],
        "recipe": loop.recipe.model_dump(mode="json"),
    }
    files.write_text(loop.directory.path / "report.json", json.dumps(content, indent=1) + "\n")
