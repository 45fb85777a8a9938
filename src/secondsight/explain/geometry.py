"""Where a place lies: from the grid of the network to the image as the network saw it, and to the whole original."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from secondsight.errors import ConfigError

if TYPE_CHECKING:
    from secondsight.data.loading.transforms import Transform

Box = tuple[float, float, float, float]
"""Left, top, right, bottom, as fractions of the whole original's sides."""

WHOLE: Box = (0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True)
class Frame:
    """The part of an original that the network saw, cut into h × w places."""

    grid: tuple[int, int]
    seen: Box = WHOLE
    size: tuple[int, int] = (224, 224)  # height and width of the whole original

    def place(self, row: int, column: int) -> Box:
        """The box of one place on the whole original."""
        (h, w), (left, top, right, bottom) = self.grid, self.seen
        wide, high = (right - left) / w, (bottom - top) / h
        x, y = left + column * wide, top + row * high
        return x, y, x + wide, y + high

    def coverage(self, box: Box) -> np.ndarray:
        """(h, w): which part of each place lies in the box, 0 to 1."""
        (h, w), (left, top, right, bottom) = self.grid, self.seen
        columns = _overlap(left, right, w, box[0], box[2])
        rows = _overlap(top, bottom, h, box[1], box[3])
        return rows[:, None] * columns[None, :]

    def covered(self, mask: np.ndarray) -> np.ndarray:
        """(h, w): which part of each place a mask over the whole original, of any resolution, covers."""
        h, w = self.grid
        high, wide = mask.shape
        # Sums over boxes from a table of running sums, at the nearest pixel edges.
        table = np.zeros((high + 1, wide + 1))
        table[1:, 1:] = mask.astype(np.float64).cumsum(0).cumsum(1)
        left, top, right, bottom = self.seen
        xs = np.round(np.linspace(left, right, w + 1) * wide).astype(int)
        ys = np.round(np.linspace(top, bottom, h + 1) * high).astype(int)
        sums = table[np.ix_(ys, xs)]
        inside = sums[1:, 1:] - sums[:-1, 1:] - sums[1:, :-1] + sums[:-1, :-1]
        area = np.maximum(np.diff(ys)[:, None] * np.diff(xs)[None, :], 1)
        return inside / area

    def on_shown(self, values: np.ndarray, size: int) -> np.ndarray:
        """A map (h, w) on the square that the network saw, (size, size), each pixel with its place's value."""
        h, w = self.grid
        return values[np.ix_(np.arange(size) * h // size, np.arange(size) * w // size)]

    def on_original(self, values: np.ndarray, outside: float = 0.0) -> np.ndarray:
        """A map (h, w) on the whole original: each pixel has its place's value, ``outside`` where none looked."""
        height, width = self.size
        (h, w), (left, top, right, bottom) = self.grid, self.seen
        x = ((np.arange(width) + 0.5) / width - left) / (right - left) * w
        y = ((np.arange(height) + 0.5) / height - top) / (bottom - top) * h
        result = np.full((height, width), outside, np.float64)
        inx, iny = (x >= 0) & (x < w), (y >= 0) & (y < h)
        result[np.ix_(iny, inx)] = values[np.ix_(y[iny].astype(int), x[inx].astype(int))]
        return result


def frame(transform: Transform, grid: tuple[int, int], height: int, width: int) -> Frame:
    """What a transform shows of an original of that size."""
    seen = getattr(transform, "seen", None)
    if seen is None:
        raise ConfigError(
            f"{transform.key} does not say which part of a picture it shows; use 'resize' or 'resize-crop'"
        )
    return Frame(grid, seen(height, width), (height, width))


def checked_box(box: Any) -> Box:
    """Four fractions with an area, inside the image; or an error that says what is wrong."""
    try:
        left, top, right, bottom = (float(value) for value in box)
    except (TypeError, ValueError) as error:
        given = ",".join(map(str, box)) if isinstance(box, (list, tuple)) else box
        raise ConfigError(
            f"the box {given!r} is not four numbers, left, top, right, bottom, such as 0.2,0.1,0.6,0.7"
        ) from error
    if not all(0 <= value <= 1 for value in (left, top, right, bottom)):
        raise ConfigError(f"the box {left:g},{top:g},{right:g},{bottom:g} leaves the image; its sides go from 0 to 1")
    if right <= left or bottom <= top:
        raise ConfigError(
            f"the box {left:g},{top:g},{right:g},{bottom:g} has no area: right must exceed left, bottom top"
        )
    return left, top, right, bottom


def _overlap(low: float, high: float, count: int, start: float, stop: float) -> np.ndarray:
    """Of ``count`` equal cells between low and high, the part that lies between start and stop."""
    edges = np.linspace(low, high, count + 1)
    inside = np.minimum(edges[1:], stop) - np.maximum(edges[:-1], start)
    return np.clip(inside / np.diff(edges), 0.0, 1.0)
