"""``mixed``: squares of the last channels beside JCF of the layer before them, each part of length 1."""

from __future__ import annotations

import pytest
import torch

from secondsight import backbones
from secondsight.errors import ConfigError
from secondsight.pooling import build
from secondsight.pooling.ending import SMOOTH
from secondsight.pooling.mixed import Mixed
from secondsight.pooling.principal import shrunk_whitening


def fitted(images: int = 40, **options) -> tuple[Mixed, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.cat([torch.randn(images, 12, 10).relu(), torch.randn(images, 12, 6) + 1], -1)
    pool = build("mixed", 16, 8, split=10, axes=4, **options)
    assert isinstance(pool, Mixed)
    pool.fit(list(x.split(7)))
    return pool.eval(), x


def test_it_is_its_equation_written_as_loops():
    pool, x = fitted()
    u, v = pool.jcf.u[0], pool.jcf.v[0]
    for image in x[:3]:
        s, c = torch.zeros(10), torch.zeros(pool.width)
        for place in image:
            h, b = place[:10], place[10:]
            seen = pool.axes.T @ (b - pool.mean)
            s += h**2 / len(image)
            c += (u.T @ seen) * (v.T @ seen) / len(image)
        parts = []
        for y, level, m in zip((s, c), pool.levels, pool.common.split([10, pool.width]), strict=True):
            y = y * (y.abs() / level + SMOOTH) ** -0.5
            y = y - (y @ m) * m
            parts.append(y / y.norm())
        expected = torch.cat(parts) @ pool.weight / len(pool.weight) ** 0.5
        torch.testing.assert_close(pool(image[None])[0], expected, rtol=1e-4, atol=1e-5)


def test_what_all_images_share_is_gone_from_both_parts():
    pool, x = fitted()
    with torch.no_grad():
        parts = pool._parts(*pool._sums(x, None), sums=pool._sums(x, None))
    first, second = parts.split([10, pool.width], 1)
    for part in (first, second):
        torch.testing.assert_close(part.norm(dim=1), torch.ones(len(x)))
    assert (first @ pool.common[:10]).abs().max() < 1e-5
    assert (second @ pool.common[10:]).abs().max() < 1e-5


def test_both_parts_see_all_channels_without_a_split():
    pool = build("mixed", 6, 5)
    assert isinstance(pool, Mixed)
    assert (pool.squares, pool.axes.shape, pool.width) == (6, (6, 6), 21)


@pytest.mark.parametrize("options", [{"split": 0}, {"split": 6}, {"whiten": 0.6}])
def test_what_cannot_be_built_is_refused(options):
    with pytest.raises(ConfigError, match="mixed: "):
        build("mixed", 6, 5, **options)


def test_more_numbers_than_there_are_sums_are_refused():
    with pytest.raises(ConfigError, match="cannot end as 40 numbers"):
        build("mixed", 6, 40)


def test_shrunk_whitening_is_its_formula_where_there_are_images_enough():
    y = torch.randn(50, 6, dtype=torch.float64) * torch.tensor([1, 2, 3, 4, 5, 6.0])
    moment = y.T @ y / 50
    values, vectors = torch.linalg.eigh(moment)
    w = vectors[:, 2:] * (values[2:] + moment.trace() / 6) ** -0.25
    found = shrunk_whitening(y, 0.25, keep=4).double()
    torch.testing.assert_close(found @ found.T, w @ w.T * 4 / w.square().sum(), rtol=1e-5, atol=1e-6)


def test_few_images_leave_room_for_what_is_new():
    """Three images span three directions; what a later image has beyond them must not be lost."""
    torch.manual_seed(1)
    y = torch.randn(3, 20)
    w = shrunk_whitening(y, 0.25, keep=10)
    assert w.shape == (20, 10)
    gram = w.T @ w
    torch.testing.assert_close(gram, gram.diag().diag(), rtol=0, atol=1e-5)
    new = torch.randn(20)
    new = new - y.T @ torch.linalg.lstsq(y.T, new[:, None]).solution[:, 0]
    assert (new @ w).norm() > 0.2 * (torch.randn(20) @ w).norm()


def test_a_network_gives_its_last_layer_and_behind_it_the_one_before():
    torch.manual_seed(0)
    both, last, before = (
        backbones.build("efficientnet-lite0", weights="random", head=head).eval() for head in ("both", True, False)
    )
    last.load_state_dict(both.state_dict())
    before.load_state_dict({k: v for k, v in both.state_dict().items() if k in before.state_dict()})
    x = torch.randint(0, 256, (1, 3, 64, 64), dtype=torch.uint8)
    with torch.no_grad():
        found = both(x)
        assert found.shape == (1, 4, both.out_dim)
        assert both.out_dim == 1280 + 320
        torch.testing.assert_close(found[..., :1280], last(x))
        torch.testing.assert_close(found[..., 1280:], before(x))


def test_activations_of_both_layers_are_not_mistaken_for_those_of_one():
    one, two = (backbones.build("efficientnet-lite0", weights="random", freeze="all", head=h) for h in (True, "both"))
    two.load_state_dict(one.state_dict())
    assert one.prefix_fingerprint() != two.prefix_fingerprint()
    one.freeze("blocks5")
    two.freeze("blocks5")
    assert one.prefix_fingerprint() == two.prefix_fingerprint()
