"""Transforms give uint8 (3, S, S), are pure in (seed, epoch, index), and resize as Pillow and torchvision do."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from secondsight.data.loading.decode import decode
from secondsight.data.loading.jitter import LUMA, Jitter
from secondsight.data.loading.transforms import TRANSFORMS, RandomResizedCrop, Resize, ResizeCrop, Viewed, build
from secondsight.errors import ConfigError, UnknownName


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def pixels(image: torch.Tensor) -> np.ndarray:
    return image.permute(1, 2, 0).numpy().astype(int)


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("shape", [(300, 400), (1, 1), (1, 500), (700, 3), (224, 224)])
def test_any_picture_becomes_a_square_of_bytes(name, shape):
    transform = build(name, 64)
    image = transform(noise(*shape), seed=1, epoch=2, index=3)
    assert image.shape == (3, 64, 64)
    assert image.dtype == torch.uint8
    assert image.stride()[0] == 1  # channels last


@pytest.mark.parametrize("shape", [(300, 400), (97, 41), (30, 30), (1000, 70)])
def test_resize_is_pillows_antialiased_resize_to_one_grey_level(shape):
    off = {}
    for name, pillow in (("bilinear", Image.Resampling.BILINEAR), ("bicubic", Image.Resampling.BICUBIC)):
        oracle = np.asarray(Image.fromarray(noise(*shape)).resize((64, 64), pillow)).astype(int)
        off[name] = np.abs(pixels(Resize(64, name)(noise(*shape))) - oracle)
    assert off["bilinear"].max() <= 1
    assert (off["bicubic"] > 1).mean() < 0.03  # overshoot between the two passes is clipped differently
    assert off["bicubic"].mean() < 0.5


def test_resize_ignores_the_aspect():
    left_black = noise(50, 100)
    left_black[:, :50] = 0
    image = Resize(32)(left_black)
    assert image[:, :, :14].max() == 0
    assert image[:, :, 18:].float().mean() > 100


@pytest.mark.parametrize("shape", [(300, 400), (401, 299), (100, 100), (57, 91)])
def test_resize_crop_is_the_centre_of_the_resized_picture(shape):
    image = ResizeCrop(64, resize=72)(noise(*shape))
    height, width = shape
    # torchvision's rounding: the longer side is cut, the offset is rounded
    wide = 72 if width <= height else int(72 * width / height)
    high = 72 if height <= width else int(72 * height / width)
    whole = np.asarray(Image.fromarray(noise(*shape)).resize((wide, high), Image.Resampling.BILINEAR)).astype(int)
    top, left = round((high - 64) / 2), round((wide - 64) / 2)
    assert np.abs(pixels(image) - whole[top : top + 64, left : left + 64]).max() <= 1


def test_resize_crop_keeps_the_customary_margin():
    assert ResizeCrop(224).shorter == 256
    assert ResizeCrop(224, resize=224).shorter == 224


@given(st.integers(0, 2**40), st.integers(0, 1000), st.integers(0, 2**40))
@settings(max_examples=25, deadline=None)
def test_random_crop_is_a_pure_function_of_seed_epoch_and_index(seed, epoch, index):
    transform = build("random-crop-jitter", 16)
    image = noise(40, 60)
    before = image.copy()
    once = transform(image, seed=seed, epoch=epoch, index=index)
    torch.manual_seed(epoch)
    np.random.default_rng(index).random()
    again = build("random-crop-jitter", 16)(image.copy(), seed=seed, epoch=epoch, index=index)
    assert torch.equal(once, again)
    np.testing.assert_array_equal(image, before)


def test_seed_epoch_and_index_each_change_the_crop():
    transform, image = RandomResizedCrop(32), noise(100, 100)
    base = transform(image, seed=0, epoch=0, index=0)
    for other in ({"seed": 1}, {"epoch": 1}, {"index": 1}):
        assert not torch.equal(base, transform(image, **{"seed": 0, "epoch": 0, "index": 0, **other}))


@given(st.integers(1, 600), st.integers(1, 600), st.integers(0, 10**6))
@settings(max_examples=200, deadline=None)
def test_random_parts_lie_inside_the_picture_and_within_scale_and_ratio(height, width, seed):
    transform = RandomResizedCrop(32, scale=(0.2, 0.9), ratio=(0.5, 2.0))
    top, left, h, w = transform.part(height, width, np.random.default_rng(seed))
    assert h >= 1
    assert w >= 1
    assert 0 <= top <= height - h
    assert 0 <= left <= width - w
    if height >= 100 and width >= 100 and max(height, width) <= 2 * min(height, width):
        assert 0.19 <= h * w / (height * width) <= 0.91
        assert 0.49 <= w / h <= 2.05


def test_parts_reach_every_border():
    parts = [RandomResizedCrop(8).part(50, 70, np.random.default_rng(i)) for i in range(500)]
    assert min(p[0] for p in parts) == 0
    assert max(p[0] + p[2] for p in parts) == 50
    assert min(p[1] for p in parts) == 0
    assert max(p[1] + p[3] for p in parts) == 70


def test_flip_mirrors_left_and_right_for_half_of_the_images():
    image = noise(48, 48)
    never, always, half = (RandomResizedCrop(48, scale=(1, 1), ratio=(1, 1), flip=p) for p in (0.0, 1.0, 0.5))
    plain = torch.from_numpy(image).permute(2, 0, 1)
    assert torch.equal(never(image), plain)
    assert torch.equal(always(image), plain.flip(-1))
    mirrored = sum(torch.equal(half(image, index=i), plain.flip(-1)) for i in range(400))
    assert 150 < mirrored < 250


# ---------------------------------------------------------------- colours


def picture(seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(noise(24, 24, seed)).permute(2, 0, 1)


def jittered(jitter: Jitter, seed: int = 0) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, float]]:
    x = pixels(picture())
    return x, pixels(jitter(picture(), np.random.default_rng(seed))), jitter.draw(np.random.default_rng(seed))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "strengths", [(0.4, 0, 0, 0), (0, 0.4, 0, 0), (0, 0, 0.4, 0), (0, 0, 0, 0.2), (0.4, 0.4, 0.4, 0.1)]
)
def test_jitter_is_the_equation_in_its_docstring(strengths, seed):
    x, y, (matrix, grey) = jittered(Jitter(*strengths), seed)
    mean = x.reshape(-1, 3).mean(0) @ LUMA
    expected = np.clip(x @ matrix.T + grey * mean, 0, 255)
    assert np.abs(y - expected).max() <= 1


@pytest.mark.parametrize("seed", range(5))
def test_each_strength_does_what_it_says(seed):
    rng = np.random.default_rng
    factor = 1 + 0.3 * (2 * rng(seed).random(4) - 1)
    grey_axis = np.ones(3)
    brightness, _ = Jitter(brightness=0.3).draw(rng(seed))
    np.testing.assert_allclose(brightness, factor[0] * np.eye(3), atol=1e-12)
    contrast, share = Jitter(contrast=0.3).draw(rng(seed))
    np.testing.assert_allclose(contrast @ grey_axis + share, grey_axis, atol=1e-12)  # the mean stays
    saturation, _ = Jitter(saturation=0.3).draw(rng(seed))
    np.testing.assert_allclose(saturation @ grey_axis, grey_axis, atol=1e-12)  # grey stays grey
    hue, _ = Jitter(hue=0.3).draw(rng(seed))
    np.testing.assert_allclose(hue @ grey_axis, grey_axis, atol=1e-12)
    np.testing.assert_allclose(LUMA @ hue, LUMA, atol=1e-12)  # no colour gets lighter
    assert not np.allclose(hue, np.eye(3), atol=1e-3)


def test_no_jitter_changes_nothing():
    assert torch.equal(Jitter()(picture(), np.random.default_rng(0)), picture())


# ---------------------------------------------------------------- what the decoder and the cache need to know


@pytest.mark.parametrize("transform", [Resize(224), ResizeCrop(224), RandomResizedCrop(224, scale=(0.2, 1.0))])
def test_shrinking_while_decoding_leaves_enough_for_the_result(transform):
    assert transform.target >= 224
    if isinstance(transform, RandomResizedCrop):
        for seed in range(300):
            _, _, h, w = transform.part(transform.target, transform.target, np.random.default_rng(seed))
            assert min(h, w) >= 223


def test_shrinking_while_decoding_hardly_changes_a_real_photograph(shared):
    paths = sorted((shared / "data/CUB_200_2011/images").glob("*/*.jpg"))[::200]
    transform = Resize(80)
    errors = []
    for path in paths:
        full, shrunk = decode(path), decode(path, target=transform.target)
        assert shrunk.size < full.size
        errors.append(np.mean((pixels(transform(full)) - pixels(transform(shrunk))) ** 2))
    assert 10 * np.log10(255**2 / np.mean(errors)) > 36  # decibels


@pytest.mark.parametrize("transform", [Resize(224), ResizeCrop(224), RandomResizedCrop(224, jitter=Jitter(0.1))])
def test_the_key_changes_with_every_setting(transform):
    other = {
        "size": 160,
        "interpolation": "bicubic",
        "resize": 320,
        "scale": (0.5, 1.0),
        "ratio": (0.9, 1.1),
        "flip": 0.1,
        "jitter": Jitter(0.1, 0.1, 0.1, 0.1),
    }
    keys = {transform.key}
    names = [field.name for field in dataclasses.fields(transform)]
    for name in names:
        keys.add(dataclasses.replace(transform, **{name: other[name]}).key)
    assert len(keys) == len(names) + 1


@pytest.mark.parametrize("transform", [Resize(24), ResizeCrop(24)])
def test_mirrored_is_the_mirror_image_of_what_the_transform_shows(transform):
    mirrored, picture = Viewed(transform, "mirror", lambda x: x.flip(-1)), noise(40, 60)
    assert torch.equal(mirrored(picture), transform(picture).flip(-1))
    assert not torch.equal(mirrored(picture), transform(picture))
    assert (mirrored.size, mirrored.target) == (transform.size, transform.target)
    assert mirrored.key != transform.key


def test_a_random_transform_cannot_be_mirrored():
    with pytest.raises(ConfigError, match="deterministic"):
        Viewed(RandomResizedCrop(24), "mirror", lambda x: x.flip(-1))


def test_only_the_random_ones_depend_on_the_epoch():
    for name in TRANSFORMS:
        transform = build(name, 32)
        same = torch.equal(transform(noise(50, 60), epoch=0), transform(noise(50, 60), epoch=1))
        assert same == transform.deterministic


# ---------------------------------------------------------------- mistakes


def test_an_unknown_transform_names_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'resize'"):
        build("resise")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Resize(0), "size"),
        (lambda: ResizeCrop(224, resize=200), "resize 200 is smaller than the crop of 224"),
        (lambda: RandomResizedCrop(64, scale=(0.0, 1.0)), "scale"),
        (lambda: RandomResizedCrop(64, scale=(0.9, 0.5)), "scale"),
        (lambda: RandomResizedCrop(64, ratio=(2.0, 1.0)), "ratio"),
        (lambda: RandomResizedCrop(64, flip=1.5), "flip"),
        (lambda: Jitter(hue=0.7), "hue"),
        (lambda: Jitter(brightness=-0.1), "brightness"),
    ],
)
def test_settings_that_make_no_sense_are_refused(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_an_unknown_interpolation_is_refused():
    with pytest.raises(UnknownName, match="bicubic"):
        Resize(64, "cubic")  # pyright: ignore[reportArgumentType]
