"""Pairs of real pictures, as a user asks for them: from files to why.png and why.html."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from typer.testing import CliRunner

from explain_models import image, model, network
from secondsight import Embedder, explain
from secondsight.cli.main import app
from secondsight.data.loading.decode import DecodeError
from secondsight.data.loading.transforms import Resize, ResizeCrop
from secondsight.errors import ConfigError, DataError, SecondsightError, ShapeError, UnknownName
from secondsight.explain.drawing import overlay


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> list[Path]:
    """A flower and a temple, one wide, one high; the second file's name is an attack on a page."""
    folder = tmp_path_factory.mktemp("pictures")
    flower, temple = (Image.fromarray(load_sample_image(f"{name}.jpg")) for name in ("flower", "china"))
    paths = [folder / "flower.jpg", folder / "<script>alert(1)<|script>.png"]
    flower.resize((320, 213)).save(paths[0], quality=95)
    temple.resize((240, 160)).transpose(Image.Transpose.ROTATE_90).save(paths[1])
    return paths


@pytest.fixture(scope="module")
def birds() -> Embedder:
    """Two views, a crop, a codebook, a power: everything at once, on a random network of 4×4 places."""
    torch.manual_seed(0)
    made = Embedder.build(
        backbone=network(),
        pooling="jcf-4-2",
        dim=16,
        reduce=8,
        size=128,
        transform="resize-crop",
        mirror=True,
        pooling_options={"power": 0.5, "whiten": 0.25},
    ).eval()
    made.fit(network()(torch.randint(0, 256, (8, 3, 128, 128), dtype=torch.uint8)))
    return made


@torch.no_grad()
def test_the_similarity_is_the_one_that_the_model_gives_for_the_images(birds, pictures):
    why = explain.pair(birds, *pictures)
    look = ResizeCrop(128)
    z = birds(torch.stack([look(here.pixels) for here in (why.places_a, why.places_b)]))
    assert why.similarity == pytest.approx(float(z[0] @ z[1]), abs=1e-5)
    assert why.exact
    assert why.map("a", on="shown").shape == (128, 128)
    assert why.map("b", on="original").shape == why.places_b.pixels.shape[:2]
    for kind in why.kinds:
        whole = why.map("a", kind, on="original")
        (height, width), (left, top, right, bottom) = whole.shape, why.places_a.frame.seen
        hair = 1e-9
        x, y = (np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height
        inside = np.outer((y > top + hair) & (y < bottom - hair), (x > left + hair) & (x < right - hair))
        beside = ~np.outer((y > top - hair) & (y < bottom + hair), (x > left - hair) & (x < right + hair))
        assert whole[inside].all()
        assert beside.any()
        assert not whole[beside].any()  # the network did not look there


def test_files_bytes_arrays_images_and_places_are_the_same_picture(birds, pictures):
    pixels = np.array(Image.open(pictures[1]))
    given = [pictures[1], str(pictures[1]), pictures[1].read_bytes(), pixels, Image.open(pictures[1])]
    vectors = [explain.places(birds, picture).vector for picture in given]
    for vector in vectors[1:]:
        np.testing.assert_allclose(vector, vectors[0], atol=1e-6)
    places = explain.places(birds, given[0])
    assert explain.pair(birds, places, given[3]).similarity == pytest.approx(1, abs=1e-6)


def test_a_transparent_picture_lies_on_white_however_it_is_given(birds, tmp_path):
    clear = Image.new("RGBA", (150, 150), (200, 30, 30, 0))
    clear.paste((20, 120, 60, 255), (30, 40, 110, 120))
    clear.save(tmp_path / "clear.png")
    np.testing.assert_array_equal(
        explain.places(birds, clear).vector, explain.places(birds, tmp_path / "clear.png").vector
    )


def test_the_png_is_a_picture_with_both_colours(birds, pictures, tmp_path):
    others = np.random.default_rng(0).standard_normal((30, birds.dim)).astype(np.float32)
    why = explain.pair(birds, *pictures, others=others / np.linalg.norm(others, axis=1, keepdims=True))
    for kind in explain.KINDS:
        why.save(tmp_path / "why.png", kind=kind)
        drawn = np.array(Image.open(tmp_path / "why.png").convert("RGB")).astype(int)
        assert min(drawn.shape[:2]) > 400
        orange, blue = ((drawn[..., a] > drawn[..., b] + 60).mean() for a, b in ((0, 2), (2, 0)))
        if kind == "distinct":  # none is negative, and few places give what others would not get
            assert orange > 0.002
        else:
            assert min(orange, blue) > 0.005


def test_the_png_keeps_the_shape_of_its_pictures(birds, tmp_path):
    wide, tall = np.full((60, 300, 3), 120, np.uint8), np.full((300, 60, 3), 120, np.uint8)
    why = explain.pair(birds, wide, tall)
    for here in (why.places_a, why.places_b):
        made = overlay(here, np.zeros(here.grid), height=100)
        height, width = here.frame.size
        assert made.width / made.height == pytest.approx(width / height, rel=0.03)
        assert made.height <= 100
        assert made.width <= 200


def test_the_page_is_one_file_and_names_cannot_break_out(birds, pictures, tmp_path):
    explain.pair(birds, *pictures).save(tmp_path / "why.html")
    text = (tmp_path / "why.html").read_text("utf-8")
    assert "<script>alert" not in text
    assert html.escape("<script>alert(1)<|script>.png") in text
    assert not re.search(r"""(?:src|href)=["']?(?:https?:)?//""", text)
    assert "default-src 'none'" in text
    assert len(re.findall("data:image/jpeg;base64", text)) == 2


def test_the_dictionary_is_json_and_keeps_negative_links(birds, pictures):
    why = explain.pair(birds, *pictures)
    found = json.loads(json.dumps(why.to_dict(most=20)))
    assert found["similarity"] == pytest.approx(why.similarity, abs=1e-6)
    assert len(found["links"]) == 20
    sizes = [abs(value) for *_, value in found["links"]]
    assert sizes == sorted(sizes, reverse=True)
    assert np.sum(found["a"]["share"]) == pytest.approx(why.similarity, abs=1e-4)
    every = why.strongest(10**9)
    assert len(every) == why.links.size
    assert min(value for *_, value in every) < 0 < max(value for *_, value in every)


def test_links_are_never_listed_with_one_sign_alone_nor_drawn_side_by_side():
    m = model("jcf-4", ending=4)
    why = explain.pair(m, image(m, 1), image(m, 2))
    why.links[:] = np.linspace(1, 2, why.links.size).reshape(why.links.shape)
    why.links[3, 5] = -0.5
    why.links[0, 0] = -0.1
    listed = why.strongest(10)
    assert [value for *_, value in listed][-2:] == [-0.5, pytest.approx(-0.1)]
    assert listed[0][:2] == (11, 11)
    spread = why.strongest(10, spread=True)
    ends = np.array([(*divmod(i, 4), *divmod(j, 4)) for i, j, value in spread if value > 0])
    apart = np.abs(ends[:, None] - ends[None]).max(-1) + 9 * np.eye(len(ends))
    assert apart.min() >= 2
    assert sum(value < 0 for *_, value in spread) == 2


@pytest.mark.parametrize(("name", "close"), [("gem", True), ("max", True), ("isqrt-cov", True), ("netvlad-2", False)])
def test_poolings_that_are_no_sum_are_approximated_and_say_so(name, close):
    pytest.importorskip("captum")
    m = model(name)
    a, b = image(m, 1), image(m, 2)
    with torch.no_grad():
        z = [m.normalise(m.pool(p.features, grid=p.grid))[0] for p in (a, b)]
    why = explain.pair(m, a, b)
    assert not why.exact
    assert why.links is None
    assert why.similarity == pytest.approx(float(z[0] @ z[1]), abs=1e-5)
    misses = [why.similarity - values.sum() for values in (why.a, why.b)]
    assert why.error == pytest.approx(max(misses, key=abs))
    assert any("approximation" in line for line in why.words())
    if close:  # homogeneous: nothing is lost on the way from no features
        assert abs(why.error) < 1e-3


def test_integrated_gradients_of_an_additive_linear_pooling_are_its_shares():
    """An independent way to the same numbers: averaging is linear, so captum must find the exact sum."""
    pytest.importorskip("captum")
    from secondsight.explain.gradients import integrated

    m = model("average", mirror=True)
    a, b = image(m, 1), image(m, 2)
    np.testing.assert_allclose(integrated(a, b.unit), explain.pair(m, a, b).a, atol=1e-6)


def test_places_of_another_model_are_refused():
    a = image(model("jcf-4"), 1)
    with pytest.raises(ConfigError, match="another model"):
        explain.pair(model("jcf-4", ending=1), a, a)


def test_what_is_no_picture_is_refused(birds, tmp_path, pictures):
    (tmp_path / "empty.jpg").write_bytes(b"")
    with pytest.raises(DecodeError, match=r"empty\.jpg"):
        explain.places(birds, tmp_path / "empty.jpg")
    with pytest.raises(ShapeError, match="uint8"):
        explain.places(birds, np.zeros((4, 4)))
    with pytest.raises(DataError, match="not a int"):
        explain.places(birds, 3)
    places = explain.places(birds, pictures[0])
    with pytest.raises(ConfigError, match="no place that the model looked at"):
        places.region((0.0, 0.0, 0.01, 0.01))  # the network saw the centre
    with pytest.raises(ConfigError, match="no place that the model looked at"):
        places.region(np.zeros((20, 20), bool))
    with pytest.raises(UnknownName, match="did you mean 'crop'"):
        places.region((0, 0, 1, 1), method="crob")
    with pytest.raises(ConfigError, match="sum over locations"):
        image(model("gem"), 1).region((0, 0, 1, 1), method="sum")


def test_a_kind_or_a_suffix_that_does_not_exist_is_refused(birds, pictures, tmp_path):
    why = explain.pair(birds, *pictures)
    for call in (
        lambda: why.save(tmp_path / "why.gif"),
        lambda: why.save(tmp_path / "why.png", kind="heat"),
        lambda: why.map("c"),
        lambda: why.map("a", "heat"),
        lambda: why.map("a", on="moon"),
    ):
        with pytest.raises(SecondsightError):
            call()


def test_a_crop_is_the_vector_of_the_cropped_picture(birds, pictures):
    places = explain.places(birds, pictures[1])
    high, wide = places.pixels.shape[:2]
    part = places.pixels[: high // 2, wide // 2 :]
    found = places.region((0.5, 0.0, 1.0, 0.5), method="crop")
    np.testing.assert_allclose(found, explain.places(birds, part, transform=Resize(128)).vector, atol=1e-6)


def test_the_verb_writes_a_page_and_says_the_sum(birds, pictures, tmp_path):
    birds.save(tmp_path / "model")
    out = tmp_path / "why.html"
    done = CliRunner().invoke(app, ["explain", *map(str, pictures), "--model", str(tmp_path / "model"), "-o", str(out)])
    assert done.exit_code == 0, done.output
    assert "Similarity" in done.output
    assert out.is_file()
    late = CliRunner().invoke(app, ["explain", *map(str, pictures), "--model", "nowhere", "-o", str(tmp_path)])
    assert isinstance(late.exception, ConfigError)  # before the model is looked for
