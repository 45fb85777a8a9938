"""The part of JCF that follows the sum: a signed power, and a matrix that starts as part of a whitening."""

from __future__ import annotations

import pytest
import torch

from secondsight.errors import ConfigError
from secondsight.pooling.ending import SMOOTH, Ending, whitening


def test_without_options_it_changes_nothing_and_has_no_parameters():
    end, z = Ending(5, 5), torch.randn(3, 5)
    assert not end.needed
    assert torch.equal(end(z), z)
    assert not list(end.parameters())


@pytest.mark.parametrize("power", [0.1, 0.5, 0.9])
def test_the_power_is_the_docstrings_equation(power):
    end, z = Ending(5, 5, power=power), torch.randn(40, 5)
    end.fit(z)
    level = z.abs().mean()
    torch.testing.assert_close(end(z), z * (z.abs() / level + SMOOTH) ** (power - 1))
    far = 1e6 * torch.ones(1, 5)
    torch.testing.assert_close(end(far) / end(2 * far), torch.full((1, 5), 2.0**-power), rtol=1e-3, atol=0)


@pytest.mark.parametrize("options", [{"power": 0.5}, {"whiten": 0.25}, {"power": 0.5, "whiten": 0.5}])
def test_parts_of_a_sum_stay_parts_of_the_end(options):
    end, parts = Ending(6, 6, **options).double(), torch.randn(4, 9, 6, dtype=torch.float64)
    end.fit(parts.sum(1))
    torch.testing.assert_close(end.local(parts).sum(1), end(parts.sum(1)))


def test_half_a_whitening_twice_is_a_whitening():
    z = torch.randn(400, 4, dtype=torch.float64) @ torch.diag(torch.tensor([2.0, 1.9, 1.5, 1.5], dtype=torch.float64))
    w = whitening(z, 0.25, keep=4)
    full = whitening(z, 0.5, keep=4)
    torch.testing.assert_close(w @ w / (w @ w).norm(), full / full.norm())
    torch.testing.assert_close(whitening(z, 0.0, keep=4), torch.eye(4, dtype=torch.float64))


def test_fewer_outputs_than_inputs_are_the_directions_of_most_energy():
    basis = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64)).Q
    z = torch.randn(500, 6, dtype=torch.float64) * torch.tensor([9.0, 8, 0.1, 0.1, 0.1, 0.1]) @ basis.T
    w = whitening(z, 0.0, keep=2)
    torch.testing.assert_close(
        (w.T @ basis[:, :2]).norm() ** 2, torch.tensor(2.0, dtype=torch.float64), rtol=1e-3, atol=0
    )


@pytest.mark.parametrize(("size", "options"), [((4, 5), {"whiten": 0.1}), ((5, 4), {}), ((4, 4), {"power": 0.0})])
def test_an_ending_that_cannot_be_is_refused(size, options):
    with pytest.raises(ConfigError):
        Ending(*size, **options)
