"""What every backbone promises: local features on a grid, a prefix to freeze and cache, a config that rebuilds it."""

from __future__ import annotations

import json
import tomllib

import pytest
import tomli_w
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from secondsight.backbones import BACKBONES, build
from secondsight.backbones.listing import gflops
from secondsight.errors import ConfigError, ShapeError, UnknownName

OWN = [name for name in BACKBONES if ":" not in name]
VARIANTS = [
    *((name, {}) for name in OWN),
    ("vgg16", {"last_pool": False}),
    ("resnet50", {"last_stride": 1}),
    ("efficientnet-lite0", {"head": False}),
]
LIGHT = "efficientnet-lite0"


@pytest.fixture(scope="module")
def built():
    """Each network is built once; tests that change one build their own."""
    return {(name, *options): build(name, weights=None, **options).eval() for name, options in VARIANTS}


def photos(*size: int, batch: int = 2) -> torch.Tensor:
    return torch.randint(0, 256, (batch, 3, *size), dtype=torch.uint8)


@pytest.mark.parametrize(("name", "options"), VARIANTS)
@settings(max_examples=8, deadline=None)
@given(height=st.integers(32, 300), width=st.integers(32, 300))
def test_the_grid_is_that_of_the_features_for_any_image_size(built, name, options, height, width):
    backbone = built[(name, *options)]
    h, w = backbone.grid(height, width)
    features = backbone(torch.empty(0, 3, height, width))  # no image: all the shapes, none of the work
    assert features.shape == (0, h * w, backbone.out_dim)


def test_grids_at_the_sizes_that_papers_use(built):
    grids = {key: backbone.grid(224, 224) for key, backbone in built.items()}
    assert grids[("vgg16",)] == grids[("resnet50",)] == grids[(LIGHT,)] == (7, 7)
    assert grids[("vgg16", "last_pool")] == grids[("resnet50", "last_stride")] == (14, 14)
    assert build("efficientnet-lite1", weights=None).grid(240, 240) == (8, 8)
    assert build("efficientnet-lite2", weights=None).grid(260, 260) == (9, 9)


def test_locations_run_along_rows():
    """A bright patch at the bottom left changes most the location of the last row and first column."""
    backbone = build("resnet50", weights=None, last_stride=1).eval()
    plain = torch.full((1, 3, 96, 64), 0.5)
    marked = plain.clone()
    marked[..., -16:, :16] = 1.0
    with torch.no_grad():
        change = (backbone(marked) - backbone(plain)).norm(dim=-1)[0]
    h, w = backbone.grid(96, 64)
    row, column = divmod(int(change.argmax()), w)
    assert row >= h - 2
    assert column <= 1


@pytest.mark.parametrize("name", OWN)
def test_live_part_of_frozen_part_is_forward_at_every_stage_bit_for_bit(name):
    backbone, images = build(name, weights=None), photos(64, 48)
    for stage in (None, *backbone.stages, "all"):
        backbone.freeze(stage)
        backbone.eval()
        stored = backbone.frozen_part(images)
        again = stored.clone(memory_format=torch.contiguous_format)  # what a cache on disk hands back
        assert not (stored.requires_grad and stage is not None)
        with torch.no_grad():
            assert torch.equal(backbone(images), backbone.live_part(stored))
            assert torch.equal(backbone(images), backbone.live_part(again))


def test_freezing_changes_no_feature():
    backbone, images = build(LIGHT, weights=None).eval(), photos(64, 64)
    with torch.no_grad():
        before = backbone(images)
        for stage in ("stem", "blocks3", "all"):
            backbone.freeze(stage)
            torch.testing.assert_close(backbone(images), before, rtol=0, atol=0)


def test_conv4_of_vgg_is_frozen_including_its_pooling():
    backbone = build("vgg16", weights=None, freeze="conv4")
    assert backbone.frozen_part(photos(224, 224, batch=0)).shape == (0, 512, 14, 14)
    assert [name for name, p in backbone.named_parameters() if p.requires_grad] == [
        f"features.{layer}.{kind}" for layer in (24, 26, 28) for kind in ("weight", "bias")
    ]


def test_resnet_stages_also_answer_to_the_papers_names():
    assert build("resnet50", weights=None, freeze="conv4").frozen == "layer3"


def test_everything_frozen_gives_finished_features():
    backbone = build(LIGHT, weights=None, freeze="all")
    stored = backbone.frozen_part(photos(64, 64))
    assert stored.shape == (2, 4, 1280)
    assert torch.equal(backbone.live_part(stored), stored)
    assert not any(parameter.requires_grad for parameter in backbone.parameters())


def test_features_stored_in_half_precision_come_back_in_the_networks():
    backbone = build(LIGHT, weights=None, freeze="blocks2").eval()
    stored = backbone.frozen_part(photos(64, 64))
    with torch.no_grad():
        features = backbone.live_part(stored.half())
    assert features.dtype == torch.float32
    torch.testing.assert_close(features, backbone.live_part(stored), rtol=0.05, atol=0.05)


def statistics(backbone: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in backbone.named_buffers() if "running" in name}


def changed(before: dict[str, torch.Tensor], backbone: nn.Module) -> set[str]:
    return {name.split(".")[0] for name, value in statistics(backbone).items() if not torch.equal(before[name], value)}


def test_frozen_batchnorm_stays_frozen_in_training_mode_and_the_rest_trains():
    backbone = build("resnet50", weights=None, freeze="layer2").train()
    before = statistics(backbone)
    backbone(photos(64, 64)).sum().backward()
    assert changed(before, backbone) == {"layer3", "layer4"}
    with_gradient = {name.split(".")[0] for name, p in backbone.named_parameters() if p.grad is not None}
    assert with_gradient == {"layer3", "layer4"}


def test_freeze_norm_freezes_every_batchnorm_and_nothing_else():
    backbone = build("resnet50", weights=None, freeze_norm=True).train()
    before = statistics(backbone)
    backbone(photos(64, 64)).sum().backward()
    assert changed(before, backbone) == set()
    trained = {name for name, p in backbone.named_parameters() if p.grad is not None}
    assert trained == {name for name, _ in backbone.named_parameters() if "conv" in name or "downsample.0" in name}


def test_a_model_around_it_cannot_thaw_it_by_train():
    model = nn.Sequential(build(LIGHT, weights=None, freeze="blocks0"), nn.Identity())
    model.eval().train()
    assert not model[0]._bn0.training
    assert model[0]._bn1.training


def test_freezing_can_be_undone():
    backbone = build(LIGHT, weights=None, freeze="all")
    backbone.freeze(None)
    assert all(parameter.requires_grad for parameter in backbone.parameters())
    assert backbone.frozen is None
    assert "freeze" not in backbone.config


def test_without_freezing_gradients_reach_the_image():
    image = torch.rand(1, 3, 64, 64, requires_grad=True)
    build(LIGHT, weights=None).eval()(image).sum().backward()
    assert image.grad is not None
    assert image.grad.abs().sum() > 0


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_config_rebuilds_the_network_through_toml_and_json(built, name, options):
    backbone = built[(name, *options)]
    config = json.loads(json.dumps(tomllib.loads(tomli_w.dumps(backbone.config))))
    again = build(**config, weights=None).eval()
    again.load_state_dict(backbone.state_dict())
    images = photos(64, 64)
    with torch.no_grad():
        assert torch.equal(again(images), backbone(images))
    assert again.config == backbone.config
    assert again.stages == backbone.stages


def test_config_remembers_what_was_frozen_and_another_preprocessing():
    given_ = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "channels": "BGR", "range": 1.0, "size": 96}
    backbone = build(LIGHT, weights="random", freeze="blocks1", freeze_norm=True, preprocessing=given_)
    again = build(**backbone.config, weights=None)
    assert (again.frozen, again.freeze_norm, again.preprocessing) == ("blocks1", True, backbone.preprocessing)
    assert again.preprocessing.as_dict() == given_


def test_the_prefix_fingerprint_changes_with_all_that_the_prefix_depends_on_and_nothing_else():
    def make(**changes):
        torch.manual_seed(7)
        return build(LIGHT, weights=None, **{"freeze": "blocks1", **changes})

    assert make().prefix_name == f"{LIGHT} up to blocks1"
    assert make(freeze="head").prefix_name == make(freeze="all").prefix_name == LIGHT
    original = make().prefix_fingerprint()
    assert make().prefix_fingerprint() == original
    assert len(original) == 64

    beyond = make()
    beyond._conv_head.weight.data += 1
    assert beyond.train().prefix_fingerprint() == original
    without_head = make(head=False)
    without_head.load_state_dict(make().state_dict(), strict=False)
    assert without_head.prefix_fingerprint() == original
    assert make(freeze_norm=True).prefix_fingerprint() == original

    within = make()
    within._bn0.running_mean += 1e-6
    pixels = {"mean": [127, 127, 127], "std": [127, 127, 127], "range": 255}
    others = [
        within,
        make(freeze="blocks2"),
        make(freeze="all"),
        make(preprocessing=pixels),
        make(freeze="all", head=False),
    ]
    assert len({original, *(other.prefix_fingerprint() for other in others)}) == 1 + len(others)


def test_convolution_weights_and_activations_are_channels_last():
    backbone = build("vgg16", weights=None)
    assert backbone.features[2].weight.is_contiguous(memory_format=torch.channels_last)
    assert backbone.frozen_part(photos(64, 64)).is_contiguous(memory_format=torch.channels_last)
    assert backbone(photos(64, 64)).is_contiguous()


def test_half_and_double_precision_networks_take_the_same_images():
    for dtype in (torch.float64, torch.bfloat16):
        backbone = build(LIGHT, weights=None).to(dtype).eval()
        with torch.no_grad():
            assert backbone(photos(64, 64)).dtype == dtype


def test_it_compiles_to_one_graph():
    backbone, images = build("vgg16", weights=None, freeze="conv1").eval(), photos(32, 32)
    with torch.no_grad():
        compiled = torch.compile(backbone, backend="eager", fullgraph=True)(images)
        torch.testing.assert_close(compiled, backbone(images))


def test_it_exports_with_its_preprocessing():
    backbone, images = build(LIGHT, weights=None, freeze="blocks1").eval(), photos(64, 64)
    with torch.no_grad():
        exported = torch.export.export(backbone, (images,)).module()
        torch.testing.assert_close(exported(images), backbone(images))


def test_random_weights_neither_explode_nor_vanish():
    for name in OWN:
        backbone = build(name, weights=None).train()  # batch statistics: what training starts from
        with torch.no_grad():
            spread = backbone(photos(64, 64, batch=4)).std()
        assert 1e-3 < spread < 1e3, name


@pytest.mark.parametrize("name", OWN)
def test_counted_operations_are_those_of_torchs_counter(name, monkeypatch):
    monkeypatch.setattr("secondsight.backbones.vgg.WIDE", 10**9)  # counted as written, not as Winograd shortens it
    backbone = build(name, weights=None)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        backbone.eval()(photos(96, 96, batch=1))
    assert gflops(backbone, 96) == pytest.approx(counter.get_total_flops() / 1e9, rel=1e-6)


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(UnknownName, match="did you mean 'resnet50'"):
        build("resnet5", weights=None)
    with pytest.raises(UnknownName, match="stage of vgg16 'conv6'; did you mean 'conv"):
        build("vgg16", weights=None, freeze="conv6")
    with pytest.raises(UnknownName, match="option of vgg16 'last_pol'; did you mean 'last_pool'"):
        build("vgg16", weights=None, last_pol=False)
    with pytest.raises(UnknownName, match="version of resnet50 'v2'"):
        build("resnet50", weights=None, version="v2")
    with pytest.raises(UnknownName, match="unknown backbone 'timm:'"):
        build("timm:")
    with pytest.raises(ConfigError, match="last_stride must be 1 or 2, got 3"):
        build("resnet50", weights=None, last_stride=3)


def test_an_image_too_small_for_the_network_is_an_error_not_an_empty_answer():
    with pytest.raises(ShapeError, match="vgg16: an image of 31×64 pixels is too small"):
        build("vgg16", weights=None)(photos(31, 64))
