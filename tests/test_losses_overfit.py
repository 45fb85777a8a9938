"""Every loss can teach: 64 points of 8 classes end with each point's nearest neighbour in its class."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import load_digits

from secondsight.losses import LOSSES, build


def recall_at_1(e: torch.Tensor, labels: torch.Tensor) -> float:
    e = torch.nn.functional.normalize(e)
    nearest = (e @ e.T).fill_diagonal_(-2).argmax(1)
    return (labels[nearest] == labels).float().mean().item()


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    images, numbers = load_digits(return_X_y=True)
    chosen = [i for number in range(8) for i in [j for j, n in enumerate(numbers) if n == number][:8]]
    return torch.tensor(images[chosen], dtype=torch.float32) / 16 - 0.5, torch.tensor(numbers[chosen])


@pytest.mark.parametrize("name", LOSSES)
def test_free_embeddings_of_random_points_reach_full_recall(name):
    labels = torch.arange(8).repeat(8)
    z = torch.nn.Parameter(torch.randn(64, 32))
    loss = build(name, dim=32, classes=8)
    assert recall_at_1(loss.transform_at_test(z.detach()), labels) < 0.4
    optimiser = torch.optim.Adam([z, *loss.parameters()], lr=0.05)
    for step in range(300):
        if loss.wants_embeddings and step % 20 == 0:
            loss.on_epoch([(z.detach(), labels)])
        optimiser.zero_grad()
        loss(z, labels).backward()
        optimiser.step()
        if step % 10 == 9 and recall_at_1(loss.transform_at_test(z.detach()), labels) == 1:
            return
    pytest.fail(f"{name} stops at recall {recall_at_1(loss.transform_at_test(z.detach()), labels):.2f}")


@pytest.mark.parametrize("name", LOSSES)
def test_a_small_network_overfits_64_digits(name):
    x, labels = digits()
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 16))
    loss = build(name, dim=16, classes=8)

    def recall() -> float:
        with torch.no_grad():
            return recall_at_1(loss.transform_at_test(network(x)), labels)

    optimiser = torch.optim.Adam([*network.parameters(), *loss.parameters()], lr=3e-3)
    for step in range(300):
        if loss.wants_embeddings and step % 20 == 0:
            loss.on_epoch([(network(x), labels)])
        batch = torch.randperm(64)[:48] if step % 2 else torch.arange(64)  # classes of uneven size, too
        optimiser.zero_grad()
        loss(network(x[batch]), labels[batch]).backward()
        optimiser.step()
        if step % 10 == 9 and recall() == 1:
            return
    pytest.fail(f"{name} stops at recall {recall():.2f}")
