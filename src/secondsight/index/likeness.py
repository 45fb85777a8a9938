"""How far two pictures are the same: one laid over the other, mirrored or not, whole or cut out of it.

Both are made small and grey, and what is smooth is taken out, for one blurred background is like any other. Normalised
cross-correlation (Lewis 1995)

    ncc(u) = Σ (a(x + u) − ā_u)(b(x) − b̄) / √(Σ (a(x + u) − ā_u)² Σ (b(x) − b̄)²)

of the one, b, at several sizes, with every place of the other, a, is 1 where they agree up to brightness and contrast.
"""

from __future__ import annotations

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


class Picture:
    """A grey picture (h, w), and what comparing it needs, made once."""

    def __init__(self, grey: np.ndarray):
        self.grey = grey

    @cached_property
    def whole(self) -> Whole:
        return Whole(_detail(self.grey))


class Whole:
    """What templates are laid over: its spectrum and its running sums."""

    def __init__(self, picture: np.ndarray):
        centred = picture.astype(np.float64) - picture.mean()
        self.shape = picture.shape
        self.spectrum = _spectrum(centred, picture.shape)
        self.sums, self.squares = (np.pad(x.cumsum(0).cumsum(1), ((1, 0), (1, 0))) for x in (centred, centred**2))

    def correlation(self, part: np.ndarray) -> np.ndarray:
        """(H − h + 1, W − w + 1): normalised cross-correlation of ``part`` (h, w) with every place."""
        h, w = part.shape
        template = part.astype(np.float64) - part.mean()
        energy = np.square(template).sum()
        product = _pixels(self.spectrum * np.conj(_spectrum(template, self.shape)), self.shape)
        sums, squares = _boxes(self.sums, h, w), _boxes(self.squares, h, w)
        spread = np.maximum(squares - sums**2 / (h * w), 1e-6 * max(squares.max(), 1e-12))
        return product[: sums.shape[0], : sums.shape[1]] / np.sqrt(spread * max(energy, 1e-12))


def likeness(one: Picture, two: Picture) -> float:
    """The best correlation of two pictures in any of these ways."""
    best = 0.0
    for whole, part in ((one, two), (two, one)):
        for view in (part.grey, part.grey[:, ::-1]):
            found = max((_placed(whole, view, scale), scale) for scale in SCALES)
            if 0.4 < found[0] < AGREE:  # near: look more closely at sizes in between
                found = max([found, *((_placed(whole, view, s), s) for s in found[1] * FINER if s <= 1)])
            best = max(best, found[0])
            if best >= AGREE:
                return best
    return best


def read(path: str | Path | bytes) -> Picture:
    """A file, or its bytes, made small and grey: the longer side has ``SIDE`` pixels."""
    picture = Image.fromarray(decode(path, target=2 * SIDE)).convert("L")
    factor = SIDE / max(picture.size)
    size = max(8, round(picture.width * factor)), max(8, round(picture.height * factor))
    return Picture(np.asarray(picture.resize(size, Image.Resampling.BOX), np.float32))


def _placed(whole: Picture, part: np.ndarray, scale: float) -> float:
    """The best correlation of ``part``, made to fill ``scale`` of the whole along one side, with a place in it."""
    high, wide = whole.grey.shape
    factor = scale * min(high / part.shape[0], wide / part.shape[1])
    size = round(part.shape[1] * factor), round(part.shape[0] * factor)
    if min(size) < 8 or size[0] > wide or size[1] > high:
        return 0.0
    small = np.asarray(Image.fromarray(part).resize(size, Image.Resampling.BOX), np.float32)
    return float(whole.whole.correlation(_detail(small)).max())


def _detail(picture: np.ndarray) -> np.ndarray:
    return picture - gaussian_filter(picture, SMOOTH, mode="nearest")


def _spectrum(picture: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(scipy.fft.rfft2(picture, shape))


def _pixels(spectrum: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.asarray(scipy.fft.irfft2(spectrum, shape))


def _boxes(total: np.ndarray, h: int, w: int) -> np.ndarray:
    """Sums over every h × w box, from running sums."""
    return total[h:, w:] - total[:-h, w:] - total[h:, :-w] + total[:-h, :-w]
