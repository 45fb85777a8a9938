"""The loader without torch sees what the model saw: the same decoding, the same resizing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_sample_images

from secondsight.data.loading.decode import decode
from secondsight.data.loading.transforms import Resize, ResizeCrop
from secondsight.errors import DataError
from secondsight.inference.onnx_file import picture_of
from secondsight.inference.pictures import opened, pixels

FLOWER, TEMPLE = (np.array(photo) for photo in load_sample_images().images)


@pytest.mark.parametrize("turned", [False, True], ids=["landscape", "portrait"])
@pytest.mark.parametrize(
    "transform", [Resize(224), Resize(288, "bicubic"), ResizeCrop(224), ResizeCrop(96, 100, "bicubic")], ids=str
)
@pytest.mark.parametrize("photo", [FLOWER, TEMPLE], ids=["flower", "temple"])
def test_a_photograph_is_resized_as_by_the_models_own_transform(photo, transform, turned):
    array = np.ascontiguousarray(photo.transpose(1, 0, 2)) if turned else photo
    theirs = pixels(array, picture_of(transform)).astype(int)
    difference = np.abs(theirs - transform(array).numpy())
    # Bicubic weights are negative at hard edges, where rounding may leave two levels.
    assert difference.max() <= (1 if transform.interpolation == "bilinear" else 2)
    assert (difference > 0).mean() < 0.03


@settings(max_examples=40, deadline=None)
@given(height=st.integers(1, 300), width=st.integers(1, 300), crop=st.booleans(), seed=st.integers(0, 9))
def test_noise_of_any_shape_too_to_one_grey_level(height, width, crop, seed):
    array = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    if max(height, width) > 50 * min(height, width):
        crop = False  # a crop's longer side would have tens of thousands of pixels
    transform = ResizeCrop(32, 40) if crop else Resize(32)
    difference = np.abs(pixels(array, picture_of(transform)).astype(int) - transform(array).numpy())
    assert difference.max() <= 1


def save(path: Path, image: Image.Image, **options) -> Path:
    image.save(path, **options)
    return path


def oriented(value: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = value
    return exif


def test_every_kind_of_file_is_decoded_as_in_training(tmp_path):
    photo = Image.fromarray(FLOWER).resize((161, 121))
    deep = (np.asarray(photo.convert("L")).astype(np.uint16) * 257)[:, ::-1].copy()
    clear = photo.copy()
    clear.putalpha(Image.linear_gradient("L").resize(photo.size))
    kinds = {
        "colour.jpg": (photo, {"quality": 90}),
        "grey.jpg": (photo.convert("L"), {"quality": 90}),
        "cmyk.jpg": (photo.convert("CMYK"), {"quality": 90}),
        "palette.png": (photo.quantize(16), {}),
        "clear.png": (clear, {}),
        "grey-alpha.png": (clear.convert("LA"), {}),
        "bits.png": (photo.convert("1"), {}),
        "deep.png": (Image.fromarray(deep), {}),
        "deep.tiff": (Image.fromarray(deep), {}),
        "floating.tiff": (Image.fromarray((deep / 65535).astype(np.float32)), {}),
        "a.webp": (photo, {"lossless": True}),
        "a.bmp": (photo, {}),
        "a.gif": (photo, {}),
        **{f"turned-{i}.jpg": (photo, {"exif": oriented(i)}) for i in range(1, 9)},
    }
    for name, (image, options) in kinds.items():
        path = save(tmp_path / name, image, **options)
        np.testing.assert_array_equal(np.asarray(opened(path)), decode(path), err_msg=name)
        np.testing.assert_array_equal(np.asarray(opened(path.read_bytes())), decode(path), err_msg=name)


def test_large_jpegs_shrunk_while_decoding_look_the_same(tmp_path):
    large = Image.fromarray(FLOWER).resize((1600, 1066))
    path = save(tmp_path / "large.jpg", large, quality=92)
    transform = Resize(224)
    ours = transform(decode(path, target=transform.target)).numpy().astype(float)
    theirs = pixels(path, picture_of(transform)).astype(float)
    assert 10 * np.log10(255**2 / np.square(ours - theirs).mean()) > 38  # decibels


def test_bad_sources_are_errors_that_name_them(tmp_path):
    (tmp_path / "text.jpg").write_text("hello")
    (tmp_path / "cut.png").write_bytes(save(tmp_path / "a.png", Image.fromarray(FLOWER)).read_bytes()[:5000])
    for bad in ("text.jpg", "cut.png", "absent.jpg"):
        with pytest.raises(DataError, match=bad):
            opened(tmp_path / bad)
    with pytest.raises(DataError, match="uint8 RGB"):
        opened(np.zeros((4, 4)))
