"""A metric-learning experiment with a loss of your own.

Digits 0–4 teach, digits 5–9 judge. The loss is a plain function of embeddings and labels; everything else is
secondsight's: the pooling, batches with several images of each class, and exact retrieval figures.

    pip install scikit-learn
    python examples/your_own_loss.py
"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import normalize, relu

from secondsight.data import ClassBalanced
from secondsight.evaluate import Report, retrieval
from secondsight.pooling import build


def your_loss(z: Tensor, labels: Tensor, *, margin: float = 0.2) -> Tensor:
    """Every image is nearer to the mean of its class than to the mean of any other, by a margin."""
    z = normalize(z)
    classes = labels.unique()
    means = normalize(torch.stack([z[labels == c].mean(0) for c in classes]))
    similarity = z @ means.T
    own = labels[:, None] == classes
    return relu(margin + similarity - similarity[own][:, None])[~own].mean()


class Model(nn.Module):
    """Local features of 8×8 digits, pooled by JCF."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 48, 3), nn.ReLU())
        self.pooling = build("jcf-8-4", in_dim=48, out_dim=64)

    def forward(self, images: Tensor) -> Tensor:
        return self.pooling(normalize(self.features(images).flatten(2).transpose(1, 2), dim=-1))


def digits() -> tuple[Tensor, Tensor]:
    pixels, labels = load_digits(return_X_y=True)
    return torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16, torch.tensor(labels)


@torch.no_grad()
def judge(model: Model, images: Tensor, labels: Tensor) -> Report:
    return retrieval(model.eval()(images), labels)


def main(epochs: int = 6) -> tuple[Report, Report]:
    torch.manual_seed(0)
    images, labels = digits()
    teach, held_out = labels < 5, labels >= 5
    model = Model()
    before = judge(model, images[held_out], labels[held_out])
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    sampler = ClassBalanced(labels[teach].numpy(), 5, 8, seed=0)  # batches of 5 classes × 8 images
    for epoch in range(epochs):
        sampler.turn_to(epoch)
        for batch in sampler:
            rows = torch.as_tensor(batch)
            loss = your_loss(model.train()(images[teach][rows]), labels[teach][rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    after = judge(model, images[held_out], labels[held_out])
    print(f"digits never seen: R@1 {100 * before.recall[1]:.1f} → {100 * after.recall[1]:.1f}")
    print(f"                 MAP@R {100 * before.map_at_r:.1f} → {100 * after.map_at_r:.1f}")
    return before, after


if __name__ == "__main__":
    main()
