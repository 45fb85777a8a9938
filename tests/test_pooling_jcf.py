"""The JCF and bilinear layers: what the paper says of them, holds."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn.functional import normalize, one_hot

from secondsight.errors import ConfigError, DataError, ShapeError, UnknownName
from secondsight.functional.pooling import assignment
from secondsight.functional.pooling.combined_projectors import combined_projectors
from secondsight.functional.pooling.jcf import jcf
from secondsight.pooling import JCF, build

ROW = {
    "average": 1,
    "bp": 34,
    "bp-4": 135,
    "jcf": 0.8,
    "jcf-4": 1.6,
    "jcf-16-4": 1.6,
    "jcf-16-8": 2.6,
    "jcf-16-16": 4.7,
    "jcf-32-4": 1.6,
    "jcf-32-8": 2.6,
    "jcf-32-16": 4.7,
    "jcf-32-32": 8.9,
}


@pytest.mark.parametrize(("name", "millions"), ROW.items())
def test_parameters_are_the_papers_ablation_row(name, millions):
    """Table 1 of the paper: ResNet-50, d_in = 2048 reduced to d = 256, D = 512."""
    whole = name == "average"
    with torch.device("meta"):
        pool = build(name, in_dim=2048 if whole else 256, out_dim=512)
    count = sum(p.numel() for p in pool.parameters()) + (0 if whole else 2048 * 256)
    assert round(count / 1e6, 0 if millions in (1, 34, 135) else 1) == millions


@pytest.fixture(autouse=True)
def _routed(monkeypatch):
    """Small inputs take the way of large ones."""
    monkeypatch.setattr("secondsight.pooling.jcf.ENOUGH", 0)


def features(b=3, length=7, d=6, *, dtype=torch.float64):
    return normalize(torch.randn(b, length, d, dtype=dtype), dim=-1)


def layer(name, d=6, o=4, **options) -> JCF:
    return build(name, in_dim=d, out_dim=o, **options).double()  # pyright: ignore


def test_jcf_without_codebook_is_a_product_of_two_projections():
    x, m = features(), layer("jcf")
    expected = torch.stack([sum((m.u[0].T @ p) * (m.v[0].T @ p) for p in image) for image in x])
    torch.testing.assert_close(m(x), expected)


def test_jcf_with_one_codeword_is_the_rank_one_factorisation():
    x, m, plain = features(), layer("jcf-1"), layer("jcf")
    plain.load_state_dict({"uv": m.uv.detach()})
    torch.testing.assert_close(m(x), plain(x))


def test_jcf_n_is_the_paper_s_equation():
    x, m = features(), layer("jcf-5", scale=3.0)
    h = assignment.soft(x, m.codebooks[0].words, 3.0)
    z = torch.zeros(3, 4, dtype=torch.float64)
    for b in range(3):
        for place in range(7):
            for i in range(4):
                u_i, v_i = m.u[:, :, i].T, m.v[:, :, i].T  # (d, N), as in the paper
                z[b, i] += (h[b, place] @ u_i.T @ x[b, place]) * (h[b, place] @ v_i.T @ x[b, place])
    torch.testing.assert_close(m(x), z)


def test_jcf_n_r_is_the_paper_s_equation():
    x, m = features(), layer("jcf-5-3", scale=3.0)
    with torch.no_grad():
        for mixer in m.mixers:
            mixer.weight.normal_()
    h = assignment.soft(x, m.codebooks[0].words, 3.0)
    a, b_ = (mixer.weight for mixer in m.mixers)
    z = torch.zeros(3, 4, dtype=torch.float64)
    for b in range(3):
        for place in range(7):
            for i in range(4):
                u_i, v_i = m.u[:, :, i].T, m.v[:, :, i].T  # (d, R)
                z[b, i] += (h[b, place] @ a @ u_i.T @ x[b, place]) * (h[b, place] @ b_ @ v_i.T @ x[b, place])
    torch.testing.assert_close(m(x), z)


def test_as_many_identity_mixed_projectors_as_codewords_is_jcf_n():
    x, shared, own = features(), layer("jcf-5-5"), layer("jcf-5")
    own.load_state_dict({k: v for k, v in shared.state_dict().items() if not k.startswith("mixers")})
    for mixer in shared.mixers:
        assert torch.equal(mixer.weight, torch.eye(5, dtype=torch.float64))
    torch.testing.assert_close(shared(x), own(x))


def test_hard_assignment_computes_only_the_assigned_codeword():
    x, m = features(), layer("jcf-5", assign="hard").eval()
    nearest = assignment.cosine(x, m.codebooks[0].words).argmax(-1)
    torch.testing.assert_close(m(x), jcf(x, one_hot(nearest, 5).double(), m.uv))
    unused = next(n for n in range(6) if n == 5 or n not in nearest)
    if unused < 5:
        with torch.no_grad():
            m.uv[unused] = float("nan")
        assert torch.isfinite(m(x)).all()


def test_hard_assignment_in_training_is_hard_forward_and_soft_backward():
    x, m = features(), layer("jcf-5", assign="hard", straight_through=True)
    z = m(x)
    torch.testing.assert_close(z, m.eval()(x))
    z.sum().backward()
    assert m.codebooks[0].words.grad.abs().sum() > 0
    book, weights = m.codebooks[0], torch.randn(3, 7, 5, dtype=torch.float64)
    through = assignment.hard_straight_through(x, book.words, book.scale)
    soft = assignment.soft(x, book.words, book.scale)
    got, expected = (torch.autograd.grad((h * weights).sum(), book.words)[0] for h in (through, soft))
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("name", ["jcf-6", "jcf-6-4"])
def test_top_k_of_all_is_soft(name):
    x, sparse, soft = features(), layer(name, assign="top-6"), layer(name, assign="soft")
    soft.load_state_dict(sparse.state_dict())
    torch.testing.assert_close(sparse(x), soft(x))


def with_gains(name, **options) -> JCF:
    m = layer(name, gains=True, **options)
    for book in m.codebooks:
        torch.nn.init.normal_(book.log_gains, std=0.5)
    return m


@pytest.mark.parametrize("assign", ["soft", "hard", "top-2"])
def test_gains_of_codewords_are_projectors_scaled(assign):
    x, m, plain = features(), with_gains("jcf-5", assign=assign).eval(), layer("jcf-5", assign=assign).eval()
    state = {k: v for k, v in m.state_dict().items() if "gains" not in k}
    plain.load_state_dict({**state, "uv": m.uv * m.codebooks[0].gains[:, None, None]})
    torch.testing.assert_close(m(x), plain(x))
    torch.testing.assert_close(m.local(x).sum(1), m(x))


@pytest.mark.parametrize("assign", ["soft", "top-2"])
def test_gains_of_codewords_that_share_projectors_are_rows_of_the_mixing_scaled(assign):
    x, m, plain = features(), with_gains("jcf-5-3", assign=assign), layer("jcf-5-3", assign=assign)
    state = {k: v for k, v in m.state_dict().items() if "gains" not in k}
    gains = m.codebooks[0].gains[:, None]
    plain.load_state_dict(state | {k: v * gains for k, v in state.items() if k.startswith("mixers")})
    torch.testing.assert_close(m(x), plain(x))


def test_gains_start_at_one_and_start_again_with_new_codewords():
    x, m, plain = features(), layer("jcf-5", gains=True), layer("jcf-5")
    plain.load_state_dict({k: v for k, v in m.state_dict().items() if "gains" not in k})
    torch.testing.assert_close(m(x), plain(x))
    fitted = with_gains("jcf-5")
    fitted.fit(x)
    assert torch.equal(fitted.codebooks[0].gains, torch.ones(5, dtype=torch.float64))


@pytest.mark.parametrize("assign", ["soft", "top-2"])
def test_gains_pass_gradcheck(assign):
    x, m = features(2, 4, 6), with_gains("jcf-3", assign=assign)
    theta = m.codebooks[0].log_gains.detach().clone().requires_grad_()

    def z(theta):
        return torch.func.functional_call(m, {"codebooks.0.log_gains": theta}, (x,))

    assert gradcheck(z, (theta,))


def test_gains_learn_that_background_says_nothing():
    m, kind = build("jcf-2", in_dim=4, out_dim=4, gains=True, start="square"), torch.arange(8) % 4
    with torch.no_grad():
        m.codebooks[0].words.copy_(torch.tensor([[1.0, 1, 1, 0], [0, 0, 0, 1]]))
    optimiser = torch.optim.Adam([m.codebooks[0].log_gains], lr=1e-2)
    for _ in range(100):
        birds = one_hot(kind % 3, 4).float() + 0.1
        noise = torch.tensor([0.0, 0, 0, 1]) * torch.rand(8, 1) * 3
        z = normalize(m(torch.stack([birds, noise], dim=1)), dim=-1)
        same = (kind % 3)[:, None] == (kind % 3)
        similarity = z @ z.T
        optimiser.zero_grad()
        (similarity[~same].mean() - similarity[same].mean()).backward()
        optimiser.step()
    bird, background = m.codebooks[0].gains.tolist()
    assert background < 0.7 < bird


def test_the_readout_is_the_last_matrix_and_the_gains():
    m = build("jcf-4-2", in_dim=8, out_dim=8, gains=True, whiten=0.25, power=0.5)
    names = {id(p): name for name, p in m.named_parameters()}
    assert {names[id(p)] for p in m.readout_parameters()} == {"ending.weight", "codebooks.0.log_gains"}
    assert not list(build("jcf-4", in_dim=8, out_dim=8).readout_parameters())
    assert not list(build("gem", in_dim=8, out_dim=4).readout_parameters())


@pytest.mark.parametrize("images", [1, 40])
def test_few_locations_use_the_shared_projectors_and_many_are_routed(images, monkeypatch):
    x, m = features(images, 7, 6), layer("jcf-5-3", assign="top-2").eval()
    monkeypatch.undo()  # the threshold as it is
    combined = []
    monkeypatch.setattr(m, "unshared", lambda: combined.append(True) or JCF.unshared(m))
    z = m(x)
    assert bool(combined) == (images == 40)
    monkeypatch.setattr("secondsight.pooling.jcf.ENOUGH", 0 if images == 1 else 10**9)
    torch.testing.assert_close(m(x), z)


@torch.no_grad()
def test_projectors_are_combined_once_until_a_parameter_changes(monkeypatch):
    x, m = features(1, 7, 6), layer("jcf-5-3", assign="top-2").eval()
    monkeypatch.undo()
    combined = []
    monkeypatch.setattr(m, "unshared", lambda: combined.append(True) or JCF.unshared(m))
    for change in (lambda: None, lambda: m.uv.mul_(2), lambda: m.mixers[0].weight.add_(1), lambda: m.train().eval()):
        change()
        before = len(combined)
        z = m(x)
        assert torch.equal(z, m(x))
        assert len(combined) == before + 1
        m.eval()(x)  # as it was
        assert len(combined) == before + 1
        with torch.enable_grad():
            torch.testing.assert_close(z, m(x).detach())


@pytest.mark.parametrize("fused", [False, True])
def test_a_layer_that_learns_in_evaluation_mode_is_seen_to_have_learned(fused):
    x, m = features(1, 7, 6), layer("jcf-5-3", assign="top-2").eval()
    step = torch.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=1e-3, fused=fused).step
    with torch.no_grad():
        m(x)
    m(x).square().mean().backward()
    step()
    with torch.no_grad():
        torch.testing.assert_close(m(x), copy.deepcopy(m).train().eval()(x))


@pytest.mark.parametrize("assign", ["soft", "top-2"])
@pytest.mark.parametrize("others", [True, False], ids=["one input", "two inputs"])
def test_gradients_that_nobody_asks_for_change_none_of_the_others(assign, others):
    x, y = features(), features()
    m, wanted = with_gains("jcf-5", assign=assign), ("codebooks.0.log_gains",)
    second = {} if others else {"y": y}
    m(x, **second).square().sum().backward()
    whole = {name: p.grad.clone() for name, p in m.named_parameters()}
    for name, p in m.named_parameters():
        p.grad = None
        p.requires_grad_(name in wanted)
    m(x, **second).square().sum().backward()
    for name, p in m.named_parameters():
        if name in wanted:
            torch.testing.assert_close(p.grad, whole[name])
        else:
            assert p.grad is None
    m.uv.requires_grad_(True)
    m(x, **second).square().sum().backward()
    torch.testing.assert_close(m.uv.grad, whole["uv"])


@pytest.mark.parametrize("start", ["random", "average"])
def test_shared_projectors_routed_through_codewords_give_the_shared_result(start):
    """With k < R the layer multiplies A into the projectors and routes; the definition mixes the coefficients."""
    x, m = features(), layer("jcf-8-4", assign="top-2", start=start).eval()
    with torch.no_grad():
        for mixer in m.mixers:
            mixer.weight.normal_()
    h = m.codebooks[0](x).dense(8)
    p, q = (mixer(h) for mixer in m.mixers)
    bias = None if m.offset is None else torch.cat([torch.zeros_like(m.offset), m.offset], -1)
    torch.testing.assert_close(m(x), jcf(x, p, m.uv, g=q, bias=bias))


def test_two_codebooks_and_a_second_input_reach_the_second_factor():
    x, y, m = features(), features(), layer("jcf-4", codebooks=2)
    h = assignment.soft(x, m.codebooks[0].words, m.codebooks[0].scale)
    g = assignment.soft(y, m.codebooks[1].words, m.codebooks[1].scale)
    torch.testing.assert_close(m(x, y=y), jcf(x, h, m.uv, y=y, g=g))
    torch.testing.assert_close(m.local(x, y=y).sum(1), m(x, y=y))
    plain = layer("jcf")
    torch.testing.assert_close(plain(x, y=y), ((x @ plain.u[0]) * (y @ plain.v[0])).sum(1))


def test_first_order_start_is_average_pooling():
    x = features(4, 9, 6)
    m = layer("jcf-5-3", o=8, start="average")
    with torch.no_grad():
        m.v.zero_()
    averages = x.sum(1) @ m.u[0]
    torch.testing.assert_close(m(x), averages)
    cosines = [normalize(t, dim=1) @ normalize(t, dim=1).T for t in (m(x), x.mean(1))]
    torch.testing.assert_close(cosines[0], cosines[1], msg="with D ≥ d the start keeps every angle")


@pytest.mark.parametrize("name", ["jcf", "jcf-5", "jcf-5-3"])
def test_saliency_start_is_an_average_weighed_by_the_product_with_the_mean_feature(name):
    x = features(40, 9, 6).abs()
    m = layer(name, o=8, start="saliency")
    m.fit(x)
    mean = x.flatten(0, 1).mean(0)
    weights = x @ mean / mean.square().sum()
    torch.testing.assert_close(weights.mean(), torch.ones((), dtype=torch.float64))
    with torch.no_grad():
        noise = m.v - (mean / mean.square().sum())[:, None]
        assert noise.abs().max() < 0.1, "V is the mean feature and a little noise"
        m.v.sub_(noise)
    torch.testing.assert_close(m(x), (weights[..., None] * x).sum(1) @ m.u[0])


@pytest.mark.parametrize("name", ["jcf", "jcf-5", "jcf-5-3"])
def test_square_start_with_a_root_is_the_generalised_mean_of_two(name):
    x = features(40, 9, 6)
    m = layer(name, o=6, start="square", power=0.5, reduce="mean")
    m.fit(x)
    with torch.no_grad():
        assert (m.v - m.u[0]).abs().max() < 0.1, "V is U and a little noise"
        m.v.copy_(m.u[0].expand_as(m.v))
        m.u.copy_(m.v)
    squares = (x @ m.u[0]).square().mean(1)
    torch.testing.assert_close(m(x), squares / (squares / m.ending.level + 0.01).sqrt())
    with torch.no_grad():
        likeness = torch.cosine_similarity(m(x), squares.sqrt()).min()
    assert likeness > 0.999, "the bend at zero changes little"


def test_the_power_is_bounded_at_zero_and_keeps_the_sum_over_locations():
    x = features()
    m = layer("jcf-5-3", power=0.3, whiten=0.25)
    with torch.no_grad():
        m.ending.weight.normal_()
    m.ending.level.fill_(2.0)
    z = layer("jcf-5-3").requires_grad_(False)
    z.load_state_dict({k: v for k, v in m.state_dict().items() if not k.startswith("ending.")})
    plain = z(x)
    expected = plain * (plain.abs() / 2 + 0.01) ** -0.7 @ m.ending.weight / 2  # √D = 2
    torch.testing.assert_close(m(x), expected)
    torch.testing.assert_close(m.local(x).sum(1), expected)
    nothing = torch.zeros_like(x, requires_grad=True)
    m(nothing).sum().backward()
    assert torch.isfinite(nothing.grad).all()


@pytest.mark.parametrize("exponent", [0.0, 0.25, 0.5])
def test_whitening_takes_the_pooled_vectors_second_moment_to_a_power(exponent):
    x, m = features(400, 3, 6), layer("jcf-5-3", o=4, whiten=exponent)
    m.fit(x)
    plain = m._summed(x)
    moment = (plain.T @ plain / 400).detach()
    now = (m(x).T @ m(x) / 400).detach()
    before, after = (torch.linalg.eigvalsh(t).flip(0)[:2] for t in (moment, now))  # the lower half is left together
    torch.testing.assert_close(after[0] / after[1], (before[0] / before[1]) ** (1 - 2 * exponent))
    torch.testing.assert_close(m.ending.weight.square().sum(), torch.tensor(16.0, dtype=torch.float64))  # D · ‖I‖²


def test_a_wide_z_ends_in_its_principal_directions_and_stays_a_sum_over_locations():
    x, pool = torch.rand(200, 7, 6).double(), layer("jcf-4-2", o=5, start="square", power=0.5, whiten=0.25, width=9)
    pool.fit(x)
    assert isinstance(pool, JCF)
    assert pool.uv.shape == (2, 6, 18)
    z = pool._summed(x)
    z = z * (z.abs() / z.abs().mean() + 1e-2) ** -0.5
    values, vectors = torch.linalg.eigh(z.T @ z / len(z))
    w = (vectors * values.clamp_min(values[-5]) ** -0.25)[:, -5:]
    expected = z @ w
    found = pool(x)
    assert found.shape == (200, 5)
    signs = (found * expected).sum(0).sign()  # of eigenvectors, which have none
    torch.testing.assert_close(found, expected * signs * (found.norm() / expected.norm()), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(pool.local(x).sum(1), found)


@pytest.mark.parametrize("start", ["saliency", "square"])
def test_a_start_that_squares_or_weighs_does_so_in_the_backbones_channels(start):
    channels = torch.linalg.qr(torch.randn(10, 4)).Q.T  # (d = 4, c = 10)
    x = torch.rand(50, 7, 10) @ channels.T
    pool = build("jcf-4-2", 4, 8, start=start)
    assert isinstance(pool, JCF)
    pool.fit(x, channels=channels)
    strongest = (x @ channels).square().sum((0, 1)).topk(8).indices.sort().values
    torch.testing.assert_close(normalize(pool.u[1], dim=0), normalize(channels[:, strongest], dim=0))
    before = build("jcf-4-2", 4, 16, start=start)
    kept = before.u[0].clone()
    before.fit(x, channels=channels)  # fewer channels than numbers: the random start stays, but for its scale
    torch.testing.assert_close(normalize(before.u[0], dim=0), normalize(kept, dim=0))


def test_an_embedder_tells_the_pooling_where_the_channels_are():
    from secondsight import Embedder

    model = Embedder.build(
        backbone="efficientnet-lite0",
        weights=None,
        pooling="jcf-4-2",
        dim=16,
        reduce=32,
        norm_exponent=0.0,
        pooling_options={"start": "square", "power": 0.5, "whiten": 0.25, "width": 1280},
    )
    model.fit(torch.rand(40, 9, 1280))
    assert model.reduction is not None
    assert isinstance(model.pooling, JCF)
    expected = normalize(model.reduction.weight.T, dim=0)
    torch.testing.assert_close(normalize(model.pooling.u[0], dim=0), expected, rtol=1e-4, atol=1e-4)


def test_the_end_is_fitted_from_images_and_its_options_are_checked():
    for options in ({"power": 0.5}, {"whiten": 0.25}):
        with pytest.raises(DataError, match="from images"):
            layer("jcf", **options).fit([torch.randn(20, 6, dtype=torch.float64)])
    for options in ({"power": 0.0}, {"power": 1.5}, {"whiten": -0.1}, {"whiten": 0.6}):
        with pytest.raises(ConfigError, match="got"):
            layer("jcf", **options)


def test_saliency_start_needs_a_mean_direction():
    points = features(40, 9, 6)
    m = layer("jcf-5-3", o=8, start="saliency")
    with pytest.raises(ConfigError, match="start as 'average'"):
        m.fit(torch.cat([points, -points]))
    with pytest.raises(UnknownName, match="did you mean 'saliency'"):
        layer("jcf", start="salience")


@pytest.mark.parametrize("options", [{}, {"scale": 1.0}, {"assign": "hard"}, {"assign": "top-2"}, {"start": "average"}])
@pytest.mark.parametrize("name", ["jcf-2", "jcf-32", "jcf-32-4", "jcf-64-16"])
@pytest.mark.parametrize(("d", "o"), [(16, 64), (128, 32), (32, 128)])
def test_the_variance_of_z_at_the_start_depends_on_nothing(name, options, d, o):
    runs = [build(name, in_dim=d, out_dim=o, **options)(features(256, 1, d, dtype=torch.float32)) for _ in range(4)]
    assert 0.8 < torch.stack(runs).var().item() < 1.25


@pytest.mark.parametrize("name", ["bp", "bp-4"])
def test_the_variance_of_bilinear_z_at_the_start_is_one(name):
    z = build(name, in_dim=24, out_dim=128)(features(512, 1, 24, dtype=torch.float32))
    assert 0.7 < z.var().item() < 1.4


@pytest.mark.parametrize("name", ["bp", "bp-3"])
def test_bilinear_pooling_is_the_paper_s_equation(name):
    x, m = features(2, 5, 3), build(name, in_dim=3, out_dim=4, scale=2.0).double()
    z = torch.zeros(2, 4, dtype=torch.float64)
    for b in range(2):
        for p in x[b]:
            h = assignment.soft(p, m.codebook.words, 2.0) if m.codebook else torch.ones(1, dtype=torch.float64)
            for i in range(4):
                w = m.weight[..., i].flatten()
                z[b, i] += w @ torch.kron(h, torch.kron(p, p))
    torch.testing.assert_close(m(x), z)
    torch.testing.assert_close(m.local(x).sum(1), z)


def test_lin_s_bilinear_vector_is_the_rooted_normalised_covariance():
    x = features(2, 5, 3)
    m = build("bp", in_dim=3, out_dim=9, root=True, projected=False).double()
    s = torch.stack([sum(torch.outer(p, p) for p in image) / 5 for image in x]).flatten(1)
    torch.testing.assert_close(m(x), normalize(s.sign() * s.abs().sqrt(), dim=1), rtol=1e-5, atol=1e-6)
    with pytest.raises(ConfigError, match="not a sum over locations"):
        m.local(x)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("jcf", {}),
        ("jcf-3", {}),
        ("jcf-3", {"start": "average", "codebooks": 2}),
        ("jcf-4-2", {}),
        ("jcf-4-2", {"assign": "top-2"}),
        ("jcf-4-3", {"assign": "top-2", "start": "average"}),
        ("jcf-4-3", {"start": "square", "power": 0.5, "whiten": 0.25}),
        ("jcf-4-3", {"start": "average", "power": 0.5, "whiten": 0.25, "width": 5}),
        ("jcf-3", {"start": "saliency", "power": 0.7, "reduce": "mean"}),
        ("jcf-4-2", {"mix": "mlp"}),
        ("bp-2", {}),
        ("bp", {"root": True}),
        ("average", {}),
    ],
)
def test_every_parameter_has_the_right_gradient(name, options):
    m = build(name, in_dim=3, out_dim=2, **options).double()
    x = features(2, 4, 3).requires_grad_()
    names = [n for n, p in m.named_parameters() if p.requires_grad]
    values = [p for p in m.parameters() if p.requires_grad]
    assert names
    assert gradcheck(
        lambda x, *ps: torch.func.functional_call(m, dict(zip(names, ps, strict=True)), (x,)), [x, *values], atol=1e-4
    )


def test_fit_puts_codewords_on_clusters_and_scales_the_factors():
    centres = normalize(torch.randn(4, 16), dim=1)
    x = normalize(centres.repeat(200, 1) + 0.02 * torch.randn(800, 16), dim=1) * 3.0
    m = build("jcf-4", in_dim=16, out_dim=64)
    m.fit(x, seed=1)
    cosines = assignment.cosine(centres, m.codebooks[0].words)
    assert (cosines.max(1).values > 0.99).all()
    assert sorted(cosines.argmax(1).tolist()) == [0, 1, 2, 3]
    h = m.codebooks[0](x[None]).weights
    u_factor = sum((h[0, :, j, None] * x) @ m.u[j] for j in range(4))
    assert u_factor.square().mean().item() == pytest.approx(1.0, rel=0.02)


def test_fit_is_reproducible_from_its_seed_and_takes_streams():
    x = torch.randn(3000, 8)
    books = []
    for stream in (x, [x[:1000], x[1000:]], x.view(30, 100, 8)):
        torch.manual_seed(0)
        m = build("jcf-6-2", in_dim=8, out_dim=4)
        m.fit(stream, seed=7)
        books.append(m.codebooks[0].words.detach())
    assert torch.equal(books[0], books[1])
    assert torch.equal(books[0], books[2])


def test_dropping_projectors_leaves_the_mean_and_evaluation_alone():
    x, m = features(1, 6, 6), layer("jcf-8-4", dropout=0.5, codebooks=2)
    still = m.eval()(x)
    torch.testing.assert_close(m(x), still)
    m.train()
    assert not torch.equal(m(x), m(x))


def test_literal_paper_layer_is_one_setting():
    m = build("jcf-32", scale=1.0, learn_scale=False)
    assert m.codebooks[0].scale.item() == 1.0
    assert not m.codebooks[0].log_scale.requires_grad
    h = m.codebooks[0](features(1, 100, 256, dtype=torch.float32)).weights
    assert h.max() < 0.19, "the temperature trap: raw cosines cannot sharpen a softmax over 32"


class TestBadInput:
    def test_unknown_name_suggests_the_nearest(self):
        with pytest.raises(UnknownName, match="did you mean 'jcf'"):
            build("jfc-32")

    @pytest.mark.parametrize("name", ["jcf-0", "jcf-32-0", "bp-0", "jcf-x", "jcf-1-2-3", "average-2", "jcf--3"])
    def test_senseless_numbers_are_refused(self, name):
        with pytest.raises(ConfigError):
            build(name)

    def test_wrong_channels_name_both_sizes(self):
        with pytest.raises(ShapeError, match=r"256.*\(2, 49, 100\)"):
            build("jcf-4")(torch.randn(2, 49, 100))

    def test_wrong_mask_is_refused(self, unchecked):
        m = build("jcf-4", in_dim=8)
        with pytest.raises(ShapeError, match="does not fit"):
            m(torch.randn(2, 5, 8), torch.ones(2, 6, dtype=torch.bool))
        with pytest.raises(ShapeError, match="must be bool"):
            m(torch.randn(2, 5, 8), torch.ones(2, 5))

    @pytest.mark.parametrize(
        "options",
        [
            {"assign": "fuzzy"},
            {"assign": "top-9"},
            {"scale": -1.0},
            {"codebooks": 3},
            {"reduce": "max"},
            {"dropout": 1.0},
            {"width": 600},
            {"width": 6, "whiten": 0.25},
        ],
    )
    def test_senseless_options_are_refused(self, options):
        with pytest.raises(ConfigError):
            build("jcf-8-4", in_dim=8, **options)

    def test_unknown_option_is_refused(self):
        with pytest.raises(ConfigError, match="temperature"):
            build("jcf-8-4", in_dim=8, temperature=3)


def test_combined_projectors_are_sums_of_the_shared_ones_and_so_are_their_gradients():
    a, b = (torch.randn(5, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    uv = torch.randn(3, 6, 8, dtype=torch.float64, requires_grad=True)
    expected = torch.cat([torch.einsum("nr,rdo->ndo", a, uv[..., :4]), torch.einsum("nr,rdo->ndo", b, uv[..., 4:])], -1)
    torch.testing.assert_close(combined_projectors(a, b, uv), expected)
    assert torch.autograd.gradcheck(combined_projectors, (a, b, uv))
    assert torch.autograd.gradgradcheck(combined_projectors, (a, b, uv))
    fixed = uv.detach()
    assert torch.autograd.gradcheck(lambda a: combined_projectors(a, b.detach(), fixed), (a,))


@pytest.mark.parametrize("images", [0, 2, 1500], ids=["no image", "one block", "several blocks"])
def test_projectors_that_no_location_uses_have_a_gradient_of_zero(images):
    x, m = features(2, 7, 6)[:1].repeat(images, 1, 1), layer("jcf-20", assign="top-1")
    m(x).sum().backward()
    used = m.assignments(x)[0].sum((0, 1)) > 0
    assert torch.equal(m.uv.grad.flatten(1).any(1), used)
