"""Bulk embedding: in order, without bad files, and from where it was stopped."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

import secondsight
import secondsight.embed as module
from secondsight import Embedder
from secondsight.data import open as open_images
from secondsight.data.loading.transforms import RandomResizedCrop, Resize, ResizeCrop
from secondsight.embed import embed
from secondsight.errors import ConfigError, DataError


@pytest.fixture(scope="module")
def model() -> Embedder:
    torch.manual_seed(0)
    return Embedder.build(backbone="efficientnet-lite0", weights=None, pooling="average", dim=8).eval()


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(0)
    for label in "ab":
        (tmp_path / "photos" / label).mkdir(parents=True)
        for i in range(5):
            pixels = random.integers(0, 256, (40, 50, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / label / f"{i}.png")
    return tmp_path / "photos"


def test_embeddings_are_the_model_s_in_the_set_s_order(model, folder):
    images = open_images(folder)
    found = embed(model, images, Resize(32), batch_size=3)
    assert found.vectors.shape == (10, 8)
    assert found.indices.tolist() == list(range(10))
    assert found.labels is not None
    assert found.labels.tolist() == [0] * 5 + [1] * 5
    from secondsight.data.loading.loader import read_image

    one = read_image(images.path(7), Resize(32))
    with torch.no_grad():
        np.testing.assert_allclose(found.vectors[7], model(one[None])[0].numpy(), atol=1e-5)


@pytest.mark.parametrize(("name", "transform"), [("resize", Resize(32)), ("resize-crop", ResizeCrop(32))])
def test_an_embedder_is_shown_images_as_it_was_when_it_was_judged(name, transform, folder, tmp_path):
    torch.manual_seed(0)
    built = Embedder.build(
        backbone="efficientnet-lite0", weights=None, pooling="average", dim=8, size=32, transform=name
    )
    built.save(tmp_path / "model")
    model, images = secondsight.load(tmp_path / "model"), open_images(folder)
    assert np.array_equal(embed(model, images).vectors, embed(model, images, transform).vectors)


def test_a_network_that_does_not_say_how_it_wants_to_be_shown_images_must_be_told(folder):
    with pytest.raises(ConfigError, match="give a transform"):
        embed(torch.nn.Flatten(), open_images(folder))


def test_a_bad_file_is_set_aside_and_counted(model, folder):
    (folder / "a" / "2.png").write_bytes(b"not a picture")
    found = embed(model, open_images(folder), Resize(32), batch_size=4)
    assert 2 not in found.indices
    assert len(found) == 9
    assert [f.index for f in found.failures] == [2]
    with pytest.raises(DataError, match=r"2\.png"):
        embed(model, open_images(folder), Resize(32), strict=True)


def test_a_stopped_run_goes_on_and_gives_the_same(model, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 4)
    images = open_images(folder)
    (folder / "b" / "1.png").write_bytes(b"")
    whole = embed(model, images, Resize(32), batch_size=2)

    class Stopped(Exception):
        pass

    calls = 0

    def forward(pictures):
        nonlocal calls
        calls += 1
        if calls == 4:
            raise Stopped
        return original(pictures)

    original = model.forward
    monkeypatch.setattr(model, "forward", forward)
    model.train()
    with pytest.raises(Stopped):
        embed(model, images, Resize(32), batch_size=2, out=tmp_path / "out")
    assert model.training, "the model is given back as it came, also after an error"
    model.eval()
    calls = 10
    found = embed(model, images, Resize(32), batch_size=2, out=tmp_path / "out")
    assert calls - 10 == 3, "the first block of two batches was not computed again"
    np.testing.assert_array_equal(found.vectors, whole.vectors)
    np.testing.assert_array_equal(found.indices, whole.indices)
    assert [f.index for f in found.failures] == [f.index for f in whole.failures] == [6]


def test_blocks_of_another_model_are_refused(model, folder, tmp_path):
    embed(model, open_images(folder), Resize(32), out=tmp_path / "out")
    with pytest.raises(ConfigError, match="another transform"):
        embed(model, open_images(folder), Resize(48), out=tmp_path / "out")


def test_what_cannot_be_embedded_is_said(model, folder):
    with pytest.raises(ConfigError, match="without chance"):
        embed(model, open_images(folder), RandomResizedCrop(32))
    for file in folder.rglob("*.png"):
        file.write_bytes(b"")
    with pytest.raises(DataError, match=r"could be read"):
        embed(model, open_images(folder), Resize(32))
