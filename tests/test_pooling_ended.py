"""Averaging and GeM with JCF's ending: the rivals that every label-free table holds JCF against."""

from __future__ import annotations

import pytest
import torch

from secondsight import pooling
from secondsight.errors import ConfigError, DataError
from secondsight.functional.pooling.generalised_mean import generalised_mean
from secondsight.pooling.ending import Ending


@pytest.fixture
def features() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.rand(50, 6, 10, generator=generator) @ torch.rand(10, 10, generator=generator)


@pytest.mark.parametrize("name", ["average", "gem-2", "max"])
@pytest.mark.parametrize("power", [1.0, 0.5])
def test_it_is_the_ending_on_the_pooled_channels(features, name, power):
    pool = pooling.build(name, 10, 4, power=power, whiten=0.25).eval()
    pool.fit(features.split(16))
    pooled = {
        "average": features.mean(1),
        "gem-2": generalised_mean(features, torch.tensor([2.0])),
        "max": features.amax(1),
    }[name]
    ending = Ending(10, 4, power=power, whiten=0.25)
    ending.fit(pooled)
    torch.testing.assert_close(pool(features), ending(pooled))


def test_the_parts_of_an_average_add_up_to_it(features):
    pool = pooling.build("average", 10, 4, power=0.5, whiten=0.25).eval()
    pool.fit(features)
    torch.testing.assert_close(pool.local(features).sum(1), pool(features))


def test_fully_whitened_outputs_are_uncorrelated(features):
    pool = pooling.build("average", 10, 3, whiten=0.5).eval()
    pool.fit(features)
    z = pool(features)
    moment = z.T @ z
    torch.testing.assert_close(moment / moment.diagonal().mean(), torch.eye(3), atol=1e-3, rtol=0)


def test_only_the_matrix_learns_and_it_is_the_readout():
    pool = pooling.build("average", 10, 4, power=0.5, whiten=0.25)
    learning = [p for p in pool.parameters() if p.requires_grad]
    assert [p.shape for p in learning] == [(10, 4)]
    assert all(p is q for p, q in zip(learning, pool.readout_parameters(), strict=True))


def test_what_is_masked_out_does_not_count(features):
    pool = pooling.build("average", 10, 4, power=0.5, whiten=0.25).eval()
    pool.fit(features)
    mask = torch.arange(6) < 4
    torch.testing.assert_close(pool(features, mask.expand(50, 6)), pool(features[:, :4]))


def test_more_outputs_than_channels_is_an_error():
    with pytest.raises(ConfigError, match="width of 10"):
        pooling.build("average", 10, 20, power=0.5, whiten=0.25)


def test_it_is_fitted_from_images(features):
    with pytest.raises(DataError, match="fitted from images"):
        pooling.build("average", 10, 4, whiten=0.25).fit([features.flatten(0, 1)])
