"""An index against bare faiss with the same structure and parameters: latency, building, opening, memory, updating.

    python benchmarks/search.py                     100,000 × 512 clustered vectors, a minute
    python benchmarks/search.py --vectors 1000000   the size the targets are meant for, a quarter of an hour
    python benchmarks/search.py --vectors 1000000 --keep DIR --only build     the same in several runs
    python benchmarks/search.py --codes             recall against bytes a vector, for docs/scaling.md

Ratios are of one run. Vectors come from a mixture of Gaussians in 64 dimensions, rotated into 512, with a little noise
in all of them: neighbours are neighbours for a reason, as they are for trained embeddings.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import faiss
import numpy as np

from measure import console, in_fresh_process, interleaved, table, verdict
from secondsight import index
from secondsight.index import Index, growth, segments
from secondsight.index.store import Change, Record

DIM, INNER, CLUSTERS = 512, 64, 2000
STEPS = ["exact", "build", "query", "open", "add", "update"]
Row = Callable[..., None]


def clustered(n: int, seed: int) -> np.ndarray:
    shape = np.random.default_rng(1)
    basis = shape.standard_normal((INNER, DIM), np.float32) / INNER**0.5
    centres = shape.standard_normal((CLUSTERS, INNER), np.float32)
    rng = np.random.default_rng(seed)
    x = (centres[rng.integers(0, CLUSTERS, n)] + 0.6 * rng.standard_normal((n, INNER), np.float32)) @ basis
    x += 0.05 * rng.standard_normal((n, DIM), np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def pieces(n: int, size: int = 50_000) -> Iterator[np.ndarray]:
    for start in range(0, n, size):
        yield clustered(min(size, n - start), 100 + start // size)


def single(search, queries: np.ndarray) -> None:
    for query in queries:
        search(query[None])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--files", type=int, default=20_000, help="of the folder in which nothing changed")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the collection here, and take one that is there")
    parser.add_argument("--only", choices=STEPS, nargs="+", default=STEPS, help="steps of the measurement; all of them")
    parser.add_argument("--codes", action="store_true", help="recall against bytes a vector instead")
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.open is not None:
        _opened(options.open)
        return
    with tempfile.TemporaryDirectory(prefix="secondsight-search-") as temporary:
        place = options.keep or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        if options.codes:
            codes(options.vectors)
        else:
            everything(place, options.vectors, options.files, options.only)


def everything(place: Path, n: int, files: int, steps: Sequence[str]) -> None:
    rows = table(f"{n:,} × {DIM} vectors", "", "bare", "index", "ratio")

    def row(*cells: str) -> None:  # said at once, too: a million take their time
        rows.add_row(*cells)
        console.print(" · ".join(cell for cell in cells if cell))

    made = collection(place, n)
    for name in steps:
        faiss.omp_set_num_threads((os.cpu_count() or 1) if name == "build" else 1)
        if name == "update":
            updating(files, row)
        else:
            {"exact": exact, "build": building, "query": asking, "open": opening, "add": adding}[name](made, row)
    console.print(rows)


def collection(place: Path, n: int) -> Index:
    """The vectors in an index; the one that is there, where there is one of that size."""
    path = place / "b.index"
    if path.exists() and len(made := index.open(path)) >= n:
        return made
    start = time.perf_counter()
    made = index.create(path, dim=DIM)
    for number, part in enumerate(pieces(n)):
        made.add_vectors(part, paths=[f"{number:03d}/IMG_{i:07d}.jpg" for i in range(len(part))])
    made.calibrate()
    console.print(f"adding {n:,} vectors: {time.perf_counter() - start:.1f} s (generating them included)")
    return made


def exact(made: Index, row: Row) -> None:
    """Every vector compared, against the product of the same numbers as float32 alone.

    Seconds of the processor: run it with ``OMP_NUM_THREADS=1``, for threads that wait for work spin.
    """
    queries, x = clustered(64, 7), made.vectors()
    made.build(structure="exact")
    made.search(queries[:1])
    for count in (1, 64):
        seconds = interleaved(
            {
                "bare": lambda count=count: x @ queries[0] if count == 1 else queries[:count] @ x.T,
                "index": lambda count=count: made.search(queries[:count], 10),
            },
            repeats=9,
            clock=time.process_time,
        )
        row(
            f"exact, {count} at once: the product, and top 10 with paths",
            f"{1e3 * seconds['bare'] / count:.1f} ms",
            f"{1e3 * seconds['index'] / count:.1f} ms",
            verdict(seconds["bare"] / seconds["index"], 0.8, at_least=True, unit="× speed"),
        )


def building(made: Index, row: Row) -> None:
    """What faiss alone needs for the same structure, from vectors in memory to the same file.

    Seconds of the processor: they do not depend on what else the machine does."""
    x = made.vectors()
    start = time.process_time()
    facts = made.build(structure="ivf-sq8", recall=0.99)
    ours = time.process_time() - start - facts["tuning seconds"]
    start = time.process_time()
    bare = faiss.index_factory(DIM, facts["factory"], faiss.METRIC_INNER_PRODUCT)
    cells = faiss.extract_index_ivf(bare).nlist
    bare.train(x[np.random.default_rng(0).permutation(len(x))[: 40 * cells]])
    bare.add(x)
    written = made.path.with_name("bare.faiss")
    faiss.write_index(bare, str(written))
    theirs = time.process_time() - start
    written.unlink()
    row(
        f"building and writing {facts['factory']}, processor time",
        f"{theirs:.1f} s",
        f"{ours:.1f} s",
        verdict(ours / theirs, 1.05, at_least=False),
    )
    row("  besides, tuning it and saying how good it is", "", f"{facts['tuning seconds']:.1f} s", "")


def asking(made: Index, row: Row) -> None:
    """The same structure in bare faiss, and float16 numbers in memory that score the same candidates.

    *Bare* is what faiss makes of the structure's name, with the centres of cells in float32. *With our cells* it reads
    our file, with centres in float16: the same cells are found, with half of the memory traffic.
    """
    queries, facts = clustered(64, 7), made.store.fact("engine")
    ids = np.load(_structure(made).with_name("ids.npy"))
    precise = faiss.IndexScalarQuantizer(DIM, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
    precise.is_trained = True
    for start in range(0, len(ids), 50_000):
        precise.add(made.vectors(ids[start : start + 50_000]))
    ours, bare = faiss.read_index(str(_structure(made))), faiss.read_index(str(_structure(made)))
    cells, centres = faiss.extract_index_ivf(bare), faiss.IndexFlatIP(DIM)
    centres.add(cells.quantizer.reconstruct_n(0, cells.nlist))
    cells.quantizer, cells.own_fields = centres, False
    parameters = faiss.SearchParametersIVF(nprobe=facts["effort"])  # pyright: ignore[reportCallIssue]
    both = faiss.IndexRefineSearchParameters(k_factor=facts["candidates"], base_index_params=parameters)  # pyright: ignore
    refined = {name: faiss.IndexRefine(base, precise) for name, base in (("bare", bare), ("cells", ours))}
    count, known = 10 * facts["candidates"], made.searcher.neighbours(queries, 10)[1]
    same = {name: (ids[one.search(queries, 10, params=both)[1]] == known).mean() for name, one in refined.items()}
    seconds = interleaved(
        {
            "candidates": lambda: single(lambda q: bare.search(q, count, params=parameters), queries),
            "bare": lambda: single(lambda q: refined["bare"].search(q, 10, params=both), queries),
            "cells": lambda: single(lambda q: refined["cells"].search(q, 10, params=both), queries),
            "index": lambda: single(lambda q: made.searcher.neighbours(q, 10), queries),
            "hits": lambda: single(lambda q: made.search(q, 10), queries),
            "64 bare": lambda: refined["bare"].search(queries, 10, params=both),
            "64 cells": lambda: refined["cells"].search(queries, 10, params=both),
            "64 index": lambda: made.searcher.neighbours(queries, 10),
        },
        repeats=75,
    )
    ms = {name: 1e3 * value / len(queries) for name, value in seconds.items()}
    row("hits that are those of bare faiss; of it with our cells", f"{same['bare']:.3f}", f"{same['cells']:.3f}", "")
    row(f"  nprobe {facts['effort']}, {count} candidates, scored again", "", "", "")
    for title, ask in (("one query", ""), ("64 queries at once, each", "64 ")):
        own = ms[f"{ask}index"]
        for name, what in (("bare", "ids and scores"), ("cells", "against faiss with our cells")):
            words = verdict(own / ms[ask + name], 1.1, at_least=False)
            row(f"{title}: {what}", f"{ms[ask + name]:.3f} ms", f"{own:.3f} ms", words)
    row("one query: bare without rescoring", f"{ms['candidates']:.3f} ms", "", f"{ms['index'] / ms['candidates']:.2f}×")
    row("  with paths, labels and probabilities", "", f"{ms['hits']:.3f} ms", f"{ms['hits'] / ms['bare']:.2f}×")
    found = facts["recall"]
    row("recall@10: mean, worst percentile", "", f"{found['mean']:.3f}, {found['worst percentile']:.2f}", "")


def opening(made: Index, row: Row) -> None:
    structure = _structure(made).stat().st_size
    opened = in_fresh_process(__file__, "--open", str(made.path))
    row(
        "opening, until the first answer",
        "",
        f"{opened['open']:.2f} s",
        verdict(opened["open"], 1.0, at_least=False, unit=" s"),
    )
    row(
        "memory after 200 searches",
        f"{structure / 1e6:.0f} MB",
        f"{opened['bytes'] / 1e6:.0f} MB",
        verdict(opened["bytes"] / structure, 1.1, at_least=False),
    )


def adding(made: Index, row: Row) -> None:
    """1,000 more, to an empty index and to this one, which is put back afterwards."""
    small = index.create(made.path.with_name("s.index"), dim=DIM)
    some, before = clustered(1000, 55), len(made)
    seconds = interleaved(
        {"empty": lambda: small.add_vectors(some), "full": lambda: made.add_vectors(some)}, repeats=3, most=60
    )
    row(
        f"adding 1,000 to nothing, and to {before:,}",
        f"{seconds['empty']:.3f} s",
        f"{seconds['full']:.3f} s",
        verdict(seconds["full"] / seconds["empty"], 1.5, at_least=False),
    )
    row("segments", "", str(len(list((made.path / segments.FOLDER).iterdir()))), "")
    made.remove(made.ids()[before:])
    shutil.rmtree(small.path)


def updating(files: int, row: Row) -> None:
    with tempfile.TemporaryDirectory(prefix="secondsight-search-") as temporary:
        rate, catalogue = unchanged(Path(temporary), files)
    row(
        f"update of {files:,} files, nothing changed",
        "",
        f"{rate:,.0f} files/s",
        verdict(rate / 50_000, 1, at_least=True),
    )
    row("bytes a picture in the catalogue", "", f"{catalogue:.0f}", "")


def _structure(made: Index) -> Path:
    return made.path / made.store.fact("engine")["folder"] / "structure.faiss"


def unchanged(place: Path, files: int) -> tuple[float, float]:
    """Files a second of an update that finds nothing to do, and bytes a file in the catalogue.

    Their items are written as ``add`` would write them."""
    folder = place / "photos"
    for start in range(0, files, 1000):
        (folder / f"{start:07d}").mkdir(parents=True)
        for i in range(start, min(files, start + 1000)):
            (folder / f"{start:07d}" / f"IMG_{i:07d}.jpg").write_bytes(b"x")
    made = index.create(place / "u.index", dim=4)
    root = growth.add_root(made.store, str(folder), "folder", True)
    records = []
    for path in sorted(folder.rglob("*.jpg")):
        status = os.stat(path)
        name = str(path.relative_to(folder))
        digest = hashlib.blake2b(name.encode(), digest_size=16).digest()
        label = path.parent.name
        records.append(Record(root.id, name, label, status.st_size, status.st_mtime_ns, digest, 4000, 3000))
    made.store.commit(Change(records=records, vectors=np.ones((len(records), 4), np.float32) / 2))
    made.store.set_fact("calibrated", len(records))
    best = 0.0
    for _ in range(3):
        start = time.perf_counter()
        grown = made.update()
        best = max(best, files / (time.perf_counter() - start))
        assert grown.unchanged == files, grown
    made.close()
    return best, (made.path / "index.sqlite").stat().st_size / files


def codes(n: int) -> None:
    """Recall after rescoring and time a query, for structures of different bytes a vector."""
    faiss.omp_set_num_threads(1)
    place = Path(tempfile.mkdtemp(prefix="secondsight-codes-"))
    made = index.create(place / "c.index", dim=DIM)
    for part in pieces(n):
        made.add_vectors(part)
    rows = table(
        f"{n:,} × {DIM} vectors", "structure", "bytes", "recall@10", "worst percentile", "one query", "built in"
    )
    queries = clustered(64, 7)
    for structure, memory in (("ivf-sq8", None), ("bits", None), ("ivf-pq", 48 * n), ("ivf-pq", 32 * n)):
        facts = made.build(structure=structure if memory is None else None, memory=memory, recall=0.99)
        made.store.set_fact("wish", {})
        single(lambda q: made.search(q, 10), queries[:8])
        start = time.perf_counter()
        single(lambda q: made.search(q, 10), queries)
        each = (time.perf_counter() - start) / len(queries)
        found = facts["recall"]
        rows.add_row(
            facts["factory"],
            f"{facts['bytes a vector']:.0f}",
            f"{found['mean']:.3f}",
            f"{found['worst percentile']:.2f}",
            f"{1e3 * each:.1f} ms, {10 * facts['candidates']} rescored, nprobe {facts['effort']}",
            f"{facts['seconds']:.0f} s",
        )
    console.print(rows)
    shutil.rmtree(place)


def _opened(path: Path) -> None:
    import json

    queries = clustered(200, 8)
    start = time.perf_counter()
    made = index.open(path)
    before = _resident()
    made.search(queries[0])
    seconds = time.perf_counter() - start
    for query in queries:
        made.search(query)
    print(json.dumps({"open": seconds, "bytes": _resident() - before}))


def _resident() -> int:
    """Bytes in memory, without pages of segment files: those are the system's cache, which it takes back."""
    total, skipped = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            skipped = line.endswith(".vectors")
        elif line.startswith("Rss:") and not skipped:
            total += int(line.split()[1]) * 1024
    return total


if __name__ == "__main__":
    main()
