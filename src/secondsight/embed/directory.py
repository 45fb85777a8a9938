"""Embeddings as a directory, written block by block: a run that was stopped goes on, and processes share the work.

vectors.npy       (n, D) float32, or float16 where that was asked for
items.csv         path and label of every row of ``vectors.npy``, in its order
embedding.json    the model's fingerprint, the transform, the images' fingerprint, counts, a checksum of all of it
failures.jsonl    files that could not be read, with the cause (only where there are any)
origin.json       the classes that taught the model, where they are known (written by ``secondsight embed``)
blocks/           what is finished so far, each file with its checksum; gone at the end, unless a file could not be read
                  this time (the disk, a permission): then it is tried again the next time, and its block made anew
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from xxhash import xxh3_64

from secondsight import files
from secondsight.data import Failures, ImageSet
from secondsight.data.loading.failures import Failure
from secondsight.embed.inputs import Forward
from secondsight.embed.stream import BLOCK, Block, block_count, blocks
from secondsight.errors import ConfigError, DataError, RunError
from secondsight.model import Embedder
from secondsight.terminal import warn

IDENTITY = ("model", "images", "transform", "dtype", "batch_size", "block", "runtime")
"""Whose embeddings these are; the other facts are said at the end."""

VECTORS, ITEMS, FACTS, FAILURES, BLOCKS = "vectors.npy", "items.csv", "embedding.json", "failures.jsonl", "blocks"


def embed_to(
    directory: str | Path,
    model: Embedder,
    images: ImageSet,
    *,
    half: bool = False,
    batch_size: int = 64,
    block: int = BLOCK,
    workers: int | None = None,
    device: str | torch.device = "cpu",
    strict: bool = False,
    rank: int = 0,
    world_size: int = 1,
    run: Forward | None = None,
) -> int:
    """Embed this process's share of the blocks that ``directory`` lacks; how many blocks it computed."""
    folder = Path(directory)
    identity = {
        "model": model.fingerprint(),
        "images": images.fingerprint(),
        "transform": model.transform.key,
        "dtype": "float16" if half else "float32",
        "batch_size": batch_size,
        "block": block,
        # Other runtimes agree to rounding; the vectors of this one are others, and are not mixed with them.
        **({"runtime": "onnx-int8"} if getattr(run, "name", None) == "onnx-int8" else {}),
    }
    _claim(folder, identity, write=rank == 0)
    if (folder / VECTORS).exists() and not (folder / BLOCKS).exists():
        if _facts(folder).get("check") == _check(folder):
            return 0
        warn(f"WARNING: {folder} is not as it was written (a disk fault?); its images are embedded again")
        (folder / VECTORS).unlink(missing_ok=True)
    _drop_unread({number: path for number, path in _finished(folder).items() if number % world_size == rank})
    kept = set(_finished(folder))
    computed = 0
    options = {"batch_size": batch_size, "block": block, "workers": workers, "device": device, "strict": strict}
    for found in blocks(model, images, done=kept, rank=rank, world_size=world_size, run=run, **options):
        _write(folder, found, half=half)
        computed += 1
    return computed


def finish(
    directory: str | Path, images: ImageSet, *, block: int = BLOCK, batch_size: int = 64
) -> tuple[int, Failures]:
    """Join the blocks once all of them are there; how many images were embedded, and those that could not be."""
    folder = Path(directory)
    facts = _facts(folder)
    if (folder / VECTORS).exists() and not (folder / BLOCKS).exists():
        return facts["embedded"], _failures(folder)
    wanted = block_count(len(images), block, batch_size)
    found = _finished(folder)
    if len(found) < wanted:
        raise RunError(f"{folder}: {wanted - len(found)} of {wanted} blocks are missing; run the same command again")
    failures = Failures()
    rows, width = 0, 0
    for part in _ordered(folder, found):
        rows, width = rows + len(part.indices), max(width, part.vectors.shape[1])
        for failure in part.failures:
            failures.add(failure.index, failure.path, failure.cause, lasting=failure.lasting)
    if not rows:
        worst = next(iter(failures))
        raise DataError(f"{images.root}: none of the {len(images):,} images can be read; {worst.path}: {worst.cause}")
    _write_items(folder, images, found)
    if failures:
        failures.write(folder / FAILURES)
    else:
        (folder / FAILURES).unlink(missing_ok=True)
    facts = {key: facts[key] for key in IDENTITY if key in facts} | {"embedded": rows, "failed": len(failures)}
    with files.replacing(folder / VECTORS) as temporary:
        array = np.lib.format.open_memmap(
            temporary, mode="w+", dtype=np.dtype(str(facts["dtype"])), shape=(rows, width)
        )
        start = 0
        for part in _ordered(folder, found):
            array[start : start + len(part.indices)] = part.vectors
            start += len(part.indices)
        array.flush()
        del array
        # Before the vectors take their place: a process that is killed in between joins the blocks again.
        files.write_text(
            folder / FACTS, json.dumps({**facts, "check": _check(folder, facts, temporary)}, indent=1) + "\n"
        )
    if all(failure.lasting for failure in failures):
        shutil.rmtree(folder / BLOCKS)
    return rows, failures


def _failures(folder: Path) -> Failures:
    """Those of finished embeddings, to be said again."""
    found = Failures()
    if (folder / FAILURES).is_file():
        for line in (folder / FAILURES).read_text("utf-8", errors="surrogateescape").splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError):  # a damaged line; the figures are those of FACTS
                one = Failure(**json.loads(line))
                found.add(one.index, one.path, one.cause, lasting=one.lasting)
    return found


def _check(folder: Path, facts: dict | None = None, vectors: Path | None = None) -> str:
    """One checksum of the facts, the vectors and the items."""
    known = {key: value for key, value in (facts or _facts(folder)).items() if key != "check"}
    found = xxh3_64(json.dumps(known, sort_keys=True).encode())
    for path in (vectors or folder / VECTORS, folder / ITEMS):
        try:
            with path.open("rb") as handle:
                while piece := handle.read(1 << 20):
                    found.update(piece)
        except FileNotFoundError:  # then it is not as it was written
            found.update(b"gone")
    return found.hexdigest()


def _claim(folder: Path, identity: dict, *, write: bool) -> None:
    """Say whose embeddings these are, or refuse a folder that holds another's."""
    known = {key: value for key, value in _facts(folder).items() if key in identity}
    if known and known != identity:
        differ = " and ".join(key.replace("_", " ") for key in identity if known.get(key) != identity[key])
        raise ConfigError(f"{folder} holds other embeddings: {differ} differ; choose another place, or remove it")
    if not known and write:
        files.check_writable(folder)
        # Names with a dot in front are what a killed process was about to write; another process may have begun.
        if folder.is_dir() and any(not entry.name.startswith((".", BLOCKS)) for entry in folder.iterdir()):
            raise ConfigError(f"{folder} holds something other than embeddings; choose an empty folder")
        files.write_text(folder / FACTS, json.dumps(identity, indent=1) + "\n")


def _facts(folder: Path) -> dict:
    try:
        return json.loads((folder / FACTS).read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder / FACTS}: cannot be read ({error}); remove {folder} and start again") from error


def _write(folder: Path, block: Block, *, half: bool) -> None:
    content = io.BytesIO()
    np.savez(
        content,
        vectors=block.vectors.astype(np.float16) if half else block.vectors,
        indices=block.indices,
        range=np.array([block.start, block.stop]),
        failures=np.array(json.dumps([[f.index, f.path, f.cause, f.lasting] for f in block.failures])),
    )
    data = content.getvalue()
    for old in (folder / BLOCKS).glob(f"{block.number:08d}-*.npz"):
        old.unlink(missing_ok=True)
    files.write_bytes(folder / BLOCKS / f"{block.number:08d}-{zlib.crc32(data):08x}.npz", data)


def _finished(folder: Path) -> dict[int, Path]:
    """The blocks that are there and whole; one that is damaged is removed, and computed again."""
    found = {}
    for path in sorted((folder / BLOCKS).glob("*.npz")):
        number, _, checksum = path.stem.partition("-")
        if number.isdigit() and f"{zlib.crc32(path.read_bytes()):08x}" == checksum:
            found[int(number)] = path
        else:
            path.unlink()
    return found


def _drop_unread(found: dict[int, Path]) -> None:
    """Remove the blocks without a file that the disk or a permission kept back: this time it may be read."""
    for number, path in found.items():
        for part in _ordered(path.parent.parent, {number: path}):
            if not all(failure.lasting for failure in part.failures):
                path.unlink(missing_ok=True)


def _ordered(folder: Path, found: dict[int, Path]) -> Iterator[Block]:
    for number in sorted(found):
        with np.load(found[number], allow_pickle=False) as arrays:
            failures = tuple(Failure(*failure) for failure in json.loads(str(arrays["failures"])))
            start, stop = arrays["range"].tolist()
            yield Block(number, start, stop, arrays["vectors"], arrays["indices"], failures)


def _write_items(folder: Path, images: ImageSet, found: dict[int, Path]) -> None:
    with (
        files.replacing(folder / ITEMS) as temporary,
        temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="") as handle,
    ):
        writer = csv.writer(handle)
        writer.writerow(["path", "label"] if images.labels is not None else ["path"])
        for part in _ordered(folder, found):
            for index in part.indices.tolist():
                row = [images.paths[index]]
                writer.writerow(row if images.labels is None else [*row, images.classes[int(images.labels[index])]])
