"""How far two pictures are the same: one laid over the other, mirrored or not, whole or cut out of it.

Both are made small and grey, and what is smooth is taken out, for one blurred background is like any other. Normalised
cross-correlation (Lewis 1995)

    ncc(u) = Σ (a(x + u) − ā_u)(b(x) − b̄) / √(Σ (a(x + u) − ā_u)² Σ (b(x) − b̄)²)

of the one, b, at several sizes, with every place of the other, a, is 1 where they agree up to brightness and contrast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import scipy.fft
from PIL import Image
from scipy.ndimage import gaussian_filter

from secondsight.data.loading.decode import decode

SIDE = 96
"""Pixels along the longer side when pictures are compared."""

SMOOTH = 3.0
"""Pixels (σ of a Gaussian): what is smoother than this does not count."""

AGREE = 0.65
"""Correlation from which two pictures are one; docs/searching.md says what it finds and what it takes for one."""

SCALES = tuple(float(s) for s in np.geomspace(1.0, 0.5, 15))
"""Sizes of a part, in sides of the whole: a crop of half the sides is a quarter of the picture."""

FINER = np.array([0.965, 0.98, 0.99, 1.01, 1.02, 1.035])
"""Sizes tried around the best of ``SCALES``."""


@dataclass(frozen=True)
class Template:
    """A part, ready to be laid over wholes of one shape: its conjugate spectrum, divided by its energy."""

    spectrum: np.ndarray  # (H, W // 2 + 1)
    size: tuple[int, int]


class Whole:
    """What templates are laid over, as it is and mirrored: spectra and running sums."""

    def __init__(self, picture: np.ndarray):
        centred = picture - picture.mean()
        self.shape, self.dtype = picture.shape, picture.dtype
        self.spectra = np.asarray(scipy.fft.rfft2(np.stack([centred, centred[:, ::-1]])))
        precise = centred.astype(np.float64)
        self.sums, self.squares = (np.pad(x.cumsum(0).cumsum(1), ((1, 0), (1, 0))) for x in (precise, precise**2))
        self._even: dict[tuple[int, int], np.ndarray] = {}

    def correlations(self, parts: Sequence[Template]) -> Iterator[np.ndarray]:
        """For each part (h, w): its normalised cross-correlation with every place, (2, H − h + 1, W − w + 1)."""
        products = scipy.fft.irfft2(self.spectra[:, None] * np.stack([part.spectrum for part in parts]), self.shape)
        for product, part in zip(np.moveaxis(np.asarray(products), 1, 0), parts, strict=True):
            even = self.even(part.size)
            yield product[:, : even.shape[1], : even.shape[2]] * even

    def even(self, size: tuple[int, int]) -> np.ndarray:
        """(2, H − h + 1, W − w + 1): 1 / √Σ (a − ā)² of every place, for parts of one size."""
        if size not in self._even:
            h, w = size
            sums, squares = _boxes(self.sums, h, w), _boxes(self.squares, h, w)
            spread = np.maximum(squares - sums**2 / (h * w), 1e-6 * max(squares.max(), 1e-12))
            even = (1 / np.sqrt(spread)).astype(self.dtype)
            self._even[size] = np.stack([even, even[:, ::-1]])
        return self._even[size]


class Picture:
    """A grey picture (h, w), and what comparing it needs, made once."""

    def __init__(self, grey: np.ndarray):
        self.grey = grey
        self._templates: dict[tuple[tuple[int, ...], float], Template | None] = {}

    @cached_property
    def whole(self) -> Whole:
        return Whole(_detail(self.grey))

    def template(self, shape: tuple[int, ...], scale: float) -> Template | None:
        """Itself, made to fill ``scale`` of a whole of that shape along one side; None where that is too small."""
        if (shape, scale) not in self._templates:
            factor = scale * min(shape[0] / self.grey.shape[0], shape[1] / self.grey.shape[1])
            width, height = round(self.grey.shape[1] * factor), round(self.grey.shape[0] * factor)
            found = None
            if min(width, height) >= 8 and width <= shape[1] and height <= shape[0]:
                small = Image.fromarray(self.grey).resize((width, height), Image.Resampling.BOX)
                found = template(_detail(np.asarray(small, np.float32)), shape)
            self._templates[shape, scale] = found
        return self._templates[shape, scale]


def template(part: np.ndarray, shape: tuple[int, ...]) -> Template:
    """``part`` (h, w), to be laid over wholes of that shape."""
    centred = part - part.mean()
    energy = max(float(np.square(centred, dtype=np.float64).sum()), 1e-12)
    return Template(np.conj(np.asarray(scipy.fft.rfft2(centred, shape))) / part.dtype.type(energy**0.5), part.shape)


def likeness(one: Picture, two: Picture) -> float:
    """The best correlation of two pictures in any of these ways."""
    best = 0.0
    for whole, part in ((one, two), (two, one)):
        found = _placed(whole, part, SCALES)
        for way in (0, 1):
            score, scale = max((scores[way], scale) for scale, scores in found.items()) if found else (0.0, 1.0)
            if 0.4 < score < AGREE:  # near: look more closely at sizes in between
                finer = [float(s) for s in scale * FINER if s <= 1]
                score = max([score, *(scores[way] for scores in _placed(whole, part, finer).values())])
            best = max(best, score)
            if best >= AGREE:
                return best
    return best


def _placed(whole: Picture, part: Picture, scales: Sequence[float]) -> dict[float, tuple[float, float]]:
    """For each size of ``part``: its best correlation with a place in the whole, and in its mirror image."""
    made = {scale: part.template(whole.grey.shape, scale) for scale in scales}
    laid = {scale: one for scale, one in made.items() if one is not None}
    if not laid:
        return {}
    found = whole.whole.correlations(list(laid.values()))
    return {scale: tuple(scores.max((1, 2)).tolist()) for scale, scores in zip(laid, found, strict=True)}


def read(path: str | Path | bytes) -> Picture:
    """A file, or its bytes, made small and grey: the longer side has ``SIDE`` pixels."""
    picture = Image.fromarray(decode(path, target=2 * SIDE)).convert("L")
    factor = SIDE / max(picture.size)
    size = max(8, round(picture.width * factor)), max(8, round(picture.height * factor))
    return Picture(np.asarray(picture.resize(size, Image.Resampling.BOX), np.float32))


def _detail(picture: np.ndarray) -> np.ndarray:
    return picture - gaussian_filter(picture, SMOOTH, mode="nearest")


def _boxes(total: np.ndarray, h: int, w: int) -> np.ndarray:
    """Sums over every h × w box, from running sums."""
    return total[h:, w:] - total[:-h, w:] - total[h:, :-w] + total[:-h, :-w]
