"""Real weights on real birds: right pixels find the species, wrong pixels do not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file, save_file

from secondsight.backbones import Preprocessing, build
from secondsight.backbones.preprocessing import CAFFE, IMAGENET
from secondsight.errors import WeightsError

VGG = "vgg16-features-imagenet.fp16.safetensors"
RESNET = "resnet50-v1-keras-imagenet.fp16.safetensors"


@pytest.fixture(scope="module")
def birds(shared):
    """Four photographs of each of nine species, 128 pixels square, and the species."""
    species = sorted((shared / "data/CUB_200_2011/images").iterdir())[3::12]
    images, labels = [], []
    for label, folder in enumerate(species):
        for file in sorted(folder.iterdir())[:4]:
            picture = Image.open(file).convert("RGB").resize((128, 128), Image.Resampling.BICUBIC)
            images.append(torch.from_numpy(np.array(picture)).permute(2, 0, 1))
            labels.append(label)
    return torch.stack(images), torch.tensor(labels)


def recall(backbone, birds) -> float:
    """Recall@1 of averaged local features under the cosine: chance is 3 in 35."""
    images, labels = birds
    with torch.no_grad():
        x = F.normalize(backbone.eval()(images).mean(dim=1), dim=1)
    similarity = (x @ x.T).fill_diagonal_(-1)
    return (labels[similarity.argmax(dim=1)] == labels).float().mean().item()


def test_lite0_sees_birds_through_its_own_pixels_only(birds):
    raw = Preprocessing(mean=(0, 0, 0), std=(1, 1, 1), range=255)
    right, wrong = (
        recall(build("efficientnet-lite0"), birds),
        recall(build("efficientnet-lite0", preprocessing=raw), birds),
    )
    assert right > 0.7
    assert wrong < right - 0.3


def test_vgg16_sees_birds_through_its_own_pixels_only(shared, birds, tmp_path):
    file, (images, labels) = shared / "weights" / VGG, birds
    some = images[labels < 6], labels[labels < 6]  # VGG16 is slow
    right = recall(build("vgg16", weights=file), some)
    wrong = recall(build("vgg16", weights=unmarked(file, tmp_path), preprocessing=CAFFE), some)
    assert right > 0.7
    assert wrong < right - 0.1


def test_resnet50_v1_sees_birds_through_its_own_pixels_only(shared, birds, tmp_path):
    file = shared / "weights" / RESNET
    right = recall(build("resnet50", version="v1", weights=file), birds)
    wrong = recall(build("resnet50-v1", weights=unmarked(file, tmp_path), preprocessing=IMAGENET), birds)
    assert right > 0.6
    assert wrong < right - 0.3


def unmarked(file, folder):
    """The same weights in a file that says nothing about pixels."""
    save_file(load_file(file), folder / "unmarked.safetensors")
    return folder / "unmarked.safetensors"


def test_batch_statistics_of_birds_fit_those_that_resnet50_v1_stores_better_than_v15(shared, birds):
    """v1.5 has the same parameter names: only the activations tell that the stride sits elsewhere."""
    images, _ = birds
    v1 = build("resnet50-v1", weights=shared / "weights" / RESNET)
    v15 = build("resnet50", version="v1.5", eps=1e-3, weights=None, preprocessing=CAFFE)
    v15.load_state_dict(v1.state_dict())
    assert misfit(v1, images[::3]) < 0.5 * misfit(v15, images[::3])


def misfit(backbone, images) -> float:
    """How far the variance of every normalised channel is from one: median of log², averaged over the BatchNorms."""
    found = []

    def look(norm, inputs, _):
        mean, variance = norm.running_mean[:, None, None], norm.running_var[:, None, None]
        found.append(((inputs[0] - mean) / (variance + norm.eps).sqrt()).var(dim=(0, 2, 3)).log().square().median())

    for module in backbone.eval().modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.register_forward_hook(look)
    with torch.no_grad():
        backbone(images)
    return torch.stack(found).mean().item()


def test_the_two_weight_files_do_not_load_into_the_wrong_backbone(shared):
    with pytest.raises(WeightsError, match="version='v1'"):
        build("resnet50", weights=shared / "weights" / RESNET)
    with pytest.raises(WeightsError, match="other pixels"):
        build("vgg16", weights=shared / "weights" / VGG, preprocessing=CAFFE)
    with pytest.raises(WeightsError, match=r"265 unexpected: .*and 235 more"):
        build("vgg16", weights=shared / "weights" / RESNET)
