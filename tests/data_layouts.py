"""Small copies of every layout a dataset comes in, with real, tiny pictures."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from secondsight.data.loading.decode import decode
from secondsight.data.loading.transforms import Transform


def read_image(path: Path, transform: Transform, *, seed: int = 0, epoch: int = 0, index: int = 0) -> Tensor:
    """One picture, (3, S, S) uint8: exactly what a loader of pictures gives."""
    return transform(decode(path, target=transform.target), seed=seed, epoch=epoch, index=index)


def picture(path: Path, number: int = 0, *, mode: str = "RGB", size: tuple[int, int] = (9, 7)) -> Path:
    """A picture whose pixels depend on ``number``; the suffix chooses the format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)
    return path


def picture_bytes(number: int = 0) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((4, 4, 3), number % 256, np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def folder(root: Path, classes: dict[str, int]) -> Path:
    """``root/<class>/<n>.png`` with that many pictures of each class."""
    for c, (name, count) in enumerate(sorted(classes.items())):
        for i in range(count):
            picture(root / name / f"{i}.png", 100 * c + i)
    return root


def per_class(classes: range, images: int) -> dict[int, int]:
    """``images`` spread over ``classes`` as evenly as possible."""
    each, more = divmod(images, len(classes))
    return {c: each + (i < more) for i, c in enumerate(classes)}


def cub(root: Path, counts: dict[int, int], *, distinct: bool = True) -> Path:
    """CUB's layout with ``counts[class number]`` images; without ``distinct`` a class lists its one file many times."""
    images, labels, i = [], [], 0
    for c, count in counts.items():
        for k in range(count):
            i += 1
            name = f"{c:03d}.Bird_{c}/Bird_{c:03d}_{k if distinct else 0}.jpg"
            if distinct or k == 0:
                picture(root / "images" / name, i)
            images.append(f"{i} {name}")
            labels.append(f"{i} {c}")
    _lines(root / "images.txt", images)
    _lines(root / "image_class_labels.txt", labels)
    _lines(root / "classes.txt", [f"{c} {c:03d}.Bird_{c}" for c in counts])
    _lines(root / "train_test_split.txt", [f"{k} {k % 2}" for k in range(1, i + 1)])
    return root


CUB_FULL = per_class(range(1, 101), 5_864) | per_class(range(101, 201), 5_924)
CARS_FULL = per_class(range(1, 99), 8_054) | per_class(range(99, 197), 8_131)


def sop(root: Path, train: dict[int, int], test: dict[int, int]) -> Path:
    """SOP's layout; all products of a kind share one file, for the full size would be 120,053 of them."""
    for kind in ("bicycle", "chair"):
        picture(root / f"{kind}_final" / "1_0.JPG")
    i = 0
    for part, counts in (("train", train), ("test", test)):
        lines = ["image_id class_id super_class_id path"]
        for c, count in counts.items():
            kind = ("bicycle", "chair")[c % 2]
            for _ in range(count):
                i += 1
                lines.append(f"{i} {c} {1 + c % 2} {kind}_final/1_0.JPG")
        _lines(root / f"Ebay_{part}.txt", lines)
    return root


SOP_FULL = (per_class(range(1, 11_319), 59_551), per_class(range(11_319, 22_635), 60_502))


def car_names(n: int = 196) -> list[str]:
    """Names in an official order that is not alphabetical inside a make, as the real one."""
    makes = [f"Acura {i:03d}" for i in range(98)] + [f"Ferrari {i:03d}" for i in range(n - 98)]
    makes[0], makes[1] = makes[1], makes[0]
    makes[-1] = "smart C/V 2012"
    return makes


def cars_single(root: Path, counts: dict[int, int]) -> Path:
    """``car_ims/`` and ``cars_annos.mat``; a class lists its one file many times, boxes and halves are left out."""
    from scipy.io import savemat

    rows = []
    for c, count in counts.items():
        picture(root / "car_ims" / f"{c:06d}.jpg", c)
        rows += [(f"car_ims/{c:06d}.jpg", c)] * count
    fields = ["relative_im_path", "class"]
    savemat(root / "cars_annos.mat", {"annotations": _struct(rows, fields), "class_names": _cells(car_names())})
    return root


def cars_halves(root: Path, train: list[int], test: list[int], *, nested: bool = False) -> Path:
    """``cars_train/``, ``cars_test/`` and the devkit, for lists of class numbers."""
    from scipy.io import savemat

    (root / "devkit").mkdir(parents=True)
    for half, classes in (("train", train), ("test", test)):
        rows = []
        for i, c in enumerate(classes, 1):
            place = root / f"cars_{half}" / (f"cars_{half}" if nested else "")
            picture(place / f"{i:05d}.jpg", i)
            rows.append((1, 2, 3, 4, c, f"{i:05d}.jpg"))
        fields = ["bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "fname"]
        file = "devkit/cars_train_annos.mat" if half == "train" else "cars_test_annos_withlabels.mat"
        savemat(root / file, {"annotations": _struct(rows, fields)})
    savemat(root / "devkit" / "cars_meta.mat", {"class_names": _cells(car_names())})
    return root


def _struct(rows: list[tuple], fields: list[str]) -> np.ndarray:
    out = np.empty((1, len(rows)), dtype=[(f, object) for f in fields])
    for i, row in enumerate(rows):
        out[0, i] = row
    return out


def _cells(names: list[str]) -> np.ndarray:
    out = np.empty((1, len(names)), object)
    out[0, :] = names
    return out


def _lines(file: Path, lines: list[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
