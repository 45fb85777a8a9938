"""What is left to read when a run is over: ``report.json``, and ``report.html`` about the best model."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from secondsight import files
from secondsight.data.loading.batches import BatchLoader
from secondsight.model import load, mean
from secondsight.train.rundir import read_metrics
from secondsight.train.step import Network
from secondsight.version import __version__

if TYPE_CHECKING:
    from secondsight.data import ImageSet
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
        warnings = tuple(row["message"] for row in content["warnings"])
        files.write_text(directory.path / "report.html", page_of_best(loop, parts.sets.validation, warnings))


def page_of_best(loop: Loop, images: ImageSet, warnings: tuple[str, ...]) -> str:
    """How best/ retrieves the held-out classes, as ``secondsight evaluate`` shows it."""
    from secondsight.evaluate import retrieval
    from secondsight.evaluate.examples import confusions, instructive
    from secondsight.evaluate.page import page
    from secondsight.evaluate.survey import survey

    vectors, indices = embed_best(loop)
    labels = np.asarray(images.classes)[images.require_labels()[indices]]
    report = retrieval(vectors, labels, ks=loop.recipe.validation.ks, progress=lambda share: None)
    looked = survey(vectors, labels, report)
    return page(
        report,
        looked,
        title=f"{loop.directory.path.resolve().name} on the held-out classes",
        examples=instructive(vectors, labels, report, looked),
        confusions=confusions(labels, report, looked),
        picture=lambda item: thumbnail(images.path(int(indices[item]))),
        name=lambda item: images.paths[int(indices[item])],
        facts={"run": str(loop.directory.path), "data": loop.recipe.data.path, "secondsight": __version__},
        warnings=warnings,
    )


@torch.no_grad()  # not inference mode: the loader's threads write into the tensors that it makes
def embed_best(loop: Loop) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings of the held-out images by best/, and the images' numbers."""
    feeds, device = loop.parts.feeds, loop.fabric.device
    model = load(loop.directory.best, device=device)
    network = Network(model, cached=feeds.cached, size=feeds.size).eval()
    vectors: list[torch.Tensor] = []
    indices: list[torch.Tensor] = []
    loaders = [BatchLoader(rows, batch_size=64, workers=loop.recipe.data.workers) for rows in feeds.validation]
    for batches in zip(*loaders, strict=True):
        z = mean([network(batch.images.to(device)) for batch in batches])
        vectors.append(model.normalise(z).float().cpu())
        indices.append(batches[0].indices)
    return torch.cat(vectors).numpy(), torch.cat(indices).numpy()


def thumbnail(path: Path, *, size: int = 160) -> bytes | None:
    """A small JPEG of an image."""
    from PIL import Image

    from secondsight.data.loading.decode import DecodeError, decode

    try:
        image = Image.fromarray(decode(path, target=size))
    except DecodeError:
        return None
    image.thumbnail((size, size))
    content = io.BytesIO()
    image.save(content, "JPEG", quality=80)
    return content.getvalue()


def _count(images: ImageSet) -> dict[str, int]:
    return {"images": len(images), "classes": len(images.classes)}
