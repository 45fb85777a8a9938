"""From whatever a query is to a vector of the index's model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from secondsight.data.imageset import ImageSet
from secondsight.data.loading.decode import DecodeError, decode
from secondsight.errors import ConfigError, DataError, ShapeError
from secondsight.index import runtime

if TYPE_CHECKING:
    from secondsight.embed.inputs import Forward
    from secondsight.index.collection import Index
    from secondsight.index.growth import Encoder
    from secondsight.inference import Exported

BATCH = 16  # pictures that an exported file gets at once

Query = Any
"""A path, the bytes of a file, a PIL image, pixels (H, W, 3) uint8, a vector (dim,), or an item's id."""


@dataclass(frozen=True, eq=False)
class Queries:
    vectors: np.ndarray  # (q, dim) float32 of unit length
    ids: list[list[int]]  # items that the queries are, so that they do not find themselves


def vectors_of(query: Query | Sequence[Query], index: Index) -> Queries:
    """The vectors of one query or of several."""
    if isinstance(query, np.ndarray) and query.dtype.kind == "f":
        vectors = query[None] if query.ndim == 1 else query
        return Queries(checked(vectors.astype(np.float32), index.dim, "query vectors"), [[] for _ in vectors])
    every = list(query) if isinstance(query, (list, tuple)) else [query]
    every = [bytes(one) if isinstance(one, (bytearray, memoryview)) else one for one in every]
    out = np.zeros((len(every), index.dim), np.float32)
    own: list[list[int]] = [[] for _ in every]
    pictures = {}
    for i, one in enumerate(every):
        if isinstance(one, (int, np.integer)):
            out[i], own[i] = index.vector(int(one)), [int(one)]
        elif isinstance(one, np.ndarray) and one.dtype.kind == "f":
            out[i] = checked(one[None].astype(np.float32), index.dim, "query vectors")[0]
        else:
            pictures[i] = one
    if pictures:
        out[list(pictures)] = _encoded(index, list(pictures.values()))
    return Queries(out, own)


def checked(vectors: np.ndarray, dim: int, what: str) -> np.ndarray:
    """Vectors (n, dim) of unit length; anything else is an error that names the first one that is not."""
    if vectors.ndim != 2 or vectors.shape[1] != dim:
        raise DataError(f"{what} have shape {vectors.shape}; this index holds vectors of {dim} numbers: (n, {dim})")
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    if not ((good := lengths > 0) & (lengths < np.inf)).all():
        bad = int(np.flatnonzero(~(good & (lengths < np.inf)))[0])
        raise DataError(
            f"{what}: number {bad} has length {lengths[bad]:g}; a direction needs finite numbers, not all 0"
        )
    return (vectors / lengths[:, None]).astype(np.float32)


def combined(likes: np.ndarray, unlikes: np.ndarray) -> np.ndarray:
    """One query from several examples: the mean of those for, minus half the mean of those against (Rocchio 1971).

    The example against counts half: what it shares with those for should not be lost altogether.
    """
    query = likes.mean(0) if len(likes) else np.zeros(unlikes.shape[1], np.float32)
    if len(unlikes):
        query = query - 0.5 * unlikes.mean(0)
    length = float(np.linalg.norm(query))
    if length < 1e-6:
        raise DataError("the examples for and against cancel each other: nothing is left to look for")
    return (query / length).astype(np.float32)


def _encoded(index: Index, pictures: list[Any]) -> np.ndarray:
    """Pictures by the model's own transform."""
    runtime.ready(index)
    try:
        if index.exported is not None:
            return index.exported.embed([_decoded(one) for one in pictures])
        from secondsight.embed import encode

        return encode(index.model(), pictures, device=index.device, run=index.run)
    except DecodeError as error:
        raise DataError(f"the query {error}") from error
    except (ShapeError, AttributeError, TypeError) as error:
        raise DataError(
            "a query is a path, bytes, a PIL image, pixels (H, W, 3) uint8, a vector of floats or the id of an item; "
            f"{error}"
        ) from error


def _decoded(picture: Any) -> Any:
    """A file or its content as pixels, by the decoder that indexing uses; what is decoded already as it is."""
    return decode(picture) if isinstance(picture, (str, Path, bytes)) else picture


def encoder(index: Index) -> Encoder:
    """What ``growth`` embeds files with. Nothing is loaded before there is a file to embed."""
    chosen = cache(lambda: _encoder(index))
    return lambda paths: chosen()(paths)


def _encoder(index: Index) -> Encoder:
    runtime.ready(index)
    if index.parts is not None:
        if index.exported is not None or index.run is not None:
            raise ConfigError(
                f"{index.path} keeps parts, made of the local features that only the model itself gives: leave out "
                "--model and --runtime"
            )
        from secondsight.index import part_encoder

        return part_encoder.encoder(index, index.parts)
    if index.exported is not None:
        return _exported_encoder(index.exported)
    return plain_encoder(index, index.run)


def plain_encoder(index: Index, run: Forward | None) -> Encoder:
    """As ``encoder``, without parts; ``run`` in the model's place."""

    def encode(paths: Sequence[str]) -> tuple[np.ndarray, np.ndarray, dict[int, DecodeError]]:
        from secondsight.embed import embed

        numbers, errors = np.arange(len(paths)), {}
        try:
            found = embed(index.model(), ImageSet("files", Path(os.sep), tuple(paths)), device=index.device, run=run)
        except DataError:
            # `embed` takes a first batch of which nothing can be read for a mistake; here it is some broken files.
            errors = unreadable(paths)
            numbers = np.array([i for i in numbers if i not in errors], np.int64)
            if not len(numbers) or not errors:
                if not errors:
                    raise
                return np.zeros((0, index.dim), np.float32), numbers, errors
            good = ImageSet("files", Path(os.sep), tuple(str(paths[i]) for i in numbers))
            found = embed(index.model(), good, device=index.device, run=run)
        errors |= {int(numbers[f.index]): f.error() for f in found.failures}
        return found.vectors, numbers[found.indices], errors

    return encode


def _exported_encoder(exported: Exported) -> Encoder:
    """The same by an exported file, without torch."""

    def encode(paths: Sequence[str]) -> tuple[np.ndarray, np.ndarray, dict[int, DecodeError]]:
        pixels, numbers, errors = [], [], {}
        for i, path in enumerate(paths):
            try:
                pixels.append(exported.pixels(decode(path)))
                numbers.append(i)
            except DecodeError as error:
                errors[i] = error
        vectors = [exported(np.stack(pixels[i : i + BATCH])) for i in range(0, len(pixels), BATCH)]
        return np.concatenate([np.zeros((0, exported.dim), np.float32), *vectors]), np.array(numbers, np.int64), errors

    return encode


def unreadable(pictures: Sequence[Any]) -> dict[int, DecodeError]:
    """What is wrong with the files (paths or bytes) that cannot be decoded, by their number."""
    errors = {}
    for i, one in enumerate(pictures):
        try:
            _decoded(one)
        except DecodeError as error:
            errors[i] = error
    return errors
