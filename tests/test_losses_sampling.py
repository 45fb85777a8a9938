"""Distance-weighted sampling: the right odds, the same draw on each process, another one each step."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from secondsight.functional.losses.pairs import euclidean, unit
from secondsight.functional.losses.sampling import distance_weighted_triplets, log_density
from secondsight.losses import LOSSES, build


def test_the_density_is_that_of_distances_on_the_sphere():
    # On the ordinary sphere (D = 3) it is proportional to d: q(d) = d / 2.
    d = torch.tensor([0.3, 0.9, 1.8], dtype=torch.float64)
    torch.testing.assert_close(
        log_density(d, dim=3) - (d / 2).log(), torch.full((3,), math.log(2), dtype=torch.float64)
    )


def test_negatives_are_drawn_with_the_inverse_of_the_density():
    u = unit(torch.randn(12, 4, dtype=torch.float64))
    labels = torch.tensor([0] * 6 + [1, 2, 3, 4, 5, 6])
    d = euclidean(u @ u.T)
    generator = torch.Generator().manual_seed(0)
    options = {"dim": 4, "cutoff": 0.5, "far": 1.4}
    drawn = torch.cat(
        [torch.stack(distance_weighted_triplets(d, labels, **options, generator=generator)) for _ in range(400)], dim=1
    )
    anchors, _, negatives = drawn
    weights = (-log_density(d[0].clamp_min(0.5), dim=4)).exp() * (labels != 0) * (d[0] < 1.4)
    seen = torch.bincount(negatives[anchors == 0], minlength=12) / (anchors == 0).sum()
    torch.testing.assert_close(seen.double(), weights / weights.sum(), atol=0.05, rtol=0)


def test_each_positive_pair_draws_a_negative_of_another_class():
    u, labels = unit(torch.randn(20, 64)), torch.arange(20) // 4
    a, p, n = distance_weighted_triplets(
        euclidean(u @ u.T), labels, dim=64, cutoff=0.5, far=1.4, generator=torch.Generator()
    )
    assert len({(int(i), int(j)) for i, j in zip(a, p, strict=True)}) == 20 * 3
    assert (labels[a] == labels[p]).all()
    assert (labels[a] != labels[n]).all()


def test_no_anchor_is_lost_in_high_dimensions():
    # In 512 dimensions the weights of two anchors differ by hundreds of orders of magnitude.
    u, labels = unit(torch.randn(32, 512)), torch.arange(32) // 2
    u[0] = unit(u[2] + 0.3 * u[0])
    a, _, _ = distance_weighted_triplets(
        euclidean(u @ u.T), labels, dim=512, cutoff=0.5, far=1.6, generator=torch.Generator()
    )
    assert set(a.tolist()) == set(range(32))


def test_the_draw_follows_the_step_and_the_step_is_saved():
    z, labels = torch.randn(16, 8), torch.arange(16) // 4
    one, other = build("margin", dim=8, classes=4), build("margin", dim=8, classes=4)
    first, second = one(z, labels), one(z, labels)
    assert first != second
    torch.rand(3)  # the global generator has no say
    assert other(z, labels) == first
    resumed = build("margin", dim=8, classes=4)
    resumed.load_state_dict(other.state_dict())
    assert resumed(z, labels) == second


def test_another_seed_draws_other_negatives():
    z, labels = torch.randn(16, 8), torch.arange(16) // 4
    assert build("margin", dim=8, classes=4, seed=1)(z, labels) != build("margin", dim=8, classes=4)(z, labels)


@pytest.mark.parametrize("name", LOSSES)
def test_two_processes_with_the_same_batch_and_state_stay_in_step(name):
    z, labels = torch.randn(24, 12), torch.arange(24) // 3
    loss = build(name, dim=12, classes=8)
    losses = [loss, copy.deepcopy(loss)]
    for _ in range(2):
        grads = []
        for process, each in enumerate(losses):
            torch.manual_seed(process)
            local = z.clone().requires_grad_()
            each(local, labels).backward()
            grads.append([local.grad, *(p.grad for p in each.parameters())])
        for one, other in zip(*grads, strict=True):
            assert torch.equal(one, other)
