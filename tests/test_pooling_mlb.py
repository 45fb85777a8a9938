"""MLB against its authors' network, written out step by step, and models saved under its name before it had that."""

from __future__ import annotations

import pytest
import torch

import secondsight
from secondsight.pooling.mlb import MLB


def authors(m: MLB, x: torch.Tensor) -> torch.Tensor:
    """z of one image (l, d): the steps of the authors' network, one number after the other, without dropout.

    Where the question enters, the location stands in for it in the attention, and the glimpse after that.
    """
    rank, g_count = m.map_weight.shape

    def linear(v, weight, bias):
        return [
            sum(float(v[i]) * weight[i, j].item() for i in range(len(v))) + bias[j].item()
            for j in range(weight.shape[1])
        ]

    def tanh(values):
        return [float(torch.tensor(value, dtype=torch.float64).tanh()) for value in values]

    logits = []  # a linear map, tanh, and the product with the question's; then one convolution to G maps
    for location in x:
        image = tanh(linear(location, m.attention_weight[:, :rank], m.attention_bias[:rank]))
        question = tanh(linear(location, m.attention_weight[:, rank:], m.attention_bias[rank:]))
        joint = [a * b for a, b in zip(image, question, strict=True)]
        logits.append(linear(joint, m.map_weight, m.map_bias))
    joined = []
    for g in range(g_count):
        weights = torch.tensor([row[g] for row in logits], dtype=torch.float64).softmax(0)
        glimpse = [
            sum(float(w) * float(location[i]) for w, location in zip(weights, x, strict=True))
            for i in range(x.shape[1])
        ]
        image = tanh(linear(glimpse, m.glimpse_weight[g, :, :rank], m.glimpse_bias[g, :rank]))
        question = tanh(linear(glimpse, m.glimpse_weight[g, :, rank:], m.glimpse_bias[g, rank:]))
        joined += [a * b for a, b in zip(image, question, strict=True)]
    return torch.tensor(linear(joined, m.out_weight, m.out_bias), dtype=torch.float64)


def random_biases(m: MLB) -> MLB:
    with torch.no_grad():
        for name, parameter in m.named_parameters():
            if name.endswith("bias"):
                parameter.normal_()
    return m


def test_it_is_the_authors_network():
    pooling = random_biases(MLB(4, 3, glimpses=2, rank=5).double())
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    expected = torch.stack([authors(pooling, image) for image in x])
    torch.testing.assert_close(pooling(x).detach(), expected)


def test_attention_adds_up_to_one_over_the_real_locations():
    pooling, x = random_biases(MLB(4, 3)), torch.randn(2, 6, 4)
    mask = torch.tensor([[True] * 6, [True, True, False, True, False, False]])
    weights = pooling.attend(x, mask)
    torch.testing.assert_close(weights.sum(1), torch.ones(2, 2))
    assert (weights[~mask] == 0).all()


def test_biases_say_nothing_of_an_image_without_locations():
    pooling = random_biases(MLB(4, 3))
    mask = torch.tensor([[False] * 5, [True] * 5])
    z = pooling(torch.randn(2, 5, 4), mask)
    assert (z[0] == 0).all()
    assert (z[1] != 0).any()
    assert (pooling(torch.randn(2, 0, 4)) == 0).all()


def test_fit_brings_features_of_any_size_into_the_bend_of_the_tanh():
    pooling, x = MLB(16, 3, glimpses=3), 50 * torch.randn(60, 30, 16)
    pooling.fit(x)
    assert (x @ pooling.attention_weight).square().mean().item() == pytest.approx(1, rel=0.05)
    seen = torch.einsum("blg,bld->bgd", pooling.attend(x), x)
    inside = torch.einsum("bgd,gdr->bgr", seen, pooling.glimpse_weight)
    torch.testing.assert_close(inside.square().mean((0, 2)), torch.ones(3), rtol=0.01, atol=0)


def test_a_model_saved_as_mlb_before_loads_as_hadamard_and_gives_the_same(tmp_path):
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    build = {"backbone": "efficientnet-lite0", "weights": None, "reduce": 8, "dim": 6}
    model = secondsight.Embedder.build(**build, pooling="hadamard-3", pooling_options={"rank": 5}).eval()
    model.save(tmp_path / "old")
    text = (tmp_path / "old" / "config.toml").read_text()
    (tmp_path / "old" / "config.toml").write_text(text.replace('"hadamard-3"', '"mlb-3"'))
    loaded = secondsight.load(tmp_path / "old")
    with torch.no_grad():
        assert torch.equal(loaded(images), model(images))
    fresh = secondsight.Embedder.build(**build, pooling="mlb-3", pooling_options={"rank": 5}).eval()
    fresh.save(tmp_path / "new")
    with torch.no_grad():
        assert torch.equal(secondsight.load(tmp_path / "new")(images), fresh(images))
