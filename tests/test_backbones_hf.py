"""``hf:``: tiny models of transformers, saved to a directory as any model of the hub would be."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch
import transformers as hf
from safetensors.torch import save_file

import secondsight
from secondsight import pooling
from secondsight.backbones import Preprocessing, build
from secondsight.errors import ConfigError, MissingExtra, ShapeError, UnknownName, WeightsError
from secondsight.model import Embedder

TINY = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 56, "patch_size": 14}
SMALL = {"hidden_sizes": [8, 8, 16, 24], "depths": [1, 1, 2, 1]}
CLIP = {
    "vision_config": {**TINY, "intermediate_size": 32, "projection_dim": 8},
    "text_config": {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
                    "vocab_size": 50, "bos_token_id": 0, "eos_token_id": 1, "projection_dim": 8},
}  # fmt: skip
PROCESSOR = {
    "do_normalize": True,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.2, 0.3, 0.4],
    "size": {"height": 56, "width": 56},
}
MODELS = {
    "vit": lambda: hf.ViTModel(hf.ViTConfig(**TINY, intermediate_size=32)),
    "dinov2": lambda: hf.Dinov2Model(hf.Dinov2Config(**TINY)),
    "registers": lambda: hf.Dinov2WithRegistersModel(hf.Dinov2WithRegistersConfig(**TINY, num_register_tokens=4)),
    "clip": lambda: hf.CLIPModel(hf.CLIPConfig(**CLIP, projection_dim=8)),
    "swin": lambda: hf.SwinModel(
        hf.SwinConfig(image_size=56, patch_size=2, embed_dim=8, depths=[1, 1, 1], num_heads=[1, 1, 2], window_size=7)
    ),
    "convnext": lambda: hf.ConvNextModel(hf.ConvNextConfig(**SMALL)),
    "resnet": lambda: hf.ResNetModel(hf.ResNetConfig(embedding_size=8, **SMALL)),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A function that saves a tiny model as the hub would hold it, once, and gives its directory."""
    root, done = tmp_path_factory.mktemp("hub"), {}

    def save(kind: str) -> Path:
        if kind not in done:
            torch.manual_seed(0)
            MODELS[kind]().save_pretrained(root / kind)
            (root / kind / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
            done[kind] = root / kind
        return done[kind]

    return save


def photos(*size: int) -> torch.Tensor:
    return torch.randint(0, 256, (2, 3, *size), dtype=torch.uint8)


def theirs(directory: Path, images: torch.Tensor) -> torch.Tensor:
    """What transformers itself answers, with its pixels prepared by hand."""
    mean, std = (torch.tensor(PROCESSOR[key])[:, None, None] for key in ("image_mean", "image_std"))
    network = hf.AutoModel.from_pretrained(directory).eval()
    with torch.no_grad():
        return getattr(network, "vision_model", network)(pixel_values=(images / 255 - mean) / std).last_hidden_state


@pytest.mark.parametrize(("kind", "extra"), [("vit", 1), ("dinov2", 1), ("registers", 5), ("clip", 1), ("swin", 0)])
def test_transformers_yield_their_patch_tokens_and_no_others(saved, kind, extra):
    backbone, images = build(f"hf:{saved(kind)}").eval(), photos(56, 56)
    expected = theirs(saved(kind), images)[:, extra:]
    with torch.no_grad():
        features = backbone(images)
    torch.testing.assert_close(features, expected, rtol=1e-4, atol=1e-4)
    h, w = backbone.grid(56, 56)
    assert features.shape == (2, h * w, backbone.out_dim)


@pytest.mark.parametrize(("kind", "extra"), [("vit", 1), ("registers", 5), ("clip", 1)])
def test_the_class_token_can_stand_beside_every_patch(saved, kind, extra):
    backbone, images = build(f"hf:{saved(kind)}", class_token="beside").eval(), photos(56, 56)
    expected = theirs(saved(kind), images)
    with torch.no_grad():
        patch, beside = backbone(images).chunk(2, dim=-1)
        other = backbone(photos(70, 84))
    torch.testing.assert_close(patch, expected[:, extra:], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(beside, expected[:, :1].expand_as(beside), rtol=1e-4, atol=1e-4)
    assert other.shape == (2, 5 * 6, backbone.out_dim)
    again = build(**json.loads(json.dumps(backbone.config)), weights=None)
    assert (again.out_dim, again.class_token) == (backbone.out_dim, "beside")


def test_a_product_of_patch_and_class_token_is_within_reach_of_jcf(saved):
    """z = Σ ⟨u, patch⟩ ⟨v, class⟩: the class token given to the second factor."""
    backbone = build(f"hf:{saved('dinov2')}", class_token="beside").eval()
    with torch.no_grad():
        x = backbone(photos(56, 56))
    d = x.shape[-1] // 2
    jcf = pooling.build("jcf", in_dim=2 * d, out_dim=4)
    with torch.no_grad():
        jcf.u[:, d:], jcf.v[:, :d] = 0, 0
        patch, beside = x.split(d, dim=-1)
        expected = ((patch @ jcf.u[0, :d]).sum(1)) * (beside[:, 0] @ jcf.v[0, d:])
        torch.testing.assert_close(jcf(x), expected, rtol=1e-3, atol=1e-3)


def test_tokens_are_embedded_by_second_order_whatever_the_size(saved, tmp_path):
    for option in ("out", "beside"):
        torch.manual_seed(0)
        model = Embedder.build(
            backbone=f"hf:{saved('registers')}",
            pooling="jcf-4-2",
            dim=8,
            reduce=12,
            norm_exponent=0.0,
            backbone_options={"class_token": option},
            pooling_options={"start": "pairs", "width": 20, "whiten": 0.25},
        ).eval()
        with torch.no_grad():
            model.fit([model.backbone(photos(56, 56)) for _ in range(8)])
        model.save(tmp_path / option)
        again, images = secondsight.load(tmp_path / option), photos(84, 56)
        with torch.no_grad():
            assert torch.equal(again(images), model(images))
            assert model(images).shape == (2, 8)


def test_a_network_without_a_class_token_says_so(saved):
    for kind in ("swin", "convnext"):
        with pytest.raises(ConfigError, match="no class token"):
            build(f"hf:{saved(kind)}", class_token="beside")
    with pytest.raises(UnknownName, match="did you mean 'beside'"):
        build(f"hf:{saved('vit')}", class_token="besides")


@pytest.mark.parametrize("kind", ["convnext", "resnet"])
def test_convolutional_networks_yield_their_map_row_by_row(saved, kind):
    backbone, images = build(f"hf:{saved(kind)}").eval(), photos(56, 56)
    with torch.no_grad():
        features = backbone(images)
    torch.testing.assert_close(features, theirs(saved(kind), images).flatten(2).mT, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", MODELS)
def test_images_of_another_size_have_the_grid_that_is_promised(saved, kind):
    backbone = build(f"hf:{saved(kind)}").train()
    h, w = backbone.grid(84, 112)
    assert backbone(photos(84, 112)).shape == (2, h * w, backbone.out_dim)
    assert all(module.training for module in backbone.modules())


@pytest.mark.parametrize("kind", MODELS)
def test_config_rebuilds_it_without_the_directory(saved, tmp_path, kind):
    backbone, images = build(f"hf:{saved(kind)}", freeze="all").eval(), photos(56, 56)
    config = json.loads(json.dumps(backbone.config))
    config["name"] = f"hf:{tmp_path}/gone"
    again = build(**config, weights=None).eval()
    again.load_state_dict(backbone.state_dict())
    assert torch.equal(again(images), backbone(images))
    assert again.preprocessing == backbone.preprocessing


@pytest.mark.parametrize("kind", MODELS)
def test_exactly_the_parameters_that_matter_can_be_trained(saved, kind):
    """The poolers and heads of these models play no part in local features: no gradient is waited for."""
    backbone = build(f"hf:{saved(kind)}").train()
    backbone(photos(56, 56)).square().sum().backward()
    for name, parameter in backbone.named_parameters():
        assert parameter.requires_grad == (parameter.grad is not None), name


def test_a_prefix_is_frozen_in_place(saved):
    backbone, images = build(f"hf:{saved('registers')}", freeze="encoder.layer.1").train(), photos(56, 56)
    backbone(images).sum().backward()
    trained = {name.rsplit(".", 1)[0] for name, p in backbone.named_parameters() if p.grad is not None}
    assert trained
    assert all(name.startswith(("network.encoder.layer.2", "network.layernorm")) for name in trained)
    assert torch.equal(backbone.frozen_part(images), backbone.prepare(images))
    assert torch.equal(backbone.eval()(images), backbone.live_part(backbone.frozen_part(images)))
    assert not backbone.train().network.encoder.layer[1].training
    assert backbone.network.encoder.layer[2].training


def test_a_path_above_several_stages_means_the_last_of_them(saved):
    backbone = build(f"hf:{saved('dinov2')}", freeze="encoder")
    assert backbone.frozen == "encoder.layer.2"
    with pytest.raises(UnknownName, match=r"stage of hf:.*'encoder.layer.7'; did you mean 'encoder.layer"):
        backbone.freeze("encoder.layer.7")


@pytest.mark.parametrize("last", ["all", "layernorm"])
def test_all_frozen_is_computed_ahead(saved, last):
    backbone, images = build(f"hf:{saved('vit')}", freeze=last).train(), photos(56, 56)
    assert backbone.frozen_part(images).shape == (2, 16, 16)
    assert torch.equal(backbone.live_part(backbone.frozen_part(images)), backbone(images))
    assert not any(parameter.requires_grad for parameter in backbone.parameters())
    assert not backbone.network.training


def test_the_fingerprint_knows_the_frozen_weights(saved):
    backbone = build(f"hf:{saved('vit')}", freeze="all")
    before = backbone.prefix_fingerprint()
    backbone.network.embeddings.cls_token.data += 1
    assert backbone.prefix_fingerprint() != before


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Preprocessing(mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4), size=56)),
        ({"do_normalize": False}, Preprocessing(mean=(0, 0, 0), std=(1, 1, 1), size=56)),
        ({"do_rescale": False}, Preprocessing(mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4), range=255, size=56)),
        (
            {"do_flip_channel_order": True},
            Preprocessing(mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4), channels="BGR", size=56),
        ),
        (
            {"do_center_crop": True, "crop_size": {"height": 28, "width": 28}},
            Preprocessing(mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4), size=28),
        ),
        ({"size": {"shortest_edge": 70}}, Preprocessing(mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4), size=70)),
    ],
)
def test_pixels_are_prepared_as_the_models_own_processor_says(saved, tmp_path, changes, expected):
    MODELS["dinov2"]().save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**PROCESSOR, **changes}))
    assert build(f"hf:{tmp_path}").preprocessing == expected


def test_without_a_processor_the_pixels_must_be_told(tmp_path):
    MODELS["dinov2"]().save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"no preprocessor_config.json .* pass preprocessing="):
        build(f"hf:{tmp_path}")
    told = Preprocessing(mean=(0, 0, 0), std=(1, 1, 1), size=56)
    assert build(f"hf:{tmp_path}", preprocessing=told).preprocessing == told


def test_weights_may_come_from_a_file(saved, tmp_path):
    backbone = build(f"hf:{saved('vit')}")
    state = {name: tensor.clone() for name, tensor in backbone.network.state_dict().items()}
    save_file({**state, "classifier.weight": torch.zeros(1)}, tmp_path / "w.safetensors")
    again = build(f"hf:{saved('vit')}", weights=tmp_path / "w.safetensors")
    assert all(torch.equal(again.network.state_dict()[name], tensor) for name, tensor in state.items())
    random = build(f"hf:{saved('vit')}", weights=None)
    assert not torch.equal(random.network.embeddings.cls_token, backbone.network.embeddings.cls_token)


def test_what_is_no_image_model_is_refused(tmp_path):
    hf.BertModel(
        hf.BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, vocab_size=10)
    ).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="is not an image model: it takes 'input_ids'"):
        build(f"hf:{tmp_path}", preprocessing=Preprocessing(mean=(0, 0, 0), std=(1, 1, 1)))


def test_a_directory_that_holds_no_model_is_named(tmp_path):
    with pytest.raises(WeightsError, match=f"hf:{tmp_path} cannot be loaded"):
        build(f"hf:{tmp_path}", preprocessing=Preprocessing(mean=(0, 0, 0), std=(1, 1, 1)))


def test_an_image_smaller_than_a_patch_is_an_error(saved):
    with pytest.raises(ShapeError, match="13×56 pixels is too small"):
        build(f"hf:{saved('vit')}")(photos(13, 56))


def test_without_transformers_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"secondsight\[hf\]"):
        build("hf:facebook/dinov2-small")
