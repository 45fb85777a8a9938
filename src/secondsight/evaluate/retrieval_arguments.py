"""The arguments of ``retrieval``, made uniform, or refused with a sentence that says what is wrong."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from secondsight.errors import ConfigError, DataError, ShapeError
from secondsight.evaluate.report import Label

Array = np.ndarray | Tensor
_ROWS = 4096  # rows that are checked at a time


def as_vectors(embeddings: Array) -> Tensor:
    """(n, d), floating point, finite; on the device where it was, and not copied where that can be helped."""
    vectors = embeddings.detach() if isinstance(embeddings, Tensor) else _tensor(np.asarray(embeddings))
    if vectors.is_complex():
        raise ConfigError("the embeddings are complex numbers; stack real and imaginary parts to compare them")
    if vectors.ndim != 2:
        raise ShapeError(f"embeddings must be (items, dimensions), got shape {tuple(vectors.shape)}")
    if 0 in vectors.shape:
        raise DataError(f"there is nothing to evaluate: the embeddings have shape {tuple(vectors.shape)}")
    if not vectors.is_floating_point():
        vectors = vectors.float() if vectors.element_size() <= 2 else vectors.double()
    _check_finite(vectors)
    return vectors


def _tensor(array: np.ndarray) -> Tensor:
    if array.dtype.kind not in "fiubc" or array.dtype == np.longdouble:
        raise ConfigError(f"embeddings must be numbers of up to 64 bits, got an array of {array.dtype}")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.float64)
    array = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    with warnings.catch_warnings():
        # A memory-mapped file is read-only, which torch warns of; nothing here writes to it.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


def _check_finite(vectors: Tensor) -> None:
    bad = torch.cat([~torch.isfinite(part).all(1) for part in vectors.split(_ROWS)]).nonzero().view(-1)
    if len(bad):
        first = ", ".join(str(int(i)) for i in bad[:5]) + (" …" if len(bad) > 5 else "")
        raise DataError(
            f"{len(bad):,} of {len(vectors):,} embeddings hold NaN or infinite numbers (rows {first}); make them again"
        )


def as_labels(labels: Array | Sequence[Label], count: int) -> tuple[list[Label], np.ndarray]:
    """The different labels in order, and the number of each item's: integers or names, one an embedding."""
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.shape != (count,):
        raise ShapeError(f"{count:,} embeddings need {count:,} labels in one dimension, got shape {array.shape}")
    if array.dtype.kind == "f" and np.array_equal(array, np.trunc(array)) and np.isfinite(array).all():
        array = array.astype(np.int64)  # whole numbers from a text file
    if array.dtype.kind == "O" and all(isinstance(label, str) for label in array):
        array = array.astype(np.str_)
    if array.dtype.kind not in "iubU":
        raise ConfigError(f"labels must be integers or names, got an array of {array.dtype}")
    names, numbers = np.unique(array, return_inverse=True)
    return names.tolist(), numbers.reshape(-1)


def as_indices(given: Array | Sequence[int] | None, count: int, what: str) -> np.ndarray:
    """Indices into the embeddings: all of them, those named, or those where a mask of n booleans is true."""
    if given is None:
        return np.arange(count)
    array = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    if array.dtype == bool:
        if array.shape != (count,):
            raise ShapeError(f"{what}: a mask needs one entry for each of {count:,} embeddings, got {array.shape}")
        array = np.flatnonzero(array)
    if array.size == 0:
        raise DataError(f"{what}: no items; leave it out to use all embeddings")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ConfigError(f"{what} must be a list of indices or a mask, got shape {array.shape} of {array.dtype}")
    if array.min() < 0 or array.max() >= count:
        outside = int(array[(array < 0) | (array >= count)][0])
        raise DataError(f"{what}: index {outside} is not among 0 … {count - 1}")
    values, times = np.unique(array, return_counts=True)
    if len(values) < len(array):
        raise DataError(f"{what}: index {int(values[times > 1][0])} is given more than once")
    return array.astype(np.int64)


def as_ks(ks: Sequence[int]) -> tuple[int, ...]:
    """Distinct K in ascending order."""
    wrong = [k for k in ks if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1]
    if wrong or not len(ks):
        raise ConfigError(f"ks must be whole numbers ≥ 1, such as (1, 2, 4, 8); got {wrong[0] if wrong else 'none'!r}")
    return tuple(sorted({int(k) for k in ks}))


def check_classes(names: list[Label], labels: np.ndarray, queries: np.ndarray, gallery: np.ndarray) -> None:
    """Two classes at least, and a query that has something to find."""
    used = np.union1d(labels[queries], labels[gallery])
    if len(used) < 2:
        raise DataError(
            f"every item has the label {names[int(used[0])]!r}: whatever comes first is right; retrieval is judged on "
            "two or more classes"
        )
    there = np.bincount(labels[gallery], minlength=len(names))
    itself = np.isin(queries, gallery)
    if not (there[labels[queries]] - itself > 0).any():
        raise DataError(
            f"none of the {len(queries):,} queries has another item of its class in the gallery of {len(gallery):,}; "
            "check that labels name classes, not single items"
        )
