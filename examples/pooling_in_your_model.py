"""Second-order pooling in a PyTorch model of your own.

A small network tells apart pictures in which a colour and a shape occur *together* from pictures in which both occur,
but apart. Averaging cannot see the difference; JCF can.

    python examples/pooling_in_your_model.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from secondsight.pooling import build


class Network(nn.Module):
    """A 1×1 convolution gives local features; a pooling makes one vector of them; a linear layer decides."""

    def __init__(self, pooling: str):
        super().__init__()
        self.features = nn.Conv2d(4, 32, 1)
        self.pooling = build(pooling, in_dim=32, out_dim=32)
        self.classify = nn.Linear(32, 2)

    def local_features(self, images: Tensor) -> Tensor:
        return self.features(images).flatten(2).transpose(1, 2)  # (B, C, H, W) → (B, L, C): what a pooling takes

    def forward(self, images: Tensor) -> Tensor:
        return self.classify(self.pooling(self.local_features(images)) / images[0, 0].numel())


def pictures(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """6×6 places, four channels: red, blue, round, square. In class 1 what is red is round, in class 0 square."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 2, (count,), generator=draw)
    red = torch.randint(0, 2, (count, 6, 6), generator=draw).bool()
    same = labels.bool()[:, None, None]
    round_ = torch.where(same, red, ~red)
    return torch.stack([red, ~red, round_, ~round_], 1).float(), labels


def train(pooling: str, steps: int = 150) -> tuple[Network, float]:
    torch.manual_seed(0)
    network = Network(pooling)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    for step in range(steps):
        images, labels = pictures(64, seed=step)
        optimiser.zero_grad()
        cross_entropy(network(images), labels).backward()
        optimiser.step()
    images, labels = pictures(512, seed=10_000)
    with torch.no_grad():
        return network.eval(), (network(images).argmax(1) == labels).float().mean().item()


def main() -> dict[str, float]:
    accuracy = {}
    for pooling in ("average", "jcf", "jcf-4-2"):
        network, accuracy[pooling] = train(pooling)
        print(f"{pooling:8} {accuracy[pooling]:.0%} right on new pictures")
    images, _ = pictures(1, seed=7)
    with torch.no_grad():
        x = network.local_features(images)
        contributions = network.pooling.local(x)  # (1, 36, 32): what each place adds
        assert torch.allclose(contributions.sum(1), network.pooling(x), atol=1e-4)
    print("what each place adds sums to the whole:", tuple(contributions.shape))
    return accuracy


if __name__ == "__main__":
    main()
