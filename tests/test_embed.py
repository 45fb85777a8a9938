"""Bulk embedding: in order, without bad files, and from where it was stopped."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import secondsight
from secondsight import Embedder
from secondsight.cli.main import app
from secondsight.data import DecodeError
from secondsight.data import open as open_images
from secondsight.data.loading.transforms import RandomResizedCrop, Resize, ResizeCrop
from secondsight.embed import blocks, embed, encode, features
from secondsight.embed.directory import embed_to, finish
from secondsight.embed.inputs import pictures
from secondsight.embed.stream import BLOCK, stream
from secondsight.errors import ConfigError, DataError, RunError, ShapeError


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
    from data_layouts import read_image

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


def test_progress_ends_at_the_number_of_images(model, folder):
    counted = []
    list(stream(pictures(model, open_images(folder), Resize(32)), batch_size=4, block=12, advance=counted.append))
    assert counted == [4, 4, 2]


def test_blocks_are_the_same_for_one_process_or_several_and_whatever_was_done_before(model, folder):
    images = open_images(folder)
    (folder / "b" / "1.png").write_bytes(b"")
    options = {"transform": Resize(32), "batch_size": 2, "block": 4}
    whole = list(blocks(model, images, **options))
    assert [(b.start, b.stop) for b in whole] == [(0, 4), (4, 8), (8, 10)]
    shares = [list(blocks(model, images, rank=rank, world_size=2, **options)) for rank in (0, 1)]
    assert [b.number for b in shares[0]] == [0, 2]
    for one, other in zip(whole, sorted(shares[0] + shares[1], key=lambda b: b.number), strict=True):
        np.testing.assert_array_equal(one.vectors, other.vectors)
        np.testing.assert_array_equal(one.indices, other.indices)
        assert one.failures == other.failures
    assert [f.index for b in whole for f in b.failures] == [6]
    assert [b.number for b in blocks(model, images, done={0, 2}, **options)] == [1]
    joined = embed(model, images, Resize(32), batch_size=2)
    np.testing.assert_array_equal(joined.vectors, np.concatenate([b.vectors for b in whole]))


def test_a_model_is_given_back_as_it_came_also_after_an_error(model, folder, monkeypatch):
    class Stopped(Exception):
        pass

    def stop(pictures):
        raise Stopped

    monkeypatch.setattr(model, "forward", stop)
    model.train()
    with pytest.raises(Stopped):
        embed(model, open_images(folder), Resize(32))
    assert model.training
    model.eval()


def test_the_threads_that_decode_live_from_block_to_block(model, folder):
    seen = [
        {t.ident for t in threading.enumerate() if t is not threading.main_thread()}
        for _ in blocks(model, open_images(folder), Resize(32), batch_size=2, block=2, workers=2)
    ]
    assert len(seen) == 5
    assert seen[0]
    assert all(now <= seen[0] for now in seen)


def test_queries_of_any_kind_give_what_bulk_embedding_gives(folder):
    torch.manual_seed(0)
    model = Embedder.build(backbone="efficientnet-lite0", weights=None, pooling="average", dim=8, size=32).eval()
    images = open_images(folder)
    path = images.path(3)
    pixels = np.asarray(Image.open(path).convert("RGB"))
    found = encode(model, [path, str(path), path.read_bytes(), Image.open(path), pixels])
    for row in found:
        np.testing.assert_allclose(row, embed(model, images).vectors[3], atol=1e-5)
    assert encode(model, []).shape == (0, 8)
    with pytest.raises(ShapeError, match="uint8 RGB"):
        encode(model, [pixels[..., 0]])
    with pytest.raises(DecodeError, match=r"none\.jpg"):
        encode(model, [folder / "none.jpg"])


def test_features_to_fit_from_are_spread_over_the_set(model, folder):
    images = open_images(folder)
    found = torch.cat(features(model, images, count=5, batch_size=2))
    assert found.shape[0] == 5
    one = torch.cat(features(model, images.subset([4]), count=1))
    torch.testing.assert_close(found[2], one[0], atol=1e-4, rtol=1e-4)


class TestDirectory:
    @pytest.fixture
    def small(self, tmp_path) -> Path:
        torch.manual_seed(0)
        model = Embedder.build(backbone="efficientnet-lite0", weights=None, pooling="average", dim=8, size=32)
        model.save(tmp_path / "model")
        return tmp_path / "model"

    def write(self, out, model, images, **options):
        embed_to(out, model, images, batch_size=2, block=4, **options)
        return finish(out, images, block=4, batch_size=2)

    def test_vectors_items_and_facts_are_written(self, small, folder, tmp_path):
        (folder / "b" / "1.png").write_bytes(b"")
        model, images = secondsight.load(small), open_images(folder)
        count, failures = self.write(tmp_path / "out", model, images)
        assert (count, len(failures)) == (9, 1)
        expected = embed(model, images, batch_size=2)
        np.testing.assert_array_equal(np.load(tmp_path / "out" / "vectors.npy"), expected.vectors)
        with (tmp_path / "out" / "items.csv").open() as handle:
            rows = list(csv.DictReader(handle))
        assert [r["path"] for r in rows] == [images.paths[i] for i in expected.indices]
        assert [r["label"] for r in rows] == ["a"] * 5 + ["b"] * 4
        facts = json.loads((tmp_path / "out" / "embedding.json").read_text())
        assert facts["model"] == model.fingerprint()
        assert (facts["embedded"], facts["failed"]) == (9, 1)
        assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [
            "embedding.json",
            "failures.jsonl",
            "items.csv",
            "vectors.npy",
        ]

    def test_what_was_stopped_goes_on_and_several_processes_write_the_same(self, small, folder, tmp_path):
        model, images = secondsight.load(small), open_images(folder)
        self.write(tmp_path / "one", model, images, half=True)
        for rank in (1, 0):
            done = embed_to(tmp_path / "two", model, images, half=True, batch_size=2, block=4, rank=rank, world_size=2)
            assert done == 2 - rank
        (block, *_) = sorted((tmp_path / "two" / "blocks").iterdir())
        block.write_bytes(block.read_bytes()[:-1] + b"x")  # damage is noticed, and the block made again
        with pytest.raises(RunError, match="1 of 3 blocks are missing"):
            finish(tmp_path / "two", images, block=4, batch_size=2)
        assert embed_to(tmp_path / "two", model, images, half=True, batch_size=2, block=4) == 1
        finish(tmp_path / "two", images, block=4, batch_size=2)
        for name in ("vectors.npy", "items.csv", "embedding.json"):
            assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
        assert np.load(tmp_path / "one" / "vectors.npy").dtype == np.float16
        assert embed_to(tmp_path / "two", model, images, half=True, batch_size=2, block=4) == 0, "nothing is left to do"

    def test_the_verb(self, small, folder, tmp_path):
        words = ["embed", str(small), str(folder), "-o", str(tmp_path / "out")]
        assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
        assert np.load(tmp_path / "out" / "vectors.npy").shape == (10, 8)

    def test_two_processes_under_torchrun_write_what_one_writes(self, small, tmp_path):
        many = tmp_path / "many"
        many.mkdir()
        for i in range(BLOCK + 70):  # more than one block
            Image.fromarray(np.full((16, 16, 3), i % 251, np.uint8)).save(many / f"{i:04d}.bmp")
        (many / f"{BLOCK + 3}.bmp").write_bytes(b"no picture")
        torchrun = [*("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")]
        for out, before in (("one", []), ("two", torchrun)):
            words = ["embed", str(small), str(many), "--workers", "1", "--runtime", "torch", "-o", str(tmp_path / out)]
            command = [sys.executable, *before, "-m", "secondsight", *words]
            done = subprocess.run(
                command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            assert f"{BLOCK + 69:,} vectors" in done.stderr
        for name in ("vectors.npy", "items.csv", "embedding.json", "failures.jsonl"):
            assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name

    def test_a_folder_of_another_model_s_vectors_is_refused(self, small, folder, tmp_path):
        images = open_images(folder)
        self.write(tmp_path / "out", secondsight.load(small), images)
        other = secondsight.load(small)
        other.config = other.config.model_copy(update={"size": 48})
        with pytest.raises(ConfigError, match="other embeddings: model"):
            self.write(tmp_path / "out", other, images)


def test_what_cannot_be_embedded_is_said(model, folder):
    with pytest.raises(ConfigError, match="deterministic transform"):
        embed(model, open_images(folder), RandomResizedCrop(32))
    for file in folder.rglob("*.png"):
        file.write_bytes(b"")
    with pytest.raises(DataError, match=r"could be read"):
        embed(model, open_images(folder), Resize(32))
