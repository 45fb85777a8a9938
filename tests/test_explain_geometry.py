"""A place on the grid, on the square that the network saw, and on the whole original is the same place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secondsight.data.loading.transforms import RandomResizedCrop, Resize, ResizeCrop
from secondsight.errors import ConfigError
from secondsight.explain.geometry import Frame, checked_box, frame

GRID = (7, 7)


@pytest.mark.parametrize("transform", [Resize(224), ResizeCrop(224), ResizeCrop(224, resize=300)], ids=lambda t: t.key)
@pytest.mark.parametrize("size", [(400, 640), (640, 400), (320, 320)])
def test_what_is_painted_on_a_places_box_is_what_the_network_sees_there(transform, size):
    where = frame(transform, GRID, *size)
    for place in ((0, 0), (3, 5), (6, 2)):
        left, top, right, bottom = where.place(*place)
        picture = np.zeros((*size, 3), np.uint8)
        ys, xs = (slice(round(a * s), round(b * s)) for a, b, s in ((top, bottom, size[0]), (left, right, size[1])))
        picture[ys, xs] = 255
        seen = transform(picture).numpy()[0].astype(float).reshape(7, 32, 7, 32).mean((1, 3))
        assert seen[place] > 225
        seen[place] = 0
        assert seen.max() < 25


@pytest.mark.parametrize("transform", [Resize(224), ResizeCrop(224)], ids=lambda t: t.key)
def test_a_map_on_the_original_is_the_map_on_the_square_seen_backwards(transform):
    values = np.arange(49.0).reshape(GRID)
    where = frame(transform, GRID, 300, 500)
    whole = where.on_original(values, outside=-1)
    assert whole.shape == (300, 500)
    painted = np.repeat(np.clip(whole, 0, None)[..., None], 3, 2).astype(np.uint8)
    back = transform(painted).numpy()[0].astype(float).reshape(7, 32, 7, 32)
    np.testing.assert_allclose(np.median(back.transpose(0, 2, 1, 3).reshape(7, 7, -1), -1), values, atol=1)
    left, top, right, bottom = where.seen
    assert (whole >= 0).mean() == pytest.approx((right - left) * (bottom - top), abs=0.01)
    np.testing.assert_array_equal(where.on_shown(values, 224)[::32, ::32], values)


@given(st.tuples(*[st.floats(0, 1)] * 4).filter(lambda b: b[2] - b[0] > 0.02 and b[3] - b[1] > 0.02))
@settings(max_examples=60, deadline=None)
def test_boxes_and_masks_cover_the_same_places(box):
    where = Frame(GRID, (0.1, 0.0, 0.9, 1.0), (1000, 1000))
    mask = np.zeros((1000, 1000), bool)
    mask[round(box[1] * 1000) : round(box[3] * 1000), round(box[0] * 1000) : round(box[2] * 1000)] = True
    np.testing.assert_allclose(where.coverage(box), where.covered(mask), atol=0.03)


def test_coverage_counts_areas():
    where = Frame((2, 2))
    np.testing.assert_allclose(where.coverage((0, 0, 0.75, 0.5)), [[1, 0.5], [0, 0]])


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ((0.2, 0.2, 1.2, 0.5), "leaves the image"),
        ((-0.1, 0.2, 0.5, 0.5), "leaves the image"),
        ((0.5, 0.2, 0.5, 0.6), "no area"),
        ((0.6, 0.2, 0.5, 0.6), "no area"),
        ((float("nan"), 0, 1, 1), "leaves the image"),
        ((0.1, 0.2, 0.3), "four numbers"),
        ("left", "four numbers"),
        (None, "four numbers"),
    ],
)
def test_a_box_that_is_none_says_why(box, message):
    with pytest.raises(ConfigError, match=message):
        checked_box(box)


def test_a_transform_of_chance_shows_no_known_part():
    with pytest.raises(ConfigError, match="does not say which part"):
        frame(RandomResizedCrop(224), GRID, 300, 400)
