"""``create`` and ``open``: where an index comes from."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from secondsight import files
from secondsight.data.imageset import ImageSet
from secondsight.errors import ConfigError, DataError
from secondsight.index import parts as parts_room
from secondsight.index.catalogue import FILE
from secondsight.index.collection import Index
from secondsight.index.facts import description
from secondsight.index.store import Store
from secondsight.index.upkeep import MODEL

if TYPE_CHECKING:
    from secondsight.model import Embedder


def create(
    path: str | Path,
    model: Embedder | None = None,
    images: ImageSet | str | Path | Sequence[str | Path] | None = None,
    *,
    dim: int | None = None,
    dtype: str = "float16",
    labelled: bool | None = None,
    origin: str | None = None,
    device: str = "cpu",
    parts: int = 1,
) -> Index:
    """A new index at ``path`` with a copy of ``model``, so that it goes on working wherever the model goes; filled with
    ``images``. Without a model, ``dim`` says how long the vectors are that ``add_vectors`` will bring.
    ``parts``: vectors a picture; more than 1 find small things in it.

    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     few = create(f"{folder}/few.index", dim=2)
    ...     ids = few.add_vectors(np.array([[1.0, 0.0], [0.0, 1.0]]), labels=["east", "north"])
    ...     few.search(np.array([0.9, 0.1], np.float32), k=1).labels.tolist()
    [['east']]
    """
    target = Path(path)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        what = (
            "an index is there already, which index.open opens"
            if (target / FILE).exists()
            else "something else is there"
        )
        raise DataError(f"{target}: {what}; choose another place")
    if (model is None) == (dim is None):
        raise ConfigError("an index needs a model, or the dimension of the vectors it will hold: give one of both")
    known: dict[str, Any] = {} if origin is None else {"origin": origin}
    if model is not None:
        known["model"] = {"fingerprint": model.fingerprint(), "description": description(model)}
    with files.replacing_directory(target) as fresh:
        if model is not None:
            model.save(fresh / MODEL)
        Store.create(fresh, dim=model.dim if model is not None else int(dim or 0), dtype=dtype, facts=known)
    made = Index(target, device=device)
    if model is not None:
        made._model = model.to(device).eval()
    if parts_room.checked_count(parts):
        parts_room.set_count(made.store, parts)
    if images is not None:
        try:
            made.add(images, labelled=labelled)
        except DataError:
            if not len(made):
                made.close()
                shutil.rmtree(target, ignore_errors=True)
            raise
    return made


def open(path: str | Path, *, model: Embedder | None = None, device: str = "cpu") -> Index:
    """The index at ``path``. With a ``model``, it must be the one whose vectors these are."""
    found = Index(path, device=device)
    if model is not None:
        found.check_fingerprint(model.fingerprint(), "the given model")
        found._model = model.to(device).eval()
    return found
