"""Does an explanation explain? Erase what it points at, and see.

    python benchmarks/explain.py speed
    python benchmarks/explain.py deletion --data ../shared/data/CUB_200_2011 [--models DIR …] [--pairs 60]
    python benchmarks/explain.py pointing --data ../shared/data/CUB_200_2011 [--models DIR …] [--pairs 60]

``deletion``: pairs of images of one class, classes 51–100. One image's places are erased in the order of a map, the
network is run again, and the similarity to the other image is followed: the area under that curve should be small. In
the same order they are brought back into an erased image: that area should be large. Erased means grey, blurred, or the
mean colour of the data. The same of the contrast: the similarity less the mean similarity to other images.
``pointing``: how much of the evidence lies on the bird, by CUB's boxes and parts, and how well a map follows what
leaving each place out does. Without --models, heads are fitted to classes 1–50 without labels.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from rich.progress import track
from scipy.stats import rankdata
from torch import Tensor

from measure import console, interleaved, table, verdict
from secondsight import Embedder, data, explain, load
from secondsight.data.imageset import ImageSet
from secondsight.embed import embed, features
from secondsight.explain import Explanation
from secondsight.explain.geometry import Frame
from secondsight.model import published

FRACTIONS = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
HALF = 50  # classes that may teach; the others judge


def fitted(images: ImageSet, *, pooling: str = "jcf-32-8", count: int = 800, size: int = 224) -> Embedder:
    """Without labels: the starts of recipes/photos.toml for jcf, the network's own channels for averaging."""
    torch.manual_seed(0)
    if pooling == "average":
        return published("efficientnet-lite0")
    options = {"start": "square", "power": 0.5, "whiten": 0.25, "width": 640} if pooling.startswith("jcf") else {}
    model = Embedder.build(
        backbone="efficientnet-lite0",
        pooling=pooling,
        norm_exponent=0.0 if pooling.startswith("jcf") else 1.0,
        size=size,
        transform="resize-crop",
        pooling_options=options,
    ).eval()
    teach = np.flatnonzero(images.require_labels() < HALF)
    chosen = np.sort(np.random.default_rng(0).permutation(teach)[:count])
    model.fit(features(model, images.subset(chosen), count=len(chosen)))
    return model


def pairs_of_a_class(images: ImageSet, count: int, *, seed: int = 0) -> list[tuple[int, int]]:
    """Pairs of two images of one class, among the classes that judge."""
    rng, labels = np.random.default_rng(seed), images.require_labels()
    classes = rng.permutation(np.arange(HALF, labels.max() + 1).repeat(1 + count // HALF))[:count]
    chosen = [rng.choice(np.flatnonzero(labels == label), 2, replace=False) for label in classes]
    return [(int(a), int(b)) for a, b in chosen]


# Maps to compare: larger means more evidence for the match.


def gradient_maps(model: Embedder, why: Explanation, image: Tensor) -> dict[str, np.ndarray]:
    """Gradient × input of the pixels, and Grad-CAM of the last features; both of the cosine."""
    h, w = why.places_a.grid
    other = why.places_b.unit.float()
    pixels = (image[None].float() / 255).requires_grad_()
    features = model.backbone(pixels)
    features.retain_grad()
    cosine = model.normalise(model.pool(features, grid=(h, w)))[0] @ other
    cosine.backward()
    assert pixels.grad is not None
    assert features.grad is not None
    product = ((pixels - 0.5) * pixels.grad)[0].sum(0).detach()
    times = torch.nn.functional.adaptive_avg_pool2d(product[None, None], (h, w))[0, 0]
    weights = features.grad.mean(1, keepdim=True)
    cam = (weights * features).sum(-1)[0].relu().detach().view(h, w)
    return {"gradient × input": times.numpy(), "Grad-CAM": cam.numpy()}


def maps(model: Embedder, why: Explanation, image: Tensor, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        **{kind: why.map("a", kind) for kind in why.kinds},
        "lowest share": -why.a,
        "random": rng.random(why.a.shape),
        **gradient_maps(model, why, image),
    }


# Erasing.


def fills(image: Tensor, mean: Tensor) -> dict[str, Tensor]:
    """What takes the place of erased pixels, (3, S, S) each."""
    blurred = Image.fromarray(image.permute(1, 2, 0).numpy()).filter(ImageFilter.GaussianBlur(image.shape[-1] / 16))
    return {
        "grey": torch.full_like(image, 127),
        "blur": torch.from_numpy(np.array(blurred)).permute(2, 0, 1),
        "mean": mean.round().to(torch.uint8)[:, None, None].expand_as(image),
    }


def curves(
    run: Callable[[Tensor], Tensor], image: Tensor, fill: Tensor, values: np.ndarray, directions: Tensor
) -> np.ndarray:
    """(2, k): areas under the products with k ``directions`` (D, k), as the places of highest value are erased first,
    and brought back first.
    """
    order, frame = np.argsort(-values.ravel(), kind="stable"), Frame(values.shape)
    steps = []
    for fraction in FRACTIONS[1:-1]:
        chosen = np.zeros(values.size)
        chosen[order[: round(fraction * values.size)]] = 1
        on = torch.from_numpy(frame.on_shown(chosen.reshape(values.shape), image.shape[-1])).bool()
        steps += [torch.where(on, fill, image), torch.where(on, image, fill)]
    whole, none = run(torch.stack([image, fill]))[:, None]
    erased, back = run(torch.stack(steps)).unflatten(0, (-1, 2)).unbind(1)
    both = torch.stack([torch.cat([whole, erased, none]), torch.cat([none, back, whole])])
    return np.trapezoid((both @ directions).numpy(), FRACTIONS, axis=1)


@torch.no_grad()
def embedded(model: Embedder, images: Tensor) -> Tensor:
    return model(images)


def others(model: Embedder, images: ImageSet, *, count: int = 300) -> np.ndarray:
    """Vectors of images of the classes that judge: what a collection holds besides a pair."""
    judging = np.flatnonzero(images.require_labels() >= HALF)
    chosen = np.sort(np.random.default_rng(3).permutation(judging)[:count])
    return embed(model, images.subset(chosen)).vectors


def deletion(models: dict[str, Embedder], images: ImageSet, count: int, names: list[str]) -> None:
    for name, model in models.items():
        areas: dict[tuple[str, str], list[np.ndarray]] = {}
        rng, mean = np.random.default_rng(0), torch.tensor([123.7, 127.2, 110.1])  # of CUB's images
        look, rest = model.transform, others(model, images)
        for a, b in track(pairs_of_a_class(images, count), f"erasing: {name}", console=console, transient=True):
            why = explain.pair(model, images.path(a), images.path(b), others=rest)
            assert why.places_a.pixels is not None
            image, other = look(why.places_a.pixels), why.places_b.unit.float()
            directions = torch.stack([other, other - torch.from_numpy(rest).mean(0)], 1)
            for kind, values in maps(model, why, image, rng).items():
                for fill, erased in ((name, fills(image, mean)[name]) for name in names):
                    found = curves(lambda x, m=model: embedded(m, x), image, erased, values, directions)
                    areas.setdefault((kind, fill), []).append(found)
        for number, what in enumerate(("similarity", "contrast")):
            _show_areas(
                f"{name}: area under the {what}", {k: np.array(v)[..., number] for k, v in areas.items()}, names
            )


def _show_areas(title: str, areas: dict[tuple[str, str], np.ndarray], names: list[str]) -> None:
    count = len(next(iter(areas.values())))
    shown = table(
        f"{title}, {count} pairs of one class (± standard error of the difference to share)",
        "order",
        *(f"erase, {fill} ↓" for fill in names),
        *(f"bring back, {fill} ↑" for fill in names),
    )
    for kind in dict.fromkeys(key[0] for key in areas):
        cells = []
        for insert in (0, 1):
            for fill in names:
                values, base = areas[kind, fill][:, insert], areas["share", fill][:, insert]
                cells.append(f"{values.mean():.3f}" + (f" ± {standard_error(values - base):.3f}" * (kind != "share")))
        shown.add_row(kind, *cells)
    console.print(shown)


def standard_error(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0


# Pointing.


def marked(root: Path) -> tuple[dict[int, np.ndarray], dict[int, np.ndarray]]:
    """Boxes (x, y, width, height) and visible parts (k, 2), in pixels, by CUB's image number."""
    boxes = {int(row[0]): row[1:] for row in np.loadtxt(root / "bounding_boxes.txt")}
    parts: dict[int, list] = {}
    for number, _, x, y, visible in np.loadtxt(root / "parts" / "part_locs.txt"):
        if visible:
            parts.setdefault(int(number), []).append((x, y))
    return boxes, {number: np.array(points) for number, points in parts.items()}


def numbers(images: ImageSet, root: Path) -> list[int]:
    """CUB's number of each image."""
    listed = (line.split() for line in (root / "images.txt").read_text().splitlines())
    known = {f"images/{path}": int(number) for number, path in listed}
    return [known[path] for path in images.paths]


def pointing(models: dict[str, Embedder], images: ImageSet, root: Path, count: int) -> None:
    boxes, parts = marked(root)
    known = numbers(images, root)
    for name, model in models.items():
        look, rng, rest = model.transform, np.random.default_rng(0), others(model, images)
        found: dict[str, list[tuple[float, ...]]] = {}
        cancelled = []
        for a, b in track(pairs_of_a_class(images, count), f"pointing: {name}", console=console, transient=True):
            why = explain.pair(model, images.path(a), images.path(b), others=rest)
            here = why.places_a
            assert here.pixels is not None
            cancelled.append(why.cancellation)
            height, width = here.pixels.shape[:2]
            x, y, wide, high = boxes[known[a]] / np.array([width, height, width, height])
            cover = here.frame.coverage((max(x, 0), max(y, 0), min(x + wide, 1), min(y + high, 1)))
            points = parts.get(known[a], np.zeros((0, 2))) / np.array([width, height])
            for kind, values in maps(model, why, look(here.pixels), rng).items():
                positive = values.clip(0)
                row, column = np.unravel_index(values.argmax(), values.shape)
                left, top, right, bottom = here.frame.place(int(row), int(column))
                inside = [left <= px <= right and top <= py <= bottom for px, py in points]
                agreed = rank_correlation(values, why.left_out_a) if np.ptp(values) else np.nan
                on = float((positive * cover).sum() / max(positive.sum(), 1e-12))
                seen = on, cover[row, column], float(any(inside))
                # A map without positive evidence points nowhere.
                found.setdefault(kind, []).append((*(seen if positive.any() else 3 * (np.nan,)), agreed))
            area = float(cover.mean())
            found.setdefault("(the box itself)", []).append((area, area, np.nan, np.nan))
        shown = table(
            f"{name}: {count} pairs of one class; links cancel {np.median(cancelled):.1f}-fold (median), "
            f"{max(cancelled):.0f}-fold at most",
            "map",
            "positive evidence on the box",
            "highest place on the box",
            "highest place holds a part",
            "rank correlation with leaving out",
        )
        for kind, rows in found.items():
            columns = [column[~np.isnan(column)] for column in np.array(rows, float).T]
            values = [column.mean() if len(column) else np.nan for column in columns]
            errors = [standard_error(column) for column in columns]
            cells = [f"{100 * v:.1f} ± {100 * e:.1f} %" for v, e in zip(values[:3], errors, strict=False)]
            cells.append(f"{values[3]:.2f} ± {errors[3]:.2f}")
            shown.add_row(kind, *("" if np.isnan(v) else cell for v, cell in zip(values, cells, strict=True)))
        console.print(shown)


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's."""
    return float(np.corrcoef(rankdata(first), rankdata(second))[0, 1])


def speed() -> None:
    """A pair, from features that are there, at two sizes of grid, in seconds of one core; targets are the project's."""
    torch.set_num_threads(1)
    shown = table(
        "a pair after the features, jcf-32-8 with power and whitening, one core",
        "places",
        "milliseconds",
        "numbers kept",
    )
    for side, target in ((9, 100.0), (32, 1000.0)):
        model = Embedder.build(
            backbone="efficientnet-lite0",
            weights="random",
            pooling_options={"power": 0.5, "whiten": 0.25, "width": 640},
        ).eval()
        a, b = (torch.randn(1, side * side, 1280) for _ in range(2))

        def run(model=model, a=a, b=b, frame=Frame((side, side))):
            both = [explain.from_features(model, x, frame=frame) for x in (a, b)]
            return explain.pair(model, *both)

        seconds = interleaved({"pair": run}, repeats=5, clock=time.process_time)["pair"]
        links = run().links
        shown.add_row(
            f"{side}×{side}",
            verdict(1000 * seconds, target, at_least=False, unit=" ms"),
            f"{links.size if links is not None else 0:,}",
        )
    console.print(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "deletion", "pointing"])
    parser.add_argument("--data", type=Path, help="CUB-200-2011, with boxes and parts")
    parser.add_argument("--models", nargs="+", default=[], help="saved models or runs instead of fitted heads")
    parser.add_argument("--poolings", nargs="+", default=["jcf-32-8", "average"], help="to fit and to compare")
    parser.add_argument("--fit", type=int, default=800, help="images to fit the heads to")
    parser.add_argument("--fills", nargs="+", default=["grey", "blur", "mean"], help="what takes the place of pixels")
    parser.add_argument("--pairs", type=int, default=60)
    options = parser.parse_args()
    if options.what == "speed":
        return speed()
    if options.data is None:
        parser.error("--data is needed: the folder of CUB-200-2011")
    images = data.open(f"cub200:{options.data}")
    if options.models:
        models: dict[str, Embedder] = {name: load(name) for name in options.models}
        for model in models.values():
            model.backbone.freeze(None)  # gradients reach the pixels
    else:
        models = {name: fitted(images, pooling=name, count=options.fit) for name in options.poolings}
    if options.what == "deletion":
        return deletion(models, images, options.pairs, options.fills)
    return pointing(models, images, options.data, options.pairs)


if __name__ == "__main__":
    main()
