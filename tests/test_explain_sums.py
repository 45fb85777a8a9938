"""Links add up to the similarity: for every additive pooling, ending, mask, view and way to normalise."""

from __future__ import annotations

import copy
import inspect

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from explain_models import ADDITIVE, ENDINGS, GRID, features, image, model
from secondsight import explain
from secondsight.explain import algebra, from_features
from secondsight.explain.geometry import Frame
from secondsight.pooling import POOLINGS, family

PLACES = GRID[0] * GRID[1]


def embedding(model, x, mask=None):
    """The model's own road from features to the unit vector: the oracle."""
    flipped = [m if m is None else m.view(GRID).flip(1).flatten() for m in (mask,)]
    masks = [mask, flipped[0]]
    views = [model.pool(f[None], None if m is None else m[None], grid=GRID) for f, m in zip(x, masks, strict=False)]
    return model.normalise(torch.stack(views).mean(0))[0]


def check(why, expected, tolerance=1e-5):
    assert why.similarity == pytest.approx(expected, abs=tolerance)
    assert why.links.sum(dtype="f8") == pytest.approx(why.similarity, abs=tolerance)
    assert why.links.shape == (PLACES, PLACES)
    torch.testing.assert_close(
        torch.from_numpy(why.a).flatten(), torch.from_numpy(why.links).double().sum(1), rtol=0, atol=tolerance
    )
    torch.testing.assert_close(
        torch.from_numpy(why.b).flatten(), torch.from_numpy(why.links).double().sum(0), rtol=0, atol=tolerance
    )
    assert why.effect_a.sum() == pytest.approx(0, abs=tolerance)
    assert why.effect_b.sum() == pytest.approx(0, abs=tolerance)


@pytest.mark.parametrize("name", ADDITIVE)
@torch.no_grad()
def test_links_of_every_additive_pooling_add_up_to_the_models_own_cosine(name):
    m = model(name)
    a, b = image(m, 1), image(m, 2)
    check(explain.pair(m, a, b), float(embedding(m, a.features) @ embedding(m, b.features)))


def test_every_family_with_local_contributions_is_among_them():
    """A pooling that becomes additive, or a new one, is tested here or this fails."""
    families = {family(name) for name in ADDITIVE}
    for name, cls in POOLINGS.items():
        options = {"normalise": "none"} if "normalise" in inspect.signature(cls.__init__).parameters else {}
        assert bool(cls.additive or options) == (name in families), name


@given(
    name=st.sampled_from(list(ADDITIVE)),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    ending=st.integers(0, len(ENDINGS) - 1),
    mirror=st.booleans(),
    keep=st.booleans(),
    parts=st.booleans(),
    seed=st.integers(0, 1000),
    masks=st.tuples(*[st.none() | st.lists(st.booleans(), min_size=PLACES, max_size=PLACES).filter(any)] * 2),
)
@settings(max_examples=80, deadline=None)
@torch.no_grad()
def test_every_pooling_ending_view_mask_part_and_dtype_keeps_the_sum(
    name, dtype, ending, mirror, keep, parts, seed, masks
):
    m = model(name, ending=ending if name.startswith("jcf") else 0, mirror=mirror, keep=keep, parts=parts)
    m = m if dtype == torch.float32 else copy.deepcopy(m).to(dtype)
    real = [None if mask is None else torch.tensor(mask) for mask in masks]
    a, b = image(m, seed, mask=real[0], dtype=dtype), image(m, seed + 1, mask=real[1], dtype=dtype)
    why = explain.pair(m, a, b)
    # float32 sums in another order, and a power near zero, leave the oracle a little to itself
    check(why, float(embedding(m, a.features, real[0]) @ embedding(m, b.features, real[1])), 2e-5)
    for here, mask, values in ((a, real[0], why.a), (b, real[1], why.b)):
        if mask is not None:
            assert (values.ravel()[~mask.numpy()] == 0).all()
            assert (here.scaled[~mask] == 0).all()


@torch.no_grad()
def test_principal_axes_whose_mean_is_taken_off_share_it_out():
    m = model("bp", projection="pca")
    a, b = image(m, 1), image(m, 2)
    check(explain.pair(m, a, b), float(embedding(m, a.features) @ embedding(m, b.features)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_double_precision_models_are_explained_to_double_precision(dtype):
    m = copy.deepcopy(model("jcf-4-2", ending=4)).to(dtype)
    a, b = (from_features(m, features(seed).to(dtype), frame=Frame(GRID)) for seed in (1, 2))
    why = explain.pair(m, a, b)
    expected = float(embedding(m, a.features) @ embedding(m, b.features))
    assert why.a.sum() == pytest.approx(expected, abs=1e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("name", ADDITIVE)
def test_an_image_with_itself_is_symmetric_and_its_effects_are_zero(name):
    m = model(name, ending=4 if name.startswith("jcf") else 0)
    a = image(m, 3)
    why = explain.pair(m, a, a)
    assert why.similarity == pytest.approx(1, abs=1e-6)
    assert (why.links == why.links.T).all()
    assert abs(why.effect_a).max() < 1e-9  # nothing can be more like it


def test_the_second_views_map_is_turned_back():
    """The mirror image's rightmost place is the image's leftmost one."""
    m = model("average", mirror=True)
    x = torch.zeros(2, PLACES, 320)
    x[0, 0] = x[1, 3] = torch.rand(320)  # first row: leftmost, and rightmost of the mirror image
    p = from_features(m, x, frame=Frame(GRID))
    found = explain.pair(m, p, p).a
    assert found[0, 0] == pytest.approx(1)
    assert abs(found.ravel()[1:]).max() < 1e-12


@pytest.mark.parametrize(
    ("name", "ending", "mirror", "parts", "projection"),
    [
        ("jcf-4", 4, True, False, ""),
        ("jcf-4-2", 2, False, True, ""),
        ("jcf-4-2", 1, True, True, ""),
        ("average", 0, True, False, ""),
        ("bp", 0, False, False, "pca"),
        ("hadamard", 0, False, False, ""),
        ("sta-2", 0, True, False, ""),
        ("fbn", 0, False, False, ""),
        ("lrbp", 0, False, True, ""),
        ("cbp-rm-32", 0, True, False, ""),
        ("netvlad-3", 0, False, False, ""),
        ("fisher-3", 0, False, False, ""),
        ("mfa-fv-3-2", 0, False, False, ""),
        ("vlad-3", 0, True, True, "pca"),
    ],
)
@torch.no_grad()
def test_leaving_a_place_out_is_pooling_without_it(name, ending, mirror, parts, projection):
    m = model(name, ending=ending, mirror=mirror, parts=parts, projection=projection)
    mask = torch.ones(PLACES, dtype=torch.bool)
    mask[5] = False
    a, b = image(m, 1, mask=mask), image(m, 2)
    why = explain.pair(m, a, b)
    for place in range(PLACES):
        without = mask.clone()
        without[place] = False
        expected = why.similarity - float(embedding(m, a.features, without) @ b.unit.float())
        assert why.left_out_a.ravel()[place] == pytest.approx(expected if mask[place] else 0, abs=2e-5)


def test_effects_are_the_slope_of_removal():
    """A place taken away by a millionth changes the cosine by a millionth of its effect (no power: z is linear)."""
    for parts in (False, True):
        m = model("jcf-4", parts=parts)
        a, b = image(m, 1), image(m, 2)
        why = explain.pair(m, a, b)
        for place in (0, 7):
            z = a.z - 1e-6 * a.contributions[place]
            u = algebra.unit_scale(z, m.config.normalise) * z
            assert (why.similarity - float(u @ b.unit)) / 1e-6 == pytest.approx(why.effect_a.ravel()[place], abs=1e-5)


def test_codewords_share_out_the_similarity():
    m = model("jcf-4", ending=1, mirror=True)
    why = explain.pair(m, image(m, 1), image(m, 2))
    assert why.codewords.shape == (4,)
    assert why.codewords.sum() == pytest.approx(why.similarity, abs=1e-6)
    assert why.codeword_links.sum() == pytest.approx(why.similarity, abs=1e-6)
    assert explain.pair(model("average"), image(model("average"), 1), image(model("average"), 2)).codewords is None


def test_cancellation_is_told_in_words():
    a = torch.tensor([[5.0, -4.9]]).double()
    assert algebra.cancellation(a) == pytest.approx(99)
    m = model("jcf-4")
    why = explain.pair(m, image(m, 1), image(m, 2))
    why.__dict__["cancellation"] = 4.9
    assert not any("cancels" in line for line in why.words())
    why.__dict__["cancellation"] = 5.1
    assert any("5.1 times" in line for line in why.words())


def test_a_region_and_the_rest_add_up_to_the_whole():
    m = model("jcf-4", ending=4)
    a, b = image(m, 1), image(m, 2)
    box, rest = (0, 0, 0.5, 1), (0.5, 0, 1, 1)
    z = [a.frame.coverage(where).ravel() @ a.scaled.numpy() for where in (box, rest)]
    assert z[0] @ b.vector + z[1] @ b.vector == pytest.approx(explain.pair(m, a, b).similarity, abs=1e-6)
    whole = a.region((0, 0, 1, 1), method="sum")
    assert float(whole @ a.vector) == pytest.approx(1, abs=1e-6)
    assert float(a.region((0, 0, 1, 1), method="masked") @ a.vector) == pytest.approx(1, abs=1e-6)
    assert (
        float(a.region(box, method="masked") @ a.region(box, method="sum")) < 1
    )  # another vector: the power is another


def test_zeros_have_no_similarity_and_no_error():
    m = model("jcf-4", ending=4)
    nothing = from_features(m, features(1), frame=Frame(GRID), mask=torch.zeros(PLACES, dtype=torch.bool))
    why = explain.pair(m, nothing, image(m, 2))
    assert why.similarity == 0
    assert (why.links == 0).all()
