"""Each backbone prepares its own pixels, the same from bytes and from 0–1, and refuses what cannot be meant."""

from __future__ import annotations

import pytest
import torch

from secondsight.backbones import Preprocessing, build
from secondsight.backbones.preprocessing import CAFFE
from secondsight.errors import ConfigError, ShapeError

IMAGES = torch.randint(0, 256, (2, 3, 40, 33), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def by_hand(image: torch.Tensor, channels: str, scale: float, mean, std) -> torch.Tensor:
    order = ["RGB".index(letter) for letter in channels]
    planes = [(image[:, c].double() / 255 * scale - m) / s for c, m, s in zip(order, mean, std, strict=True)]
    return torch.stack(planes, dim=1).float()


EXPECTED = {
    "vgg16": ("RGB", 1, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "resnet50": ("RGB", 1, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "resnet50-v1": ("BGR", 255, (103.939, 116.779, 123.68), (1, 1, 1)),
    "efficientnet-lite0": ("RGB", 255, (127, 127, 127), (128, 128, 128)),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_pixels_are_prepared_as_the_weights_were_trained(name):
    backbone = build(name, weights=None)
    expected = by_hand(IMAGES, *EXPECTED[name])
    torch.testing.assert_close(backbone.prepare(IMAGES), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(backbone.prepare(IMAGES / 255), expected, rtol=1e-5, atol=2e-5)


def test_version_v1_brings_its_pixels_along():
    assert build("resnet50", weights=None, version="v1").preprocessing == CAFFE
    assert build("resnet50", weights=None).preprocessing != CAFFE


def test_another_preprocessing_replaces_the_backbones_own():
    own = Preprocessing(mean=(1, 2, 3), std=(4, 5, 6), channels="BGR", range=255)
    backbone = build("vgg16", weights=None, preprocessing=own)
    torch.testing.assert_close(backbone.prepare(IMAGES), by_hand(IMAGES, "BGR", 255, (1, 2, 3), (4, 5, 6)))
    assert build("vgg16", weights=None, preprocessing=own.as_dict()).preprocessing == own


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (
            torch.rand(1, 3, 40, 40) * 255,
            r"floating-point images in 0–1, got values from .* pass uint8, or divide by 255",
        ),
        ((torch.rand(1, 3, 40, 40) - 0.45) / 0.1, "leave mean and std to the backbone"),
        (torch.full((1, 3, 40, 40), torch.nan), "from nan to nan"),
        (torch.zeros(3, 40, 40), r"images\[None\]"),
        (torch.zeros(1, 40, 40, 3), r"permute\(0, 3, 1, 2\)"),
        (torch.zeros(1, 1, 40, 40), "greyscale and RGBA images to RGB"),
        (torch.zeros(1, 3, 40, 40, dtype=torch.int64), "uint8 .* or floating point .* got torch.int64"),
    ],
)
def test_images_that_cannot_be_meant_are_refused(images, message):
    with pytest.raises(ShapeError, match=message):
        build("efficientnet-lite0", weights=None)(images)


def test_the_overshoot_of_bicubic_resizing_is_let_through():
    image = torch.rand(1, 3, 40, 40) * 1.2 - 0.1
    assert build("efficientnet-lite0", weights=None).eval()(image).isfinite().all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"std": (0, 1, 1)}, "std and range must be positive"),
        ({"mean": (0.5, 0.5)}, "mean must be three numbers"),
        ({"mean": ("a", 0, 0)}, "mean must be three numbers"),
        ({"std": (1, 1, float("inf"))}, "std must be finite"),
        ({"channels": "GBR"}, "'RGB' or 'BGR', got 'GBR'"),
        ({"range": 0}, "must be positive"),
        ({"size": 0}, "size must be a positive number"),
        ({"men": (0, 0, 0)}, "men missing or unknown"),
    ],
)
def test_impossible_preprocessing_is_an_error_that_names_the_field(changes, message):
    with pytest.raises(ConfigError, match=message):
        Preprocessing.of({"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5), **changes})
    with pytest.raises(ConfigError, match="std missing"):
        Preprocessing.of({"mean": (0.5, 0.5, 0.5)})
