"""Compression: the closed form is the best one, folding changes nothing, codes are what they say."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize
from typer.testing import CliRunner

import data_layouts as layouts
import secondsight
from secondsight import Embedder
from secondsight.cli.main import app
from secondsight.compress import Sample, compress
from secondsight.errors import ConfigError
from secondsight.functional.pooling.compression import from_bits, share_projectors, to_bits, to_int8
from secondsight.pooling.principal import main_directions


def test_without_weights_the_shared_projectors_are_the_truncated_svd():
    w = torch.randn(8, 5, 7, dtype=torch.float64)
    a, shared, lost = share_projectors(w, 3)
    u, s, v = torch.linalg.svd(w.flatten(1), full_matrices=False)
    torch.testing.assert_close(torch.tensordot(a, shared, 1).flatten(1), (u[:, :3] * s[:3]) @ v[:3])
    assert lost == pytest.approx(float(s[3:].square().sum() / s.square().sum()))


def test_as_many_projectors_as_codewords_lose_nothing():
    w, usage = torch.randn(6, 4, 3), torch.rand(6, 6)
    a, shared, lost = share_projectors(w, 6, usage @ usage.T)
    torch.testing.assert_close(torch.tensordot(a, shared, 1), w, rtol=1e-4, atol=1e-4)
    assert lost == pytest.approx(0, abs=1e-9)


def cost(w, approximation, h, c) -> float:
    """‖H^½ (W − W') C^½‖², as tr(Hᵀ ΔW C ΔWᵀ)."""
    delta = w - approximation
    return float(torch.einsum("nm,ndo,de,meo->", h, delta, c, delta))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000))
def test_no_other_shared_projectors_cost_less(seed):
    """Gradient descent on A and W̃ from the closed form, and from a random start, does not get below it."""
    g = torch.Generator().manual_seed(seed)
    w = torch.randn(6, 4, 3, generator=g, dtype=torch.float64)
    h = torch.randn(6, 6, generator=g, dtype=torch.float64)
    h = h @ h.T + 0.1 * torch.eye(6, dtype=torch.float64)
    c = torch.randn(4, 4, generator=g, dtype=torch.float64)
    c = c @ c.T
    a, shared, lost = share_projectors(w, 2, h, c)
    best = cost(w, torch.tensordot(a, shared, 1), h, c)
    assert best == pytest.approx(lost * cost(w, 0 * w, h, c), rel=1e-6)
    for start in (a, torch.randn(6, 2, generator=g, dtype=torch.float64)):
        # For a fixed A the best W̃ is a weighted least-squares solution: alternate a little.
        other = torch.linalg.solve(start.T @ h @ start, start.T @ h @ w.flatten(1)).view(2, 4, 3)
        assert cost(w, torch.tensordot(start, other, 1), h, c) >= best * (1 - 1e-9)


def model(pooling="jcf-8", dim=24, **options) -> Embedder:
    torch.manual_seed(0)
    built = Embedder.build(
        backbone="efficientnet-lite0", weights=None, pooling=pooling, dim=dim, reduce=12, pooling_options=options
    )
    return built.eval()


@pytest.fixture(scope="module")
def sample() -> Sample:
    torch.manual_seed(1)
    return Sample([torch.randn(20, 16, 1280).relu() for _ in range(3)], (4, 4))


WIDE = {"start": "average", "power": 0.5, "whiten": 0.25, "width": 40}


@pytest.mark.parametrize("options", [{}, {"start": "average"}, {"codebooks": 2}, {"assign": "top-2"}, WIDE])
def test_a_model_that_already_shares_is_found_again(sample, options):
    """Projectors that are mixtures of 3 are compressed to 3 without loss, and the embeddings stay."""
    large = model(**options)
    with torch.no_grad():
        for side in (large.pooling.u, large.pooling.v):
            side.copy_(torch.tensordot(torch.rand(8, 3), torch.randn(3, *side.shape[1:]), 1))
        if large.pooling.offset is not None:
            aug = torch.tensordot(torch.rand(8, 3), torch.randn(3, 13, large.pooling.width), 1)
            large.pooling.v.copy_(aug[:, :12])
            large.pooling.offset.copy_(aug[:, 12])
    small, change = compress(large, projectors=3, sample=sample)
    assert small.config.pooling == "jcf-8-3"
    torch.testing.assert_close(sample.pooled(small), sample.pooled(large), rtol=1e-3, atol=1e-3)
    assert change.cosine == pytest.approx(1, abs=1e-4)
    assert max(change.lost.values()) < 1e-6
    assert change.parameters[1] < change.parameters[0]


def test_weighing_by_use_is_better_on_the_images_it_was_weighed_by(sample):
    large = model(scale=30.0)
    with torch.no_grad():  # four codewords where the features are, four where nothing ever is
        x = large.reduced(sample.features[0]).flatten(0, 1)
        large.pooling.codebooks[0].words.copy_(torch.cat([x[:4], -x[:4]]))
    weighed, _ = compress(large, projectors=4, sample=sample)
    blind, _ = compress(large, projectors=4)
    errors = [1 - (sample.pooled(m) * sample.pooled(large)).sum(1).mean().item() for m in (weighed, blind)]
    assert errors[0] < 0.5 * errors[1]


def test_a_few_steps_of_fine_tuning_bring_it_closer(sample):
    large = model()
    plain, before = compress(large, projectors=2, sample=sample)
    tuned, after = compress(large, projectors=2, sample=sample, steps=60)
    assert after.cosine > before.cosine
    again, _ = compress(large, projectors=2, sample=sample, steps=60)
    assert again.fingerprint() == tuned.fingerprint() != plain.fingerprint()


def test_compressing_twice_is_compressing_the_shared_model(sample):
    half, _ = compress(model(), projectors=4, sample=sample)
    quarter, change = compress(half, projectors=2, sample=sample)
    assert quarter.config.pooling == "jcf-8-2"
    assert change.parameters[0] > change.parameters[1]


@pytest.mark.parametrize("pooling", ["average", "bp", "vlad-4", "max", "jcf-8"])
def test_fewer_dimensions_are_the_principal_axes_of_the_embeddings(sample, pooling, tmp_path):
    large = model(pooling)
    if pooling == "vlad-4":
        large.fit(sample.features, grid=sample.grid)
    small, change = compress(large, dim=6, sample=sample)
    z = sample.pooled(large)
    torch.testing.assert_close(
        sample.pooled(small), normalize(z @ main_directions(z, 6).float(), dim=1), rtol=1e-3, atol=1e-3
    )
    assert change.dim == (24, 6)
    assert (small.keep is None) == (pooling != "jcf-8"), "folded into the last linear map where there is one"
    small.save(tmp_path / "m")
    from secondsight import load

    assert torch.equal(sample.pooled(load(tmp_path / "m")), sample.pooled(small))


def test_principal_axes_keep_the_most_energy():
    z = torch.randn(500, 6) * torch.tensor([5.0, 4, 3, 1, 0.1, 0.1]) + torch.tensor([0, 0, 0, 9.0, 0, 0])
    axes = main_directions(z, 2).to(z)
    torch.testing.assert_close(axes.T @ axes, torch.eye(2), rtol=1e-4, atol=1e-5)
    kept = (z @ axes).square().sum()
    assert all(kept >= (z @ torch.linalg.qr(torch.randn(6, 2)).Q).square().sum() for _ in range(50))


@given(st.integers(1, 9), st.integers(1, 70))
@settings(max_examples=20, deadline=None)
def test_bits_come_back_as_signs(m, d):
    z = torch.randn(m, d)
    codes = to_bits(z)
    assert codes.shape == (m, (d + 7) // 8)
    assert torch.equal(from_bits(codes, d), torch.where(z > 0, 1.0, -1.0))


def test_int8_keeps_cosines_to_a_hundredth():
    z = normalize(torch.randn(200, 128), dim=1)
    codes = to_int8(z)
    assert codes.dtype == torch.int8
    assert codes.abs().amax(1).min() == 127
    cosines = normalize(codes.float(), dim=1)
    assert (cosines @ cosines.T - z @ z.T).abs().max() < 0.01
    assert (to_int8(torch.zeros(1, 4)) == 0).all()


@pytest.mark.parametrize(
    ("pooling", "asked", "message"),
    [
        ("jcf-8", {}, "nothing to compress to"),
        ("jcf-8", {"projectors": 8}, "between 1 and 7"),
        ("jcf-8", {"projectors": 0}, "between 1 and 7"),
        ("average", {"projectors": 2}, "no codebook"),
        ("jcf", {"projectors": 1}, "no codebook"),
        ("jcf-8", {"dim": 24}, "between 1 and 23"),
    ],
)
def test_what_cannot_be_is_said(sample, pooling, asked, message):
    with pytest.raises(ConfigError, match=message):
        compress(model(pooling), sample=sample, **asked)
    with pytest.raises(ConfigError, match="need sample images"):
        compress(model(), dim=3)


def test_the_command_looks_at_training_classes_and_judges_by_held_out_ones(tmp_path, monkeypatch):

    layouts.folder(tmp_path / "photos", dict.fromkeys("abcdef", 3))
    model = Embedder.build(
        backbone="efficientnet-lite0", weights="random", pooling="jcf-6", dim=16, reduce=8, size=32, norm_exponent=0.0
    )
    model.save(tmp_path / "large")
    looked_at = []
    sample = Sample.of
    monkeypatch.setattr(Sample, "of", lambda m, images, **rest: looked_at.append(images) or sample(m, images, **rest))
    words = ["compress", tmp_path / "large", "--projectors", 2, "--dim", 8, "--data", tmp_path / "photos"]
    done = CliRunner().invoke(app, [*map(str, words), "--split", "validation"])
    assert done.exit_code == 0, done.output
    assert looked_at[0].classes == ("a", "b", "c")
    assert "…" not in done.output, "no heading is cut off"
    assert "R@1" in done.output
    small = secondsight.load(tmp_path / "large-r2-d8")
    assert (small.config.pooling, small.dim) == ("jcf-6-2", 8)
    figures = json.loads((tmp_path / "large-r2-d8" / "compression.json").read_text())["figures"]
    assert [row["bytes"] for row in figures] == [64, 32, 8, 1]
    assert all(0 <= row["recall@1"] <= 1 for row in figures)
    refused = CliRunner().invoke(app, ["compress", str(tmp_path / "large"), "--dim", "8"])
    assert isinstance(refused.exception, ConfigError)
    assert "need sample images" in str(refused.exception)
