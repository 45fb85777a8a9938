"""Parts of images as queries and as entries: which way to make their vectors finds most?

    python benchmarks/explain_parts.py collages [--side 3] [--count 150]
    python benchmarks/explain_parts.py marks [--side 2] [--count 150]
    python benchmarks/explain_parts.py birds --data ../shared/data/CUB_200_2011 [--model DIR]

``collages``: emoji, 2 × 2 or 3 × 3 an image. A query is the box around one of them; what must be found are the other
images that hold it. Query vectors: the whole image, the region's sum, the region pooled by itself, the region cropped
and embedded again. Entries: one vector an image; overlapping windows; codewords; parts (``places.vectors``). The same
again through an index of files with ``--parts``, with time, bytes, and whether hits say where. Then whole images as
queries, re-ranked by how well links agree in space. ``marks``: the same search, then feedback on results as wholes, or
on the part of them that is meant. ``birds``: a query by the box or by the head must find the species (classes 51–100);
agreement in space; and feedback of a user who marks up to five of the first twenty results for and against, by weights
of codewords and by Rocchio's rule on whole vectors; and of one who clicks on places of the query, on the bird's parts
and beside the bird.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from rich.progress import track

import collages
from explain import HALF, fitted, marked, numbers
from measure import console, table
from secondsight import Embedder, data, explain, index, load
from secondsight.explain import Places
from secondsight.explain.agreement import best_movement
from secondsight.explain.region import METHODS
from secondsight.index import Hits

HEAD = (2, 5, 6, 7, 10, 11, 15)  # CUB's parts: beak, crown, forehead, eyes, nape, throat


def ranked(scores: np.ndarray, relevant: Sequence[np.ndarray], own: Sequence[int]) -> tuple[float, float]:
    """R@1 and MAP in per cent; an image is not its own result."""
    orders = [np.argsort(-row, kind="stable") for row in scores]
    return judged([right[o[o != mine]] for right, o, mine in zip(relevant, orders, own, strict=True)])


def judged(hits: Sequence[np.ndarray]) -> tuple[float, float]:
    """R@1 and MAP in per cent of rows that say which results are right, in order; rows without any do not count."""
    hits = [hit for hit in hits if hit.any()]
    precision = [(hit * np.cumsum(hit) / np.arange(1, len(hit) + 1)).sum() / hit.sum() for hit in hits]
    return 100 * float(np.mean([hit[0] for hit in hits])), 100 * float(np.mean(precision))


def _shown(figures: tuple[float, float]) -> str:
    return f"{figures[0]:.1f} / {figures[1]:.1f}"


# Collages.


def fitted_to_emoji(files: list[Path], side: int, size: int) -> Embedder:
    torch.manual_seed(0)
    rng = np.random.default_rng(9)
    model = Embedder.build(
        backbone="efficientnet-lite0",
        norm_exponent=0.0,
        size=size,
        pooling_options={"start": "square", "power": 0.5, "whiten": 0.25, "width": 640},
    ).eval()
    some = [collages.collage(files, rng.permutation(600)[: side * side].tolist(), side, size, rng) for _ in range(150)]
    pixels = torch.from_numpy(np.stack([np.array(c.picture) for c in some])).permute(0, 3, 1, 2)
    with torch.no_grad():
        model.fit([model.backbone(some) for some in pixels.split(32)])
    return model


def windows(side: float, steps: int) -> list[tuple[float, float, float, float]]:
    starts = np.linspace(0, 1 - side, steps)
    return [(x, y, x + side, y + side) for y in starts for x in starts]


def entries(seen: list[Places]) -> dict[str, list[np.ndarray]]:
    """Ways to keep an image: several vectors each."""

    def codewords(here: Places, count: int) -> np.ndarray:
        assert here.assignment is not None
        z = (here.assignment.mT @ here.scaled).float().numpy()
        z = z[np.argsort(-np.linalg.norm(z, axis=1))[:count]]
        return np.stack([here.vector, *(z / np.linalg.norm(z, axis=1, keepdims=True))])

    def cut(here: Places, boxes: list, method: str) -> np.ndarray:
        return np.stack([here.vector, *(here.region(box, method=method) for box in boxes)])

    ways: dict[str, Callable[[Places], np.ndarray]] = {
        "one vector": lambda here: here.vector[None],
        "4 windows of a half, sums": lambda here: cut(here, windows(1 / 2, 2), "sum"),
        "9 windows of a half, sums": lambda here: cut(here, windows(1 / 2, 3), "sum"),
        "9 windows of a third, sums": lambda here: cut(here, windows(1 / 3, 3), "sum"),
        "7 codewords": lambda here: codewords(here, 7),
        "4 parts": lambda here: here.vectors(5),
        "7 parts": lambda here: here.vectors(8),
        "15 parts": lambda here: here.vectors(16),
    }
    return {
        name: [way(here) for here in track(seen, name, console=console, transient=True)] for name, way in ways.items()
    }


def on_collages(side: int, count: int, queries: int) -> None:
    size = 224 if side == 2 else 288
    files = collages.emoji()
    model = fitted_to_emoji(files, side, size)
    made = collages.gallery(files[600:], side=side, size=size, count=count)
    seen = [explain.places(model, c.picture) for c in track(made, "embedding", console=console, transient=True)]
    holds = [set(c.things) for c in made]
    more = collages.repeated(side, count)
    asked = [
        (thing, next(i for i, things in enumerate(holds) if thing in things)) for thing in range(min(more, queries))
    ]
    boxes = [made[i].boxes[made[i].things.index(thing)] for thing, i in asked]
    vectors = {"whole image": np.stack([seen[i].vector for _, i in asked])}
    for method in METHODS:
        vectors[method] = np.stack(
            [seen[i].region(box, method=method) for (_, i), box in zip(asked, boxes, strict=True)]
        )
    relevant = [np.array([thing in things for things in holds]) for thing, _ in asked]
    shown = table(
        f"{count} collages of {side}×{side} emoji, {len(asked)} queries by the box of one: R@1 / MAP",
        "kept of an image",
        "bytes, float32",
        *(f"query: {name}" for name in vectors),
    )
    for name, kept in entries(seen).items():
        cells = []
        for query in vectors.values():
            scores = np.stack([(query @ some.T).max(1) for some in kept], 1)
            cells.append(_shown(ranked(scores, relevant, [i for _, i in asked])))
        shown.add_row(name, f"{kept[0].nbytes:,}", *cells)
    console.print(shown)
    through_the_index(model, made, asked, relevant)
    chosen = np.random.default_rng(0).permutation(count)[:100]
    alike = [np.array([bool({t for t in holds[q] & things if t < more}) for things in holds]) for q in chosen]
    _agreement(f"whole collages of {side}×{side} as queries", seen, chosen, alike)


def marks_on_collages(side: int, count: int) -> None:
    """A user searches by the box of one emoji, marks results that hold it and results that do not, and may click on it
    in the former: do clicked parts tell the search more than whole results? Settings chosen on half of the emoji.
    """
    size, copies = (224 if side == 2 else 288), 8
    files = collages.emoji()
    model = fitted_to_emoji(files, side, size)
    made = collages.gallery(files[600:], side=side, size=size, count=count, copies=copies)
    seen = [explain.places(model, c.picture) for c in track(made, "embedding", console=console, transient=True)]
    every = collages.repeated(side, count, copies)
    asked = [(thing, i) for i, c in enumerate(made) for thing in c.things if thing < every]
    holds = np.array([[thing in c.things for c in made] for thing in range(every)])
    vectors = np.stack([here.vector for here in seen])
    parted = [here.vectors(8) for here in seen]
    kept = {"one vector": [v[None] for v in vectors], "and 7 parts": parted}
    region = {(thing, i): seen[i].region(made[i].boxes[made[i].things.index(thing)]) for thing, i in asked}
    clicked = {(thing, i): _part_at(seen[i], made[i].boxes[made[i].things.index(thing)]) for thing, i in asked}
    ways = [(near, away) for near in (0.5, 1.0, 2.0) for away in (0.0, 0.5)]
    shown = table(
        f"{count} collages of {side}×{side} emoji, one searched by its box; results that were not marked: R@1 / MAP",
        "kept of an image",
        "marks for and against",
        "no feedback",
        "Rocchio on whole results",
        "on parts under a click",
        "on boxes",
    )
    for name, entries_ in kept.items():

        def after(marks: int, way: tuple[float, float], example: Callable, odd: int, entries_=entries_) -> tuple:
            hits = []
            for thing, i in (one for one in asked if one[0] % 2 == odd):
                query = region[thing, i]
                order = np.argsort(-_best(query, entries_), kind="stable")
                top = order[order != i][:20]
                right, wrong = top[holds[thing, top]][:marks], top[~holds[thing, top]][:marks]
                liked, disliked = (np.array([example(thing, j, query) for j in some]) for some in (right, wrong))
                moved = explain.refined(query, liked, disliked, towards=way[0], away=way[1])
                left = np.setdiff1d(np.arange(count), np.concatenate([[i], right, wrong]))
                hits.append(holds[thing, left][np.argsort(-_best(moved, entries_)[left], kind="stable")])
            return judged(hits)

        # Of a wrong result there is nothing to click on: its part that is most like the query was the reason.
        examples = (
            lambda _, j, query: vectors[j],
            lambda thing, j, query: clicked.get((thing, j), _nearest(query, parted[j])),
            lambda thing, j, query: region.get((thing, j), _nearest(query, parted[j])),
        )
        for marks in (1, 3, 5):
            cells = [_shown(after(marks, (0.0, 0.0), examples[0], 1))]
            for example in examples:
                areas = [after(marks, way, example, 0)[1] for way in ways]
                cells.append(_shown(after(marks, ways[int(np.argmax(areas))], example, 1)))
            shown.add_row(name, str(marks), *cells)
    console.print(shown)


def _best(query: np.ndarray, entries: list[np.ndarray]) -> np.ndarray:
    """A picture's score is that of its best vector."""
    return np.array([(some @ query).max() for some in entries])


def _nearest(query: np.ndarray, some: np.ndarray) -> np.ndarray:
    return some[(some @ query).argmax()]


def _part_at(here: Places, box: tuple[float, float, float, float]) -> np.ndarray:
    """The part of a picture that a click on the middle of the box hits."""
    left, top, right, bottom = here.frame.seen
    h, w = here.grid
    row = int(((box[1] + box[3]) / 2 - top) / (bottom - top) * h)
    column = int(((box[0] + box[2]) / 2 - left) / (right - left) * w)
    hit = [part for part in here.parts(7) if part.mask[min(max(row, 0), h - 1), min(max(column, 0), w - 1)]]
    return hit[0].vector if hit else here.vector


def through_the_index(model: Embedder, made: list[collages.Collage], asked: list, relevant: list[np.ndarray]) -> None:
    """The same as a user gets it: files are indexed with --parts N, and searched by the box of one emoji."""
    boxes = [made[i].boxes[made[i].things.index(thing)] for thing, i in asked]
    shown = table(
        f"{len(made)} files in an index, {len(asked)} searches by --box",
        "--parts",
        "bytes a picture",
        "R@1 / MAP",
        "the box lies on the object",
        "its centre does",
        "indexing, ms a picture",
        "search, ms beyond the network",
    )
    with tempfile.TemporaryDirectory() as place:
        files = [Path(place, f"{i:04d}.png") for i in range(len(made))]
        for file, one in zip(files, made, strict=True):
            one.picture.save(file)
        for parts in (1, 8, 16):
            kept = index.create(Path(place, f"{parts}.index"), model, dtype="float16", parts=parts)
            start = time.perf_counter()
            kept.add([str(file) for file in files])
            taken = 1000 * (time.perf_counter() - start) / len(files)
            vectors = np.stack(
                [explain.places(model, files[i]).region(b) for (_, i), b in zip(asked, boxes, strict=True)]
            )
            kept.search(vectors[:1], 10)
            start = time.perf_counter()
            found = [kept.search(vector, 10) for vector in vectors]
            each = 1000 * (time.perf_counter() - start) / len(vectors)
            del found
            number = {kept.find(file): i for i, file in enumerate(files)}
            hits = kept.search(vectors, len(files))
            order = np.vectorize(number.get)(hits.ids)
            scores = np.zeros((len(asked), len(files)))
            np.put_along_axis(scores, order, -np.arange(len(files))[None].repeat(len(asked), 0), 1)
            figures = ranked(scores, relevant, [i for _, i in asked])
            on = located(hits, order, made, asked) if parts > 1 else (float("nan"), float("nan"))
            where = ["" if np.isnan(v) else f"{100 * v:.0f} %" for v in on]
            size = kept.info()["bytes a vector"] * parts
            shown.add_row(str(parts), f"{size:,}", _shown(figures), *where, f"{taken:.0f}", f"{each:.1f}")
            kept.close()
    console.print(shown)


def located(hits: Hits, order: np.ndarray, made: list[collages.Collage], asked: list) -> tuple[float, float]:
    """Of the right pictures among the first three other hits: how much of the hit's box lies on the object's, by area,
    and how often its centre does.
    """
    on, centred = [], []
    for row, (thing, own) in enumerate(asked):
        assert hits.boxes is not None
        for column in [c for c in range(4) if order[row, c] != own][:3]:
            one, box = made[order[row, column]], hits.boxes[row, column]
            if thing in one.things and not np.isnan(box).any():
                left, top, right, bottom = one.boxes[one.things.index(thing)]
                wide, high = min(right, box[2]) - max(left, box[0]), min(bottom, box[3]) - max(top, box[1])
                on.append(max(0.0, wide) * max(0.0, high) / ((box[2] - box[0]) * (box[3] - box[1])))
                x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
                centred.append(left <= x <= right and top <= y <= bottom)
    return float(np.mean(on)), float(np.mean(centred))


def _agreement(title: str, seen: list[Places], chosen: np.ndarray, relevant: list[np.ndarray], first: int = 50) -> None:
    """Re-rank the first 50 by similarity + weight · agreement."""
    vectors = np.stack([here.vector for here in seen])
    similarity = vectors[chosen] @ vectors.T
    found = np.zeros_like(similarity)
    for row, q in enumerate(track(chosen, "links", console=console, transient=True)):
        for other in np.argsort(-similarity[row])[: first + 1]:
            links = (seen[q].scaled @ seen[other].scaled.mT).numpy()
            found[row, other] = best_movement(links, seen[q].grid, seen[other].grid).score
    shown = table(f"{title}: the first {first} re-ranked by agreement in space", "weight of agreement", "R@1 / MAP")
    for weight in (0.0, 0.3, 1.0, 3.0):
        # What is not re-ranked stays below: agreement only adds to the first ones.
        lifted = np.where(found != 0, 10.0, 0.0) + similarity + weight * found
        shown.add_row(f"{weight:g}", _shown(ranked(lifted, relevant, chosen.tolist())))
    console.print(shown)


# Birds.


def birds(root: Path, model: Embedder | None, per_class: int) -> None:
    images = data.open(f"cub200:{root}")
    model = fitted(images) if model is None else model
    rng, every = np.random.default_rng(5), images.require_labels()
    rows = [rng.permutation(np.flatnonzero(every == label))[:per_class] for label in range(2 * HALF)]
    seen = {
        half: [
            explain.places(model, images.path(int(i)))
            for i in track(np.concatenate(some), half, console=console, transient=True)
        ]
        for half, some in (("classes 1–50", rows[:HALF]), ("classes 51–100", rows[HALF:]))
    }
    labels = np.arange(HALF).repeat([len(some) for some in rows[HALF:]])
    rest = seen["classes 51–100"]
    every_number = numbers(images, root)
    known = {
        half: [every_number[i] for i in np.concatenate(some)]
        for half, some in zip(seen, (rows[:HALF], rows[HALF:]), strict=True)
    }
    _regions(root, rest, known["classes 51–100"], labels)
    chosen = rng.permutation(len(rest))[:150]
    _agreement("birds", rest, chosen, [labels == labels[q] for q in chosen])
    _feedback(seen, per_class)
    _clicks(root, seen, known, per_class)


def _regions(root: Path, seen: list[Places], known: list[int], labels: np.ndarray) -> None:
    boxes, _ = marked(root)
    heads: dict[int, list] = {}
    for number, part, x, y, visible in np.loadtxt(root / "parts" / "part_locs.txt"):
        if visible and int(part) in HEAD:
            heads.setdefault(int(number), []).append((x, y))
    vectors = np.stack([here.vector for here in seen])
    shown = table("the species from a part: R@1 / MAP", "query", "queries", "places", "whole image", *METHODS)
    for name in ("box", "head"):
        asked, regions = [], []
        for row, here in enumerate(seen[::2]):
            region = _box(here, boxes[known[2 * row]]) if name == "box" else _head(here, heads.get(known[2 * row], []))
            if region and here.frame.coverage(region).max() > 0.3:
                asked.append(2 * row)
                regions.append(region)
        cells = [vectors[asked]]
        for method in METHODS:
            made = [seen[i].region(where, method=method) for i, where in zip(asked, regions, strict=True)]
            cells.append(np.stack(made))
        relevant = [labels == labels[i] for i in asked]
        area = np.mean([seen[i].frame.coverage(where).mean() for i, where in zip(asked, regions, strict=True)])
        figures = [_shown(ranked(query @ vectors.T, relevant, asked)) for query in cells]
        shown.add_row(f"its {name}", str(len(asked)), f"{area:.0%}", *figures)
    console.print(shown)


def _box(here: Places, box: np.ndarray) -> tuple[float, float, float, float]:
    height, width = here.frame.size
    x, y, wide, high = box
    return max(x / width, 0), max(y / height, 0), min((x + wide) / width, 1), min((y + high) / height, 1)


def _head(here: Places, points: list) -> tuple[float, float, float, float] | None:
    if len(points) < 3:
        return None
    centre = np.mean(points, 0)
    reach = max(np.abs(np.array(points) - centre).max() * 1.35, 0.06 * max(here.frame.size))
    return _box(here, np.array([centre[0] - reach, centre[1] - reach, 2 * reach, 2 * reach]))


# Feedback.


def _feedback(seen: dict[str, list[Places]], per_class: int) -> None:
    """Choose each way's settings on classes 1–50, report on classes 51–100."""
    parts = {
        half: np.stack([(here.assignment.mT @ here.scaled).float().numpy() for here in some])  # type: ignore[union-attr]
        for half, some in seen.items()
    }
    shown = table(
        "feedback on held-out species, results that were not marked: R@1 / MAP",
        "marks for and against",
        "no feedback",
        "weights of codewords",
        "Rocchio",
        "both",
    )
    grid = {
        "words": [(0.0, 0.0, ridge, push) for ridge in (0.01, 0.1) for push in (0.05, 0.2)],
        "rocchio": [(near, away, 0.0, 0.0) for near in (1.0, 2.0) for away in (0.0, 0.5)],
    }
    grid["both"] = [(2.0, 0.5, ridge, push) for _, _, ridge, push in grid["words"]]
    for clicks in (1, 3, 5):
        cells = [_shown(_after_feedback(parts["classes 51–100"], per_class, clicks, (0.0, 0.0, 0.0, 0.0)))]
        for ways in grid.values():
            best = max(ways, key=lambda way: _after_feedback(parts["classes 1–50"], per_class, clicks, way)[1])
            cells.append(_shown(_after_feedback(parts["classes 51–100"], per_class, clicks, best)))
        shown.add_row(str(clicks), *cells)
    console.print(shown)


def _after_feedback(
    parts: np.ndarray, per_class: int, clicks: int, way: tuple[float, float, float, float]
) -> tuple[float, float]:
    """A user marks the first results that are right and the first that are wrong, among twenty."""
    near, away, ridge, push = way
    units = parts.sum(1)
    labels = np.arange(len(parts)) // per_class
    similarity = units @ units.T
    hits = []
    for q in range(len(parts)):
        order = np.argsort(-similarity[q], kind="stable")
        top = order[order != q][:20]
        right, wrong = top[labels[top] == labels[q]][:clicks], top[labels[top] != labels[q]][:clicks]
        words = parts[q].copy()  # (N, D)
        if near and len(right):
            words += near * parts[right].mean(0)
        if away and len(wrong):
            words -= away * parts[wrong].mean(0)
        weights = np.ones(len(words))
        if ridge:
            # Scores of marked images are w · c; ridge regression moves them by ±push, with w towards 1.
            c = units[np.concatenate([right, wrong])] @ words.T
            wanted = np.repeat([push, -push], [len(right), len(wrong)])
            weights += np.linalg.solve(ridge * np.eye(len(words)) + c.T @ c, c.T @ wanted)
        left = np.setdiff1d(np.arange(len(parts)), np.concatenate([[q], right, wrong]))
        hit = (labels[left] == labels[q])[np.argsort(-(units[left] @ (weights @ words)), kind="stable")]
        hits.append(hit)
    return judged(hits)


def _clicks(root: Path, seen: dict[str, list[Places]], known: dict[str, list[int]], per_class: int) -> None:
    """Clicks on places of the query, on the bird and beside it, against marks on whole results."""
    boxes, points = marked(root)
    described = {
        half: [
            _clicked(here, boxes[n], points.get(n, np.zeros((0, 2)))) for here, n in zip(some, known[half], strict=True)
        ]
        for half, some in seen.items()
    }
    shown = table(
        "clicks on held-out species, results that were not marked: R@1 / MAP",
        "clicks for and against",
        "no feedback",
        "places of the query",
        "Rocchio on whole results",
        "Rocchio on the birds in results",
        "Rocchio and places",
    )
    moves = [(near, away) for near in (1.0, 2.0) for away in (0.0, 0.5)]
    ways = {
        "places": [(0.0, 0.0, "whole", more, less) for more in (0.5, 1.0, 2.0) for less in (0.0, 0.5, 1.0)],
        "whole": [(near, away, "whole", 0.0, 0.0) for near, away in moves],
        "bird": [(near, away, "bird", 0.0, 0.0) for near, away in moves],
        "both": [(2.0, 0.5, "whole", more, less) for more in (0.5, 1.0, 2.0) for less in (0.0, 0.5, 1.0)],
    }
    for clicks in (1, 3, 5):
        cells = [_shown(_after_clicks(described["classes 51–100"], per_class, clicks, (0.0, 0.0, "whole", 0.0, 0.0)))]
        for some in ways.values():
            best = max(some, key=lambda way: _after_clicks(described["classes 1–50"], per_class, clicks, way)[1])
            cells.append(_shown(_after_clicks(described["classes 51–100"], per_class, clicks, best)))
        shown.add_row(str(clicks), *cells)
    console.print(shown)


def _clicked(here: Places, box: np.ndarray, points: np.ndarray) -> dict[str, np.ndarray]:
    """The whole, the bird alone, and what the places add that a user clicks on: up to five parts, and five beside."""
    cover = here.frame.coverage(_box(here, box))
    left, top, right, bottom = here.frame.seen
    on = np.zeros(here.grid, bool)
    places = []
    for x, y in points / np.array(here.frame.size[::-1]):
        row, column = int((y - top) / (bottom - top) * here.grid[0]), int((x - left) / (right - left) * here.grid[1])
        if 0 <= row < here.grid[0] and 0 <= column < here.grid[1] and not on[row, column]:
            on[row, column] = True
            places.append(row * here.grid[1] + column)
    beside = np.flatnonzero(cover.ravel() < 0.1)
    rng = np.random.default_rng(len(places))
    scaled = here.scaled.float().numpy()
    return {
        "whole": here.vector,
        "bird": here.region(_box(here, box)) if cover.max() > 0 else here.vector,
        "for": scaled[rng.permutation(places)[:5].astype(int)],
        "against": scaled[rng.permutation(beside)[:5]],
    }


def _after_clicks(
    described: list[dict[str, np.ndarray]], per_class: int, clicks: int, way: tuple[float, float, str, float, float]
) -> tuple[float, float]:
    near, away, what, more, less = way
    units = np.stack([one["whole"] for one in described])
    examples = np.stack([one[what] for one in described])
    labels = np.arange(len(units)) // per_class
    similarity = units @ units.T
    hits = []
    for q, one in enumerate(described):
        order = np.argsort(-similarity[q], kind="stable")
        top = order[order != q][:20]
        right, wrong = top[labels[top] == labels[q]][:clicks], top[labels[top] != labels[q]][:clicks]
        query = one["whole"] + more * one["for"][:clicks].sum(0) - less * one["against"][:clicks].sum(0)
        query = query / np.linalg.norm(query)
        if near and len(right):
            query = query + near * examples[right].mean(0)
        if away and len(wrong):
            query = query - away * examples[wrong].mean(0)
        left = np.setdiff1d(np.arange(len(units)), np.concatenate([[q], right, wrong]))
        hit = (labels[left] == labels[q])[np.argsort(-(units[left] @ query), kind="stable")]
        hits.append(hit)
    return judged(hits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["collages", "marks", "birds"])
    parser.add_argument("--side", type=int, default=2, help="emoji a side of a collage")
    parser.add_argument("--count", type=int, default=150, help="collages")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--data", type=Path, help="CUB-200-2011, with boxes and parts")
    parser.add_argument("--model", type=Path, help="a saved model instead of a fitted jcf-32-8")
    parser.add_argument("--images", type=int, default=12, help="of each species")
    options = parser.parse_args()
    if options.what == "collages":
        return on_collages(options.side, options.count, options.queries)
    if options.what == "marks":
        return marks_on_collages(options.side, options.count)
    if options.data is None:
        parser.error("--data is needed: the folder of CUB-200-2011")
    return birds(options.data, load(options.model) if options.model else None, options.images)


if __name__ == "__main__":
    main()
