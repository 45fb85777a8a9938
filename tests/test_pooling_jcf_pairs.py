"""JCF of the last layer beside the second moment of the layer before it."""

from __future__ import annotations

import pytest
import torch

from secondsight import Embedder, backbones
from secondsight.errors import ConfigError
from secondsight.pooling import build

LAST, BEFORE = 12, 6


def fitted(**options):
    torch.manual_seed(0)
    made = build("jcf-pairs-3-2", in_dim=LAST + BEFORE, out_dim=8, before=BEFORE, width=10, pairs=9, axes=5, **options)
    made.fit(torch.randn(40, 7, LAST + BEFORE))
    return made.eval()


@torch.no_grad()
def test_it_is_two_sums_with_a_root_each_and_one_matrix_over_both():
    pool, x = fitted(), torch.randn(2, 7, LAST + BEFORE)
    for image, z in zip(x, pool(x), strict=True):
        first = torch.zeros(10)
        for location in image[:, :LAST] @ pool.last:
            first += pool.first.summands(location[None, None])[0, 0]
        moment = torch.zeros(9)
        for y in image[:, LAST:] @ pool.before:
            moment += (pool.second.u[0].T @ y) * (pool.second.v[0].T @ y)
        both = torch.cat([pool.first.ending(first[None])[0], pool.balance * pool.second.ending(moment[None])[0]])
        torch.testing.assert_close(z, both @ pool.ending.weight / 19**0.5, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_second_part_is_the_second_moment_of_the_layer_before():
    """All of its entries, none left out, have the inner products of the whole matrices."""
    pool = build("jcf-pairs", in_dim=LAST + BEFORE, out_dim=8, before=BEFORE, axes=BEFORE, power=1.0)
    pool.fit(torch.randn(40, 7, LAST + BEFORE))
    x = torch.randn(5, 7, LAST + BEFORE)
    z = pool.kept_sums(x)[:, pool.first.out_dim :]
    moments = torch.einsum("bld,ble->bde", x[..., LAST:], x[..., LAST:]).flatten(1)
    cosines = [torch.nn.functional.normalize(each, dim=1) for each in (z, moments)]
    torch.testing.assert_close(cosines[0] @ cosines[0].T, cosines[1] @ cosines[1].T, rtol=1e-3, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("saliency", [0.0, 1.0, 2.0])
def test_a_location_counts_by_the_norm_of_its_last_layer(saliency):
    """Said of the sums before their roots: products of a location times |x|^s, up to one factor for all locations."""
    pool, x = fitted(saliency=saliency, power=1.0), torch.randn(1, 7, LAST + BEFORE)
    alone = torch.stack([pool.kept_sums(x[:, [i]])[0] for i in range(7)])
    torch.testing.assert_close(pool.kept_sums(x)[0], alone.sum(0), rtol=1e-4, atol=1e-5)
    norm = x[0, :, :LAST].norm(dim=1)
    pool.saliency = 0.0
    plain = torch.stack([pool.kept_sums(x[:, [i]])[0] for i in range(7)])
    torch.testing.assert_close(alone, plain * (norm / LAST**0.5)[:, None] ** saliency, rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("saliency", [0.0, 1.0])
def test_parts_add_up_where_locations_count_by_their_norm(saliency):
    pool, x = fitted(saliency=saliency), torch.randn(2, 7, LAST + BEFORE)
    x[:, 3] = 0  # of a location where nothing is, too
    torch.testing.assert_close(pool.local(x).sum(1), pool(x), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_the_second_part_has_its_weight_in_length():
    pool, x = fitted(weight=0.4), torch.randn(40, 7, LAST + BEFORE)
    pool.fit(x)
    first, second = pool.kept_sums(x).split([10, 9], 1)
    assert (second.square().sum() / first.square().sum()).sqrt().item() == pytest.approx(0.4, rel=1e-3)


def test_codewords_are_those_of_the_last_layer():
    pool, x = fitted(), torch.randn(2, 7, LAST + BEFORE)
    changed = x.clone()
    changed[..., LAST:] = 0
    assert torch.equal(pool.assignments(x)[0], pool.assignments(changed)[0])
    assert len(pool.codebooks) == 1


def test_gradients_are_right():
    pool = fitted(assign="soft").double()
    x = torch.randn(2, 3, LAST + BEFORE, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(pool, x)


@torch.no_grad()
def test_the_network_gives_the_last_layer_and_the_one_before_it():
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    both = backbones.build("efficientnet-lite0", weights="random", both=True).eval()
    weights = both.state_dict()
    for options, channels in (({}, slice(0, 1280)), ({"head": False}, slice(1280, None))):
        one = backbones.build("efficientnet-lite0", weights="random", **options).eval()
        one.load_state_dict({name: tensor for name, tensor in weights.items() if name in one.state_dict()})
        torch.testing.assert_close(one(images), both(images)[..., channels])
    for stage in ("stem", "blocks6", "all"):
        frozen = backbones.build("efficientnet-lite0", weights="random", both=True, freeze=stage).eval()
        frozen.load_state_dict(weights)
        torch.testing.assert_close(frozen(images), both(images))


def test_a_cache_of_one_layer_is_not_that_of_two():
    alone, both = (backbones.build("efficientnet-lite0", weights="random", freeze="all", both=b) for b in (False, True))
    both.load_state_dict(alone.state_dict())
    assert alone.prefix_fingerprint() != both.prefix_fingerprint()


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="before must be between 1 and 17 of the 18 channels, got 18"):
        build("jcf-pairs", in_dim=18, out_dim=8, before=18)
    with pytest.raises(ConfigError, match="head = true"):
        backbones.build("efficientnet-lite0", weights="random", both=True, head=False)


def test_a_model_of_it_is_saved_and_loaded(tmp_path):
    import secondsight

    model = Embedder.build(
        weights="random", backbone_options={"both": True}, pooling="jcf-pairs-4-2", dim=16, size=64
    ).eval()
    model.save(tmp_path / "m")
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    assert torch.equal(secondsight.load(tmp_path / "m")(images), model(images))


def test_a_network_of_one_layer_is_refused_and_the_second_layers_size_is_known():
    with pytest.raises(ConfigError, match=r"efficientnet-lite0 gives one: .*both = true"):
        Embedder.build(weights="random", pooling="jcf-pairs-4-2", dim=16)
    for name, channels in (("efficientnet-lite0", 320), ("efficientnet-lite2", 352)):
        made = Embedder.build(
            backbone=name, weights="random", backbone_options={"both": True}, pooling="jcf-pairs", dim=16
        )
        assert len(made.pooling.before) == channels
